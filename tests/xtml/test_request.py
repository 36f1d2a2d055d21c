"""OpenAI requests become conversations; what K3 cannot say is refused by the name of the field."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.xtml import (
    ConversationError,
    MediaPart,
    MediaPrompt,
    MediaSpan,
    ResponseFormat,
    ToolCall,
    ToolChoice,
    Vocab,
    encode,
    from_request,
)

USER = {"role": "user", "content": "q"}


def tool(name: Any = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def refusal(body: dict[str, Any]) -> ConversationError:
    with pytest.raises(ConversationError) as caught:
        from_request(body)
    assert caught.value.message == str(caught.value)
    return caught.value


def message(item: dict[str, Any]) -> Any:
    return from_request({"messages": [item]}).messages[0]


# Messages


def test_fields_that_do_not_shape_the_prompt_are_not_looked_at() -> None:
    plain = from_request({"messages": [USER]})
    assert from_request({"messages": [USER], "temperature": "hot", "stream": 3, "model": None}) == plain


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": []}, {"messages": "hi"}])
def test_messages_are_required(body: dict[str, Any]) -> None:
    assert refusal(body).param == "messages"


@pytest.mark.parametrize("role", ["function", "User", "", None, 3, ["user"]])
def test_unknown_roles_are_refused(role: Any) -> None:
    error = refusal({"messages": [USER, {"role": role, "content": "x"}]})
    assert error.param == "messages[1].role"
    assert "system, developer, user, assistant, tool" in error.message


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("x", ("x",)),
        ("", ()),
        (None, ()),
        ([], ()),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}], ("a", "b")),
    ],
)
def test_content_may_be_text_parts_or_null(content: Any, parts: tuple[str, ...]) -> None:
    assert message({"role": "user", "content": content}).parts == parts


def test_message_without_content_is_empty() -> None:
    assert message({"role": "assistant"}).parts == ()


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": "u"}}, ("image", "u", "auto")),
        ({"type": "image_url", "image_url": {"url": "u", "detail": "low"}}, ("image", "u", "low")),
        ({"type": "image_url", "image_url": {"url": "u", "detail": None}}, ("image", "u", "auto")),
        ({"type": "image_url", "image_url": "u"}, ("image", "u", "auto")),
        ({"type": "input_image", "image_url": "u", "detail": "high"}, ("image", "u", "high")),
        ({"type": "image", "image": "u"}, ("image", "u", "auto")),
        ({"type": "video_url", "video_url": {"url": "u"}}, ("video", "u", "auto")),
        ({"type": "video", "video_url": "u"}, ("video", "u", "auto")),
    ],
)
@pytest.mark.parametrize("role", ["user", "system", "developer", "tool"])
def test_pictures_and_clips_stand_in_their_place(part: Any, expected: Any, role: str) -> None:
    content = [{"type": "text", "text": "a"}, part, {"type": "text", "text": "b"}]
    parts = message({"role": role, "content": content, "tool_call_id": "c"}).parts
    assert parts == ("a", MediaPart(*expected, param="messages[0].content[1]"), "b")


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ("text", ""),
        ({}, ".type"),
        ({"text": "x"}, ".type"),
        ({"type": "text"}, ".text"),
        ({"type": "text", "text": 3}, ".text"),
        ({"type": "input_audio", "input_audio": {}}, ".type"),
        ({"type": "file", "file": {}}, ".type"),
        ({"type": ["text"], "text": "x"}, ".type"),
        ({"type": "image_url"}, ".image_url"),
        ({"type": "image_url", "image_url": {}}, ".image_url.url"),
        ({"type": "image_url", "image_url": {"url": ""}}, ".image_url.url"),
        ({"type": "image_url", "image_url": {"url": "u", "detail": "max"}}, ".image_url.detail"),
        ({"type": "image_url", "image_url": {"url": "u", "detail": {}}}, ".image_url.detail"),
        ({"type": "video_url", "video_url": 3}, ".video_url"),
    ],
)
def test_a_bad_part_is_refused_by_its_place(part: Any, where: str) -> None:
    content = [{"type": "text", "text": "a"}, part]
    assert refusal({"messages": [{"role": "user", "content": content}]}).param == (
        f"messages[0].content[1]{where}"
    )


def test_assistant_messages_hold_no_pictures() -> None:
    part = {"type": "image_url", "image_url": {"url": "u"}}
    error = refusal({"messages": [{"role": "assistant", "content": [part]}]})
    assert error.param == "messages[0].content[0]"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("hi", "messages[0]"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": {"type": "text"}}, "messages[0].content"),
        ({"role": "user", "content": "", "name": 3}, "messages[0].name"),
        ({"role": "assistant", "reasoning_content": ["x"]}, "messages[0].reasoning_content"),
        ({"role": "assistant", "reasoning": {"x": 1}}, "messages[0].reasoning"),
        ({"role": "user", "content": "", "tool_calls": [{}]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": ["x"]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function.name"),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]},
            "messages[0].tool_calls[0].type",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": {}, "function": {"name": "f"}}]},
            "messages[0].tool_calls[0].id",
        ),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": None}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": "c", "tool": 1}, "messages[0].tool"),
    ],
)
def test_a_bad_field_of_a_message_is_named(item: Any, param: str) -> None:
    assert refusal({"messages": [item]}).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reasoning_content": "r"},
        {"reasoning": "r"},
        {"reasoning_content": "r", "reasoning": "r"},
        {"reasoning_content": None},
        {"reasoning_content": ""},
        {"reasoning_content": "."},
    ],
)
def test_history_with_calls_needs_no_reasoning(fields: dict[str, str]) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    found = message({"role": "assistant", "content": None, "tool_calls": calls, **fields})
    assert found.tool_calls == (ToolCall("c", "f", "{}"),)
    assert (found.reasoning or "") in ("", "r", ".")


def test_any_call_id_and_call_name_is_accepted_back() -> None:
    calls = [
        {"id": "functions.Bash:0", "function": {"name": "7 zip!"}},
        {"id": 12, "function": {"name": "f"}},
    ]
    found = message({"role": "assistant", "tool_calls": calls})
    assert found.tool_calls == (ToolCall("functions.Bash:0", "7 zip!", None), ToolCall("12", "f", None))


# Partial messages


def test_partial_message_is_marked() -> None:
    body = {"messages": [USER, {"role": "assistant", "content": "x", "partial": True}]}
    assert from_request(body).partial
    body["messages"][1]["partial"] = False
    assert not from_request(body).partial


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "assistant", "content": "x", "partial": True}, USER], "messages[0].partial"),
        ([{**USER, "partial": True}], "messages[0].partial"),
        ([{"role": "assistant", "content": "x", "partial": "yes"}], "messages[0].partial"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}], "partial": True}],
            "messages[0].tool_calls",
        ),
    ],
)
def test_partial_elsewhere_is_refused(messages: Any, param: str) -> None:
    assert refusal({"messages": messages}).param == param


# Tools


def test_tools_stay_as_the_client_sent_them() -> None:
    sent = tool(strict=None, parameters={"z": 1, "a": None}, extra=[1])
    assert from_request({"messages": [USER], "tools": [sent]}).tools == (sent,)


BAD_TOOLS = [
    ("x", ""),
    ({"function": {"name": "f"}}, ".type"),
    ({"type": "web_search", "function": {"name": "f"}}, ".type"),
    ({"type": "function"}, ".function"),
    ({"type": "function", "function": "f"}, ".function"),
    ({"type": "function", "function": {}}, ".function.name"),
    (tool(3), ".function.name"),
    (tool(""), ".function.name"),
    (tool("1f"), ".function.name"),
    (tool("f.g"), ".function.name"),
    (tool("f\n"), ".function.name"),
    (tool("fü"), ".function.name"),
    (tool("f" * 257), ".function.name"),
    (tool("g", description=3), ".function.description"),
    (tool("g", parameters=[]), ".function.parameters"),
    (tool("g", strict="true"), ".function.strict"),
    (tool("ok"), ".function.name"),  # the second of that name
]


@pytest.mark.parametrize(("bad", "where"), BAD_TOOLS)
def test_a_bad_request_tool_is_named(bad: Any, where: str) -> None:
    assert refusal({"messages": [USER], "tools": [tool("ok"), bad]}).param == f"tools[1]{where}"


@pytest.mark.parametrize(("bad", "where"), BAD_TOOLS)
def test_a_bad_dynamic_tool_is_named(bad: Any, where: str) -> None:
    items = [USER, {"role": "system", "tools": [tool("ok"), bad]}]
    assert refusal({"messages": items}).param == f"messages[1].tools[1]{where}"


@pytest.mark.parametrize("name", ["f" * 256, "_f", "-f", "F-1_x"])
def test_good_tool_names_are_accepted(name: str) -> None:
    assert from_request({"messages": [USER], "tools": [tool(name)]}).declared_tools == (tool(name),)


@pytest.mark.parametrize("value", ["x", {}, 3, True])
def test_tools_must_be_an_array(value: Any) -> None:
    assert refusal({"messages": [USER], "tools": value}).param == "tools"
    assert refusal({"messages": [{"role": "system", "tools": value}]}).param == "messages[0].tools"


def test_at_most_128_tools() -> None:
    tools = [tool(f"f{i}") for i in range(129)]
    assert from_request({"messages": [USER], "tools": tools[:128]}).tools == tuple(tools[:128])
    assert refusal({"messages": [USER], "tools": tools}).param == "tools"


@pytest.mark.parametrize("content", ["", None, [], [{"type": "text", "text": ""}]])
def test_dynamic_tools_are_declared_where_they_stand(content: Any) -> None:
    items = [{"role": "system", "content": content, "tools": [tool("g")]}, USER]
    conversation = from_request({"messages": items, "tools": [tool("f")], "tool_choice": "required"})
    assert conversation.messages[0].tools == (tool("g"),)
    assert conversation.declared_tools == (tool("f"), tool("g"))


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_only_system_messages_declare_tools(role: str) -> None:
    item = {"role": role, "tool_call_id": "c", "tools": [tool()]}
    assert refusal({"messages": [item]}).param == "messages[0].tools"


@pytest.mark.parametrize("content", ["x", [{"type": "text", "text": "x"}]])
def test_a_declaring_message_has_no_content(content: Any) -> None:
    item = {"role": "system", "content": content, "tools": [tool()]}
    assert refusal({"messages": [item]}).param == "messages[0].content"


def test_a_name_is_declared_once_in_the_whole_request() -> None:
    declaring = {"role": "system", "tools": [tool("f")]}
    error = refusal({"messages": [USER, declaring], "tools": [tool("f")]})
    assert error.param == "messages[1].tools[0].function.name"
    assert "tools[0]" in error.message
    assert refusal({"messages": [declaring, declaring]}).param == "messages[1].tools[0].function.name"


# Tool choice


@pytest.mark.parametrize("value", [None, "auto", "none"])
def test_auto_and_none_need_no_tools(value: Any) -> None:
    assert from_request({"messages": [USER], "tool_choice": value}).tool_choice.mode == (value or "auto")


@pytest.mark.parametrize("named", [{"function": {"name": "f"}}, {"name": "f"}])
def test_a_declared_tool_can_be_chosen_by_name(named: dict[str, Any]) -> None:
    choice = {"type": "function", **named}
    found = from_request({"messages": [USER], "tools": [tool()], "tool_choice": choice})
    assert found.tool_choice == ToolChoice("named", "f")


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("nested", [True, False])
def test_some_of_the_declared_tools_can_be_allowed(mode: str, nested: bool) -> None:
    some = {"mode": mode, "tools": [{"type": "function", "function": {"name": "f"}}]}
    choice = {"type": "allowed_tools", **({"allowed_tools": some} if nested else some)}
    body = {"messages": [USER], "tools": [tool("f"), tool("g")]}
    found = from_request({**body, "tool_choice": choice})
    assert (found.tool_choice.mode, found.tool_choice.allowed) == (mode, {"f"})
    # All tools stay declared: only what is said of the choice itself differs from a plain one.
    assert replace(found, tool_choice=ToolChoice()) == from_request(body)


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("any", "tool_choice"),
        ("", "tool_choice"),
        (3, "tool_choice"),
        ({}, "tool_choice"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools.mode"),
        ({"type": "allowed_tools", "allowed_tools": 3}, "tool_choice.allowed_tools.mode"),
        (
            {"type": "allowed_tools", "mode": "none", "tools": [{"name": "f"}]},
            "tool_choice.allowed_tools.mode",
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.allowed_tools.tools"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}, {"name": "g"}]},
            "tool_choice.allowed_tools.tools[1].function.name",
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [3]},
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        ({"type": "function"}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": ["f"]}}, "tool_choice.function.name"),
        ({"type": "function", "function": {"name": "g"}}, "tool_choice.function.name"),
    ],
)
def test_other_tool_choices_are_refused(value: Any, param: str) -> None:
    assert refusal({"messages": [USER], "tools": [tool()], "tool_choice": value}).param == param


@pytest.mark.parametrize("tools", [{}, {"tools": []}, {"tools": None}])
def test_required_needs_a_tool(tools: dict[str, Any]) -> None:
    assert refusal({"messages": [USER], "tool_choice": "required", **tools}).param == "tool_choice"


# Response format


def json_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, **fields}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ResponseFormat()),
        ({"type": "text"}, ResponseFormat()),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        (json_schema(), ResponseFormat("json_schema", {"a": 1}, True)),
        (json_schema(strict=False), ResponseFormat("json_schema", {"a": 1}, False)),
        (json_schema(schema={}), ResponseFormat("json_schema", {}, True)),
    ],
)
def test_response_formats(value: Any, expected: ResponseFormat) -> None:
    assert from_request({"messages": [USER], "response_format": value}).response_format == expected


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ("json_object", ".type"),
        ({}, ".type"),
        ({"type": "xml"}, ".type"),
        ({"type": ["text"]}, ".type"),
        ({"type": "json_schema"}, ".json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, ".json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, ".json_schema.schema"),
        (json_schema(schema=[]), ".json_schema.schema"),
        (json_schema(schema="{}"), ".json_schema.schema"),
        (json_schema(strict="true"), ".json_schema.strict"),
        (json_schema(strict=1), ".json_schema.strict"),
        (json_schema(strict=None), ".json_schema.strict"),
    ],
)
def test_bad_response_formats_are_refused(value: Any, where: str) -> None:
    error = refusal({"messages": [USER], "response_format": value})
    assert error.param == f"response_format{where}"


# Thinking and effort


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, "max"),
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "medium"}, "high"),
        ({"reasoning_effort": "xhigh"}, "max"),
        ({"reasoning_effort": "none"}, None),
        ({"reasoning_effort": "off"}, None),
        ({"reasoning_effort": None}, "max"),
        ({"thinking": {"type": "enabled"}}, "max"),
        ({"thinking": {"type": "enabled", "keep": "all", "effort": "low"}}, "low"),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "high"}, None),
        ({"thinking": {"effort": "high"}, "reasoning_effort": "low"}, "high"),
        ({"thinking": {"effort": "none"}, "reasoning_effort": "low"}, None),
        ({"thinking": {"type": "enabled", "effort": "low"}, "reasoning_effort": "none"}, "low"),
        ({"reasoning": {"enabled": False}}, None),
        ({"reasoning": {"enabled": True}}, "max"),
        ({"reasoning": {"effort": "low"}}, "low"),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "high"),
        ({"chat_template_kwargs": {"thinking": False}}, None),
        ({"chat_template_kwargs": {"enable_thinking": False}}, None),
        ({"chat_template_kwargs": {"thinking_effort": "low", "other": 1}}, "low"),
        ({"chat_template_kwargs": {"thinking_effort": "low"}, "reasoning_effort": "high"}, "high"),
        ({"chat_template_kwargs": {"thinking": False}, "thinking": {"type": "enabled"}}, "max"),
    ],
)
def test_thinking_and_effort(fields: dict[str, Any], effort: str | None) -> None:
    conversation = from_request({"messages": [USER], **fields})
    assert (conversation.thinking, conversation.effort) == (effort is not None, effort)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"reasoning_effort": "Low"}, "reasoning_effort"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort"),
        ({"reasoning_effort": "x", "thinking": {"type": "disabled"}}, "reasoning_effort"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {"type": "auto"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "effort": "none"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}, "reasoning_effort": "none"}, "thinking.type"),
        ({"thinking": {"effort": "x"}}, "thinking.effort"),
        ({"thinking": {"keep": "last"}}, "thinking.keep"),
        ({"reasoning": {"enabled": "no"}}, "reasoning.enabled"),
        ({"reasoning": {"effort": 1}}, "reasoning.effort"),
        ({"chat_template_kwargs": {"thinking": "no"}}, "chat_template_kwargs.thinking"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ],
)
def test_unknown_switches_are_refused(fields: dict[str, Any], param: str) -> None:
    assert refusal({"messages": [USER], **fields}).param == param


def test_the_allowed_efforts_are_named() -> None:
    error = refusal({"messages": [USER], "reasoning_effort": "extreme"})
    assert "none, off, minimal, low, medium, high, xhigh, max" in error.message


# Anything at all

NAMES = """
    messages role content name reasoning_content reasoning tool_calls tool_call_id tools partial type function
    arguments id text image_url url detail strict parameters json_schema schema effort enabled thinking system
    user assistant tool developer auto none required json_object max low f g
