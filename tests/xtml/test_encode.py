"""Prompts against the golden ones (docs/format.md#examples), and the rules that these do not show."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.xtml import (
    Conversation,
    ConversationError,
    MediaPart,
    MediaPrompt,
    MediaSlot,
    MediaSpan,
    Message,
    Prompt,
    RenderCache,
    ToolCall,
    Vocab,
    encode,
    encode_assistant,
    from_request,
)
from gateway.xtml.values import Argument, RawArguments, read_arguments
from tests.xtml.golden_prompts import FOLDER, INDEX, Golden, goldens, readable

GOLDENS = list(goldens())
PICTURE = MediaPrompt((MediaSpan("", "image 640x480", 1),), "a picture")


def rendered(vocab: Vocab, *messages: dict[str, Any], **fields: Any) -> str:
    """Marked text of a prompt without the effort note."""
    conversation = replace(from_request({"messages": list(messages), **fields}), effort=None)
    return vocab.decode(encode(conversation, vocab).ids)


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_golden_prompt_renders_as_written(golden: Golden, small_vocab: Vocab) -> None:
    assert readable(golden.render(small_vocab), small_vocab) == golden.text


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_golden_prompt_has_its_ids_in_the_real_vocabulary(golden: Golden, real_vocab: Vocab) -> None:
    """The counts and ids of the first thirteen are not this project's own."""
    prompt = golden.render(real_vocab)
    assert readable(prompt, real_vocab) == golden.text
    assert (len(prompt.ids), prompt.n_hosted) == (golden.facts["n_tokens"], golden.facts["prompt_tokens"])
    assert prompt.ids == golden.facts.get("ids", prompt.ids)


def test_every_golden_prompt_is_in_the_index_and_in_the_document() -> None:
    names = {golden.name for golden in GOLDENS}
    assert {path.stem for path in FOLDER.iterdir() if path.suffix != ".json"} == names
    assert {path.stem for path in FOLDER.glob("*.json")} == names | {INDEX.stem}
    document = (Path(__file__).resolve().parents[2] / "docs/format.md").read_text()
    assert not [name for name in names if f"| `{name}` | " not in document]


def test_merges_do_not_cross_segments(real_vocab: Vocab) -> None:
    call = ToolCall("1", "get weather!", {"  spaced  ": ""})
    ids = encode_assistant(Message("assistant", tool_calls=(call,)), real_vocab)
    for segments in (
        [" tool", '="', "get weather!", '"', " index", '="', "1", '"'],
        [" key", '="', "  spaced  ", '"', " type", '="', "string", '"'],
    ):
        apart = [token for segment in segments for token in real_vocab.encode(segment)]
        joined = real_vocab.encode("".join(segments))
        assert apart != joined  # else this example would show nothing (docs/format.md#segments)
        assert contains(ids, apart) and not contains(ids, joined)


def contains(ids: list[int], part: list[int]) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


def test_sections_cover_the_prompt_and_name_their_fields(small_vocab: Vocab) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    later = {"type": "function", "function": {"name": "g"}}
    prompt = encode(
        from_request(
            {
                "messages": [{"role": "user", "content": "a"}, {"role": "system", "tools": [later]}],
                "tools": [tool],
                "tool_choice": "required",
                "response_format": {"type": "json_object"},
            }
        ),
        small_vocab,
    )
    assert [(s.kind, s.path) for s in prompt.sections] == [
        ("tools", "tools"),
        ("effort", "reasoning_effort"),
        ("message", "messages[0]"),
        ("tools", "messages[1]"),
        ("tool_choice", "tool_choice"),
        ("response_format", "response_format"),
        ("generation", ""),
    ]
    borders = [0, *(s.end for s in prompt.sections)]
    assert [s.start for s in prompt.sections] == borders[:-1]
    assert borders[-1] == len(prompt.ids)


def test_digest_changes_with_the_section_only(small_vocab: Vocab) -> None:
    def prompt(second: str) -> Prompt:
        return encode(Conversation((Message("user", ("a",)), Message("user", (second,)))), small_vocab)

    first, other = prompt("b"), prompt("c")
    same = [a.digest == b.digest for a, b in zip(first.sections, other.sections, strict=True)]
    assert same == [True, True, False, True]


