"""OpenAI requests become conversations; what K3 cannot say is refused by the name of the field."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.xtml import (
    Conversation,
    ConversationError,
    MediaPart,
    MediaPrompt,
    MediaSpan,
    Message,
    Reading,
    ResponseFormat,
    ToolCall,
    ToolChoice,
    Vocab,
    canonical_tool,
    encode,
    from_request,
    settle_results,
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
    call = {"id": "c", "function": {"name": "f"}}
    items = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": role, "content": content, "tool_call_id": "c"},
    ]
    field = next(name for name in part if name not in ("type", "detail"))
    where = f"messages[1].content[1].{field}"
    assert from_request({"messages": items}).messages[1].parts == (
        "a",
        MediaPart(*expected, param=where),
        "b",
    )


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


# What is said about a request (docs/decisions.md#r18 to #r22)


def read(body: dict[str, Any], **how: Any) -> tuple[Conversation, Reading]:
    reading = Reading(**how)
    return from_request({"messages": [USER], **body}, reading), reading


def calling(*ids: str | None, name: str = "f") -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": i, "function": {"name": name}} for i in ids]}


def result(call_id: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "r", **more}


@pytest.mark.parametrize(
    ("items", "at"),
    [
        ([USER, result("x")], 1),
        ([USER, result("x", name="f")], 1),
        ([calling("a"), result("x")], 1),
        ([calling("a"), result("a"), result("x", tool="f")], 2),
        ([calling("a.1", "a_1"), result("a:1")], 1),  # it could be either
        ([result("a"), calling("a")], 0),
    ],
)
def test_a_result_of_no_call_is_refused_by_its_id(items: list[Any], at: int) -> None:
    error = refusal({"messages": items})
    assert error.param == f"messages[{at}].tool_call_id"
    assert repr(items[at]["tool_call_id"]) in error.message


def test_calls_without_results_are_accepted_and_named() -> None:
    items = [USER, calling("a", "b"), result("b"), USER, calling("c"), {"role": "assistant", "content": "x"}]
    conversation, reading = read({"messages": items})
    assert [m.tool for m in conversation.messages if m.role == "tool"] == ["f"]
    assert reading.history == [
        "messages[1].tool_calls[0]: a call without its result (f (a))",
        "messages[4].tool_calls[0]: a call without its result (f (c))",
    ]
    with pytest.raises(ConversationError) as refused:
        read({"messages": items}, strict_history=True)
    assert refused.value.param == "messages[1].tool_calls[0]" and "'f (a)'" in refused.value.message


def test_results_have_the_name_of_their_own_call_wherever_it_stands() -> None:
    items = [
        calling("a", name="f"),
        calling("b", name="g"),
        result("b"),
        USER,
        result("a", name="g"),
        result("b"),
    ]
    conversation, _ = read({"messages": items})
    assert [m.tool for m in conversation.messages if m.role == "tool"] == ["g", "f", "g"]


def test_orphans_that_are_kept_stay_in_their_place_and_are_named(small_vocab: Vocab) -> None:
    """As in Responses and Messages, where trimmed histories begin with one."""
    call = ToolCall("a", "f", "{}")
    messages = (
        Message("tool", ("lost",), tool_call_id="x"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", ("other",), tool_call_id="y", tool="own"),
        Message("tool", ("mine",), tool_call_id="a"),
    )
    places = [f"input[{i}]" for i in range(4)]
    reading = Reading()
    settled = settle_results(messages, places, reading, keep_orphans=True)
    assert reading.history == [
        "input[0]: a result without its call (x)",
        "input[2]: a result without its call (y)",
    ]
    text = small_vocab.decode(encode(Conversation(settled), small_vocab).ids)
    parts = (
        'role="user"<|sep|>The result of an earlier tool call, x:\nlost',
        'role="tool" tool="own" index="1"<|sep|>other',
        'role="tool" tool="f" index="2"<|sep|>mine',
    )
    assert sorted(map(text.index, parts)) == [text.index(part) for part in parts]
    with pytest.raises(ConversationError, match="'x'") as refused:
        settle_results(messages, places, Reading(strict_history=True), keep_orphans=True)
    assert refused.value.param == "input[0]"


@pytest.mark.parametrize(
    "fields",
    [
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "th"},
                {"type": "reasoning.summary", "summary": "ink"},
            ]
        },
        {
            "reasoning_details": [
                {"type": "reasoning.encrypted", "data": "x"},
                {"type": "reasoning.text", "text": "think"},
            ]
        },
        {
            "thinking_blocks": [
                {"type": "thinking", "thinking": "think", "signature": "s"},
                {"type": "redacted_thinking"},
            ]
        },
        {"content": [{"type": "thinking", "thinking": "think"}, {"type": "text", "text": "answer"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "think"}]},
                {"type": "text", "text": "answer"},
            ]
        },
        {"content": [{"type": "reasoning", "text": "think"}, {"type": "text", "text": "answer"}]},
        {"reasoning": "think", "reasoning_details": [{"type": "reasoning.text", "text": "again"}]},
        {"reasoning_content": "", "thinking_blocks": [{"type": "thinking", "thinking": "think"}]},
    ],
)
def test_reasoning_of_other_gateways_is_the_turns_reasoning(fields: dict[str, Any]) -> None:
    conversation, _ = read({"messages": [{"role": "assistant", "content": "answer", **fields}, USER]})
    assert conversation.messages[0].reasoning == "think"
    assert conversation.messages[0].parts == ("answer",)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"reasoning_details": "x"}, ".reasoning_details"),
        ({"reasoning_details": ["x"]}, ".reasoning_details[0]"),
        ({"thinking_blocks": [{"thinking": 5}]}, ".thinking_blocks[0].thinking"),
        ({"content": [{"type": "thinking", "thinking": 5}]}, ".content[0].thinking"),
    ],
)
def test_wrong_reasoning_of_other_gateways_is_named(fields: dict[str, Any], where: str) -> None:
    assert refusal({"messages": [{"role": "assistant", **fields}]}).param == f"messages[0]{where}"


def test_fields_without_effect_and_unknown_ones_are_named_wherever_they_stand() -> None:
    url = {"type": "image_url", "image_url": {"url": "u", "px": 1}, "cache_control": {}}
    items = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "colour": 1}, url],
            "mood": "good",
            "id": None,
        },
        {"role": "assistant", "content": "b", "refusal": "no", "annotations": []},
    ]
    _, reading = read(
        {
            "messages": items,
            "tools": [{**tool("f", cache_control={}), "cache_control": {"type": "ephemeral"}}],
            "thinking": {"type": "enabled", "budget": 5},
            "reasoning": {"effort": "low", "exclude": True, "x": 1},
            "chat_template_kwargs": {"thinking": True, "y": 2},
        }
    )
    assert sorted(reading.unknown) == [
        "chat_template_kwargs.y",
        "messages[0].content[0].colour",
        "messages[0].content[1].image_url.px",
        "messages[0].mood",
        "reasoning.x",
        "thinking.budget",
    ]
    assert sorted(reading.ignored) == [
        "messages[0].content[1].cache_control",
        "messages[1].annotations",
        "messages[1].refusal",
        "reasoning.exclude",
        "tools[0].cache_control",
        "tools[0].function.cache_control",
    ]


def test_what_is_said_stays_short_however_much_there_is_to_say() -> None:
    _, reading = read({"messages": [{**USER, **{f"x{i}" * 500: i for i in range(1000)}}]})
    assert len(reading.unknown) < 100 and max(map(len, reading.unknown)) < 300


def test_a_cache_mark_on_a_tool_does_not_change_the_prompt(small_vocab: Vocab) -> None:
    marked = {**tool("f", description="d"), "cache_control": {"type": "ephemeral"}}
    marked["function"] = {**marked["function"], "cache_control": {"type": "ephemeral"}}
    for field in ("tools", "messages"):
        body = {"messages": [USER], "tools": [tool("f", description="d")]}
        other = {"messages": [USER], "tools": [marked]}
        if field == "messages":
            body["messages"] = [{"role": "system", "tools": body.pop("tools")}, USER]
            other["messages"] = [{"role": "system", "tools": other.pop("tools")}, USER]
        one, two = (encode(from_request(b), small_vocab).ids for b in (body, other))
        assert one == two


@pytest.mark.parametrize("strict", [None, False, True])
def test_one_tool_has_one_item_in_every_format(strict: bool | None) -> None:
    schema = {"type": "object", "properties": {}}
    sent = tool("f", description="d", parameters=schema, **({"strict": True} if strict else {}))
    assert (
        canonical_tool("f", "d", schema, strict)
        == sent
        == from_request({"messages": [USER], "tools": [sent]}).tools[0]
    )
    assert canonical_tool("f") == tool("f")


def test_builtin_tools_of_the_hosted_service_are_left_out() -> None:
    builtin = {"type": "builtin_function", "function": {"name": "$web_search"}}
    searched = {"role": "assistant", "tool_calls": [{"id": "a", **builtin}]}
    body = {
        "tools": [builtin, tool("f")],
        "web_search_options": {},
        "messages": [searched, result("a"), USER],
    }
    conversation, reading = read(body)
    assert conversation.tools == (tool("f"),)
    assert reading.ignored == ["web_search_options", "tools[0] ($web_search)"]
    for refused, param in (
        ({"tools": [builtin]}, "tools[0].type"),
        ({"web_search_options": {}}, "web_search_options"),
    ):
        with pytest.raises(ConversationError) as caught:
            read(refused, hosted_tools="refuse")
        assert caught.value.param == param
    with pytest.raises(ConversationError):
        read({"tools": [builtin], "tool_choice": "required"})


@pytest.mark.parametrize(
    "rest", [{"effort": "low"}, {"effort": "enormous"}, {"keep": "none"}, {"effort": 5, "keep": 7}]
)
def test_thinking_that_is_disabled_says_nothing_else(rest: dict[str, Any]) -> None:
    conversation, reading = read({"thinking": {"type": "disabled", **rest}})
    assert (conversation.thinking, conversation.effort) == (False, None)
    assert reading.ignored == [f"thinking.{name}" for name in rest]


def test_strict_null_is_strict_by_default() -> None:
    given = {"name": "o", "schema": {}, "strict": None}
    conversation, _ = read({"response_format": {"type": "json_schema", "json_schema": given}})
    assert conversation.response_format == ResponseFormat("json_schema", {}, True)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_does_not_have_are_refused_in_schemas(small_vocab: Vocab, number: float) -> None:
    schema = {"enum": [number]}
    wanted = {"type": "json_schema", "json_schema": {"name": "o", "schema": schema}}
    dynamic = {"role": "system", "tools": [tool("g", parameters=schema)]}
    for body, param in (
        ({"tools": [tool("f"), tool("g", parameters=schema)]}, "tools[1]"),
        ({"messages": [USER, dynamic]}, "messages[1].tools[0]"),
        ({"response_format": wanted}, "response_format.json_schema.schema"),
    ):
        with pytest.raises(ConversationError) as refused:
            encode(from_request({"messages": [USER], **body}), small_vocab)
        assert refused.value.param == param