"""
words = st.sampled_from(NAMES.split())
plain = st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=4)
anything = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


WHOLE_REQUEST = {
    "messages": [
        {"role": "developer", "content": "x", "name": "n"},
        {"role": "system", "tools": [tool("g", strict=False)]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
                {"type": "video_url", "video_url": {"url": "u"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"a": {"b": 1.5}}}},
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "b"},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "c"}]},
        {"role": "assistant", "content": "d", "partial": True},
    ],
    "tools": [tool("f", description="d", parameters={"type": "object", "properties": {}})],
    "tool_choice": {"type": "function", "function": {"name": "g"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": {}, "strict": True}},
    "thinking": {"type": "enabled", "effort": "low", "keep": "all"},
    "reasoning_effort": "high",
    "reasoning": {"effort": "low", "enabled": True},
    "chat_template_kwargs": {"thinking": True, "thinking_effort": "max"},
}


@st.composite
def spoilt_requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request that uses everything, with some of its values replaced or missing."""
    body: dict[str, Any] = copy.deepcopy(WHOLE_REQUEST)
    for _ in range(draw(st.integers(0, 3))):
        holder: Any = body
        while True:
            keys = sorted(holder) if isinstance(holder, dict) else range(len(holder))
            key = draw(st.sampled_from(keys))
            if not isinstance(holder[key], dict | list) or not holder[key] or draw(st.integers(0, 3)) == 0:
                break
            holder = holder[key]
        if draw(st.booleans()):
            holder[key] = draw(anything)
        else:
            del holder[key]
        if not body:
            break
    return body


@settings(max_examples=500)
@given(spoilt_requests())
def test_any_request_is_rendered_or_refused_by_name(small_vocab: Vocab, body: dict[str, Any]) -> None:
    try:
        conversation = from_request(body)
        media = [MediaPrompt((MediaSpan("", "image 1x1", 1),), "digest")] * len(conversation.media)
        prompt = encode(conversation, small_vocab, media)
    except ConversationError as error:
        assert error.param.split(".")[0].split("[")[0] in body or error.param == "messages"
    else:
        assert prompt.sections[-1].end == len(prompt.ids)