@pytest.mark.parametrize("order", [1, -1])
def test_a_digest_is_of_the_ids_and_not_of_the_spelling(real_vocab: Vocab, order: int) -> None:
    """Each part is a segment of its own, so the ids may differ where the text is the same."""
    cache = RenderCache()
    found = []
    for parts in [("hello", " world"), ("hello world",), ("hel", "lo world"), ("", "hello world")][::order]:
        prompt = encode(Conversation((Message("user", parts),)), real_vocab, cache=cache)
        assert prompt.ids == encode(Conversation((Message("user", parts),)), real_vocab).ids
        found.append((tuple(prompt.ids), prompt.sections[1].digest))
    assert len(set(found)) == len({ids for ids, _ in found}) == len({digest for _, digest in found}) > 1


def test_arguments_that_are_written_alike_have_one_digest(small_vocab: Vocab) -> None:
    def digest(arguments: Any) -> str:
        message = Message("assistant", tool_calls=(ToolCall("a", "f", arguments),))
        return encode(Conversation((message,)), small_vocab).sections[1].digest

    spelled = ['{"a": 1, "b": "x"}', ' {"a":1,"b":"\\u0078"}', {"a": 1, "b": "x"}]
    assert len({digest(arguments) for arguments in spelled}) == 1
    assert digest('{"a": 1.0, "b": "x"}') != digest(spelled[0])


def test_developer_is_system(small_vocab: Vocab) -> None:
    assert '<|open|>message role="system"<|sep|>x<|close|>' in rendered(
        small_vocab, {"role": "developer", "content": "x"}
    )


@pytest.mark.parametrize("reasoning", [" \n", " a ", "a\n"])
def test_reasoning_is_rendered_as_it_is(small_vocab: Vocab, reasoning: str) -> None:
    text = rendered(small_vocab, {"role": "assistant", "content": "b", "reasoning_content": reasoning})
    assert f"<|open|>think<|sep|>{reasoning}<|close|>think<|sep|>" in text


def test_reasoning_content_comes_before_reasoning_unless_empty(small_vocab: Vocab) -> None:
    both = {"role": "assistant", "content": "", "reasoning_content": "one", "reasoning": "two"}
    assert "one" in rendered(small_vocab, both) and "two" not in rendered(small_vocab, both)
    assert "two" in rendered(small_vocab, {**both, "reasoning_content": ""})


def test_thinking_off_drops_the_reasoning_of_the_history(small_vocab: Vocab) -> None:
    message = {"role": "assistant", "content": "b", "reasoning_content": "secret"}
    text = rendered(small_vocab, message, thinking={"type": "disabled"})
    assert text.startswith('<|open|>message role="assistant"<|sep|><|open|>response<|sep|>b<|close|>')
    assert text.endswith('<|open|>message role="assistant"<|sep|><|open|>response<|sep|>')


def test_tools_channel_needs_no_content(small_vocab: Vocab) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}
    text = rendered(small_vocab, {"role": "assistant", "content": None, "tool_calls": [call]})
    assert "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>" in text


def test_declared_tools_keep_what_the_client_sent_and_nothing_more(small_vocab: Vocab) -> None:
    function = {"strict": False, "name": "f", "parameters": {"b": [{"z": 1, "a": 2}], "a": "ä"}}
    tool = {"type": "function", "function": function}
    text = rendered(small_vocab, {"role": "user", "content": "q"}, tools=[tool])
    shown = '{"name":"f","parameters":{"a":"ä","b":[{"a":2,"z":1}]},"strict":false}'
    assert f'[{{"function":{shown},"type":"function"}}]' in text


def test_named_tool_choice_leaves_the_prompt_as_it_is(small_vocab: Vocab) -> None:
    user = {"role": "user", "content": "q"}
    tools = [{"type": "function", "function": {"name": "f"}}]
    named = {"type": "function", "function": {"name": "f"}}
    assert rendered(small_vocab, user, tools=tools, tool_choice=named) == rendered(
        small_vocab, user, tools=tools
    )


# Partial messages (docs/format.md#partial)


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({"content": "inc"}, '"<|sep|><|open|>response<|sep|>inc'),
        ({"content": "", "reasoning_content": "r"}, '"<|sep|><|open|>think<|sep|>r'),
        ({"reasoning_content": "r"}, '"<|sep|><|open|>think<|sep|>r'),
        (
            {"content": "inc", "reasoning_content": "r"},
            '"<|sep|><|open|>think<|sep|>r<|close|>think<|sep|><|open|>response<|sep|>inc',
        ),
        ({"content": "inc", "name": "n"}, ' name="n"<|sep|><|open|>response<|sep|>inc'),
    ],
)
def test_partial_message_is_left_open(small_vocab: Vocab, fields: dict[str, Any], ending: str) -> None:
    request = {
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "partial": True, **fields}],
        "response_format": {"type": "json_object"},
    }
    prompt = encode(from_request(request), small_vocab)
    text = small_vocab.decode(prompt.ids)
    assert text.endswith(ending)
    assert text.index("response-format") < text.rindex('<|open|>message role="assistant"')
    assert prompt.n_hosted == len(prompt.ids)
    assert (prompt.sections[-1].kind, prompt.sections[-1].path) == ("generation", "messages[1]")


# Tool results (docs/format.md#tool-results)


def call(call_id: str | None, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def result(call_id: str, content: str, **more: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def tool_headers(vocab: Vocab, *messages: dict[str, Any]) -> list[str]:
    """`tool index body` of every rendered tool message."""
    found = rendered(vocab, *messages).split('<|open|>message role="tool"')[1:]
    return [text.split("<|close|>")[0].replace("<|sep|>", " ").strip() for text in found]


def test_result_of_the_second_call_alone_has_index_1(small_vocab: Vocab) -> None:
    calls = {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g")]}
    assert tool_headers(small_vocab, calls, result("b", "r")) == ['tool="g" index="1" r']


def test_matched_results_take_the_name_of_their_call(small_vocab: Vocab) -> None:
    calls = {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g")]}
    headers = tool_headers(small_vocab, calls, result("b", "2", name="x"), result("a", "1", tool="y"))
    assert headers == ['tool="f" index="1" 1', 'tool="g" index="2" 2']


def test_first_of_repeated_call_ids_wins_and_equal_results_keep_their_order(small_vocab: Vocab) -> None:
    calls = {"role": "assistant", "tool_calls": [call("a", "f"), call("a", "g")]}
    headers = tool_headers(small_vocab, calls, result("a", "1"), result("a", "2"))
    assert headers == ['tool="f" index="1" 1', 'tool="f" index="2" 2']


def test_results_are_numbered_anew_after_each_assistant_message(small_vocab: Vocab) -> None:
    one = {"role": "assistant", "tool_calls": [call("a", "f")]}
    two = {"role": "assistant", "tool_calls": [call("b", "g")]}
    assert tool_headers(small_vocab, one, result("a", "1"), two, result("b", "2")) == [
        'tool="f" index="1" 1',
        'tool="g" index="1" 2',
    ]


@pytest.mark.parametrize(
    ("call_id", "result_id"),
    [
        ("functions.f:0", "f:0"),
        ("f:0", "functions.f:0"),
        ("functions.f:0", "functions_f_0"),
        (None, "functions.f:0"),
        (None, "f:0"),
    ],
)
def test_respelled_call_ids_still_match(small_vocab: Vocab, call_id: str | None, result_id: str) -> None:
    calls = {"role": "assistant", "tool_calls": [call(call_id, "f"), call("other", "g")]}
    headers = tool_headers(small_vocab, calls, result("other", "2"), result(result_id, "1"))
    assert headers == ['tool="f" index="1" 1', 'tool="g" index="2" 2']


def test_a_result_without_its_call_has_its_own_name_or_none(small_vocab: Vocab) -> None:
    calls = Message("assistant", tool_calls=(ToolCall("a", "f", None), ToolCall("b", "g", None)))
    own = Message("tool", ("r",), tool_call_id="x", name="own")
    known = Message("tool", ("s",), tool_call_id="b")
    text = small_vocab.decode(encode(Conversation((calls, own, known)), small_vocab).ids)
    assert text.index('tool="own" index="1"<|sep|>r') < text.index('tool="g" index="2"<|sep|>s')
    with pytest.raises(ConversationError) as caught:
        encode(Conversation((calls, Message("tool", ("r",), tool_call_id="x"))), small_vocab)
    assert caught.value.param == "messages[1].tool_call_id"


# Media (docs/format.md#parts)


def picture(n: int) -> MediaPrompt:
    return MediaPrompt((MediaSpan("", f"image {n}x1", n),), f"digest {n}")


def test_media_stand_in_their_place_without_separators(small_vocab: Vocab) -> None:
    image, video = MediaPart("image", "x"), MediaPart("video", "y")
    clip = MediaPrompt((MediaSpan("00:00:00.000", "video", 2), MediaSpan("00:00:00.500", "video", 3)), "clip")
    conversation = Conversation((Message("user", ("A:", image, "B:", video, image)),), effort=None)
    prompt = encode(conversation, small_vocab, [picture(4), clip, picture(1)])
    pad = "<|media_pad|>"
    assert (
        f"A:<|media_begin|>image 4x1<|media_content|>{pad * 4}<|media_end|>B:"
        f"00:00:00.000<|media_begin|>video<|media_content|>{pad * 2}<|media_end|>"
        f"00:00:00.500<|media_begin|>video<|media_content|>{pad * 3}<|media_end|>"
        f"<|media_begin|>image 1x1<|media_content|>{pad}<|media_end|><|close|>"
    ) in small_vocab.decode(prompt.ids)
    assert [(s.part, s.span, s.n_tokens) for s in prompt.media] == [
        (0, 0, 4),
        (1, 0, 2),
        (1, 1, 3),
        (2, 0, 1),
    ]
    assert_slots_are_exactly_the_pads(prompt, small_vocab)


def test_slots_of_reordered_tool_results_point_at_their_own_picture(small_vocab: Vocab) -> None:
    calls = Message("assistant", tool_calls=(ToolCall("a", "f", None), ToolCall("b", "g", None)))
    shot = MediaPart("image", "x")
    results = (Message("tool", (shot,), tool_call_id="b"), Message("tool", (shot,), tool_call_id="a"))
    system = Message("system", (shot,))
    prompt = encode(
        Conversation((system, calls, *results)), small_vocab, [picture(5), picture(2), picture(3)]
    )
    assert [(s.part, s.n_tokens) for s in prompt.media] == [(0, 5), (2, 3), (1, 2)]
    assert_slots_are_exactly_the_pads(prompt, small_vocab)


def assert_slots_are_exactly_the_pads(prompt: Prompt, vocab: Vocab) -> None:
    covered = [i for s in prompt.media for i in range(s.offset, s.offset + s.n_tokens)]
    assert covered == [i for i, token in enumerate(prompt.ids) if token == vocab.media_pad]


def test_media_ids_are_those_of_the_spec(real_vocab: Vocab) -> None:
    frame = MediaPrompt((MediaSpan("00:00:00.500", "video", 1),), "clip")
    parts = (MediaPart("image", "x"), MediaPart("video", "y"))
    prompt = encode(Conversation((Message("user", parts),), effort=None), real_vocab, [PICTURE, frame])
    start = prompt.media[0].offset - 7
    picture_ids = [163602, 4017, 220, 24057, 87, 19665, 163603, 163605, 163604]
    frame_ids = [465, 25, 465, 25, 465, 13, 3668, 163602, 22782, 163603, 163605, 163604]
    assert prompt.ids[start : start + 21] == picture_ids + frame_ids
    assert prompt.media[0] == MediaSlot(0, 0, start + 7, 1)


def test_equal_sizes_of_different_pictures_have_different_digests(small_vocab: Vocab) -> None:
    def digest(identity: str) -> str:
        prompt = MediaPrompt((MediaSpan("", "image 1x1", 1),), identity)
        message = Message("user", (MediaPart("image", "x"),))
        return encode(Conversation((message,)), small_vocab, [prompt]).sections[1].digest

    assert digest("red") != digest("blue")


def test_media_that_do_not_fit_the_conversation_are_refused(small_vocab: Vocab) -> None:
    with pytest.raises(ValueError, match="1 pictures and clips, 2 were given"):
        encode(Conversation((Message("user", (MediaPart("image", "x"),)),)), small_vocab, [PICTURE, PICTURE])


# Arguments (docs/format.md#arguments)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1e2, "b":1.50}', [("a", "number", "1e2"), ("b", "number", "1.50")]),
        (' \n{ "a" : [1,\t2] , "o":{ "k":1 } }', [("a", "array", "[1,\t2]"), ("o", "object", '{ "k":1 }')]),
        ('{"a":1,"a":2}', [("a", "number", "1"), ("a", "number", "2")]),
        ('{"a":"\\u00e4\\n\\ud83d\\ude00"}', [("a", "string", "ä\n😀")]),
        ('{"a":1} and more', [("a", "number", "1")]),
        (
            '{"a":-0, "t":true, "n":null}',
            [("a", "number", "-0"), ("t", "boolean", "true"), ("n", "null", "null")],
        ),
        ('{"a":' + "1" * 5000 + "}", [("a", "number", "1" * 5000)]),
        ("{}", []),
        ("{ }", []),
        ('{"":""}', [("", "string", "")]),
    ],
)
def test_arguments_keep_their_literals(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [(a.key, a.type, a.text) for a in tags(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "   ",
        '{"a": 1',
        '{"a": 1,}',
        "[1]",
        "3",
        '"s"',
        "nonsense",
        "{a:1}",
        "{'a':1}",
        '{"a" 1}',
        '{"a":"\n"}',
        '{"a":01x}',
        '{"a":' + "[" * 100_000,
    ],
)
def test_arguments_that_are_no_object_become_one_raw_block(text: str) -> None:
    assert read_arguments(text) == RawArguments(text)


def tags(arguments: str | dict[str, Any]) -> list[Argument]:
    found = read_arguments(arguments)
    assert not isinstance(found, RawArguments)
    return list(found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=5), st.sampled_from([None, 2]), st.booleans())
def test_arguments_as_text_and_as_object_say_the_same(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    """Every value read back from its tag is the value that went in, whichever way JSON was written."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for arguments in (text, value):
        found = {
            tag.key: tag.text if tag.type == "string" else json.loads(tag.text) for tag in tags(arguments)
        }
        assert found == value
        assert list(found) == list(value)
    assert [tag.type for tag in tags(text)] == [tag.type for tag in tags(value)]


@given(st.text(alphabet='{}[]",:\\ 1a\n', max_size=30))
def test_any_text_as_arguments_is_split_or_kept_whole(text: str) -> None:
    """Agrees with Python's JSON parser on what begins with an object."""
    try:
        parsed = json.JSONDecoder().raw_decode(text.lstrip(" \t\n\r"))[0]
    except ValueError:
        parsed = None
    found = read_arguments(text)
    if isinstance(parsed, dict):
        assert not isinstance(found, RawArguments) and {tag.key for tag in found} == set(parsed)
    else:
        assert found == (RawArguments(text) if text else ())


def test_arguments_that_nest_too_deeply_are_refused(small_vocab: Vocab) -> None:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": value}}]}
    with pytest.raises(ConversationError, match="nest too deeply") as caught:
        rendered(small_vocab, message)
    assert caught.value.param == "messages[0].tool_calls"


def test_integers_of_any_size_are_rendered(small_vocab: Vocab) -> None:
    big = 10**4000
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"n": big}}}]}
    assert f'type="number"<|sep|>{big}<|close|>' in rendered(small_vocab, message)
    message["tool_calls"][0]["function"]["arguments"]["n"] = big**2
    with pytest.raises(ConversationError, match="cannot be written as JSON"):
        rendered(small_vocab, message)


# Completions as the prompt of the next turn


@pytest.mark.parametrize("thinking", [True, False])
def test_completion_of_a_message_continues_the_prompt(small_vocab: Vocab, thinking: bool) -> None:
    message = Message(
        "assistant",
        ("text ",),
        reasoning=" because\n",
        tool_calls=(ToolCall("a", "f", '{"x":1.0}'), ToolCall("b", "g", "cut {")),
    )
    before = Conversation((Message("user", ("q",)),), thinking=thinking)
    after = replace(before, messages=(*before.messages, message))
    replayed = encode(before, small_vocab).ids + encode_assistant(message, small_vocab, thinking=thinking)
    assert encode(after, small_vocab).ids[: len(replayed)] == replayed


@given(st.text())
def test_any_text_can_be_encoded(small_vocab: Vocab, text: str) -> None:
    ids = encode(Conversation((Message("user", (text,)),), effort=None), small_vocab).ids
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert f'role="user"<|sep|>{expected}<|close|>' in small_vocab.decode(ids)


def test_lone_surrogates_become_replacement_characters(small_vocab: Vocab) -> None:
    text = rendered(small_vocab, {"role": "user", "content": "a\ud800b"})
    assert "a\ufffdb" in text
