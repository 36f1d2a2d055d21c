"""Bodies are parsed in steps: the same as by an ordinary parser, refused within limits, named in full."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.parsing import SMALL, BodyLimits, check_model, parse_body
from gateway.schema.chat import ChatRequest
from gateway.xtml import from_request
from tests.api.conftest import Server, chat_body
from tests.scripted import Script

LIMITS = BodyLimits()
USER = {"role": "user", "content": "hi"}
WALKED = ["x, [" * 15_000] * 20  # too much for one step, and no string of it long enough to be lifted out


def refusal(data: bytes, limits: BodyLimits = LIMITS) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as refused:
        parse_body(data, limits)
    return refused.value


def whole(text: str) -> str:
    """As a parser of UTF-8 sees text with halves of surrogate pairs."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


texts = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ['"', "\\", "\\" * 7, '\\"', "😀", "\x00", "é", "lifted-0", "\\ud83d"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=100, deadline=None)
@given(
    body=st.dictionaries(texts | st.sampled_from(["messages", "tools", "input"]), values, max_size=5),
    ascii_only=st.booleans(),
    filler=st.sampled_from(["lifted", "escaped", "many"]),
    data=st.data(),
)
def test_a_long_body_is_read_as_by_any_parser(
    body: dict[str, Any], ascii_only: bool, filler: str, data: Any
) -> None:
    """Long by a string that is lifted out, by one with escapes, or by so much that it is walked through."""
    if filler == "many":
        body["input"] = [{"role": "user", "content": [{"text": "a, b"}]}] * 3 + [data.draw(values)]
        body["other"] = WALKED
    else:
        piece = "data:x;base64," + "A" * 100 if filler == "lifted" else '\\"😀\\\\\u0000é'
        body["long"] = [piece * (SMALL // len(piece) + 7), data.draw(values)]
    sent = json.dumps(body, ensure_ascii=ascii_only).encode()
    assert len(sent) > SMALL
    assert parse_body(bytearray(sent), BodyLimits(max_parts=10**6)) == json.loads(sent)


@pytest.mark.parametrize("size", ["short", "lifted", "walked"])
def test_half_an_emoji_anywhere_is_the_replacement_character(size: str) -> None:
    half = {"\ud83d": "\ude00\ud83d", "b": ["a\ud83db", {"c": "\ud83d\ude00\ud83d"}, "\\ud83d", "\\\\\ud83d"]}
    body: dict[str, Any] = {**half, "messages": [{"role": "user", "content": "half \ud83d"}]}
    if size == "lifted":
        body["messages"].append({"role": "user", "content": "\ud83d" + "\ud83d\ude00\ud83d" * SMALL})
    if size == "walked":
        body["other"] = WALKED
        body["messages"] *= 9000
    text = json.dumps(body)
    expected = json.loads(whole(json.dumps(body, ensure_ascii=False)))
    assert parse_body(text.encode(), LIMITS) == expected
    assert "\ufffd" in expected and expected["b"][2] == "\\ud83d"


def test_half_an_emoji_in_a_command_file_and_over_http_is_the_same() -> None:
    text = json.dumps({"messages": [{"role": "user", "content": "a\ud83d"}]})
    assert from_request(parse_body(text.encode(), LIMITS)).messages[0].parts == ("a\ufffd",)


async def test_a_chat_with_half_an_emoji_goes_on(server: Server, vocab: Any) -> None:
    async with server(Script([1])) as live:
        text = json.dumps(chat_body(messages=[{"role": "user", "content": "a\ud83d"}])).encode()
        counted = await live.http.post("/v1/tokenizers/estimate-token-count", content=text)
        other = chat_body(messages=[{"role": "user", "content": "a\ufffd"}])
        again = await live.http.post("/v1/tokenizers/estimate-token-count", json=other)
    assert counted.status_code == 200 and counted.json() == again.json()


@pytest.mark.parametrize("where", ["short", "long"])
@pytest.mark.parametrize(
    ("text", "param", "said"),
    [
        ("", None, "not valid JSON"),
        ("{", None, "not valid JSON"),
        ('{"a": 1,}', None, "not valid JSON"),
        ('{"a": "\x01"}', None, "not valid JSON"),
        ("[1]", None, "must be a JSON object"),
        ('"x"', None, "must be a JSON object"),
        ("[" * 3000, None, "too deeply"),
        ('{"a": {"b": [1, 1e999]}}', "a.b[1]", "not a number"),
        ('{"a": [{"b": NaN}]}', "a[0].b", "not a number"),
        ('{"a": -Infinity}', "a", "not a number"),
    ],
)
def test_what_is_wrong_with_the_json_is_said(text: str, param: str | None, said: str, where: str) -> None:
    data = text.encode()
    error = refusal(data if where == "short" else b" " * SMALL + data)
    assert said in error.message and error.param == param


def test_text_that_is_not_utf8_is_refused() -> None:
    for data in (b'{"a": "\xff"}', b'{"a": "' + b"x" * SMALL + b'\xff"}'):
        assert "UTF-8" in refusal(data).message


@pytest.mark.parametrize(
    ("body", "param", "setting"),
    [
        ({"messages": [USER] * 11}, "messages", "max_messages"),
        ({"input": [USER] * 11}, "input", "max_messages"),
        ({"messages": [{"role": "user", "content": [{}] * 4}] * 3}, "messages[2]", "max_parts"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}] * 11}]}, "messages[0]", "max_parts"),
        ({"tools": [{}] * 11}, "tools", "max_tools"),
        ({"messages": [{"role": "system", "tools": [{}] * 6}] * 2}, "tools", "max_tools"),
        ({"tools": [{"type": "namespace", "tools": [{}] * 10}]}, "tools", "max_tools"),
    ],
)
@pytest.mark.parametrize("long", [False, True])
def test_more_than_a_limit_is_refused_by_its_name(
    body: dict[str, Any], param: str, setting: str, long: bool
) -> None:
    limits = BodyLimits(max_messages=10, max_parts=10, max_tools=10)
    data = json.dumps({**body, **({"long": WALKED} if long else {})}).encode()
    error = refusal(data, limits)
    assert (error.param, error.code) == (param, "request_too_large")
    assert setting in error.message and "10" in error.message


HUGE: dict[str, tuple[bytes, str]] = {
    "a million messages": (
        b'{"messages":[' + b",".join([b'{"role":"user","content":"a"}'] * 10**6) + b"]}",
        "max_messages",
    ),
    "a million parts": (
        b'{"messages":[{"role":"user","content":['
        + b",".join([b'{"type":"text","text":"a"}'] * 10**6)
        + b"]}]}",
        "max_parts",
    ),
    "a million unknown keys": (
        b'{"messages":[],' + b",".join(b'"k%d":1' % i for i in range(10**6)) + b"}",
        "strings",
    ),
    "20 MB of one tool": (
        b'{"tools":[{"type":"function","function":{"name":"f","parameters":{"enum":['
        + b",".join([b'"abcdefg"'] * 2 * 10**6)
        + b"]}}}]}",
        "strings",
    ),
    "128 MB of text": (
        b'{"messages":[{"role":"user","content":"' + b"hello world " * 11_000_000 + b'"}]}',
        "MiB",
    ),
    "8 million brackets": (b'{"a":' + b"[" * 4_000_000 + b"]" * 4_000_000 + b"}", "too deeply"),
    "5 million numbers": (b'{"a":[' + b"1," * 5_000_000 + b"1]}", "values"),
    "60 MB of backslashes": (b'{"a":"' + b"\\" * 60_000_000 + b'"}', "MiB"),
}


@pytest.mark.parametrize("what", HUGE)
def test_what_is_huge_is_refused_before_it_is_made(what: str) -> None:
    data, said = HUGE[what]
    assert said in refusal(bytearray(data)).message


def test_pictures_are_not_text_and_may_be_large() -> None:
    url = "data:image/png;base64," + "A" * 40_000_000
    parts = [{"type": "image_url", "image_url": {"url": url}}] * 2
    body = {"messages": [{"role": "user", "content": parts}]}
    assert parse_body(json.dumps(body).encode(), LIMITS) == body


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"stream_options": {"include_usage": 5}}, "stream_options.include_usage", "true or false"),
        ({"stream_options": 5}, "stream_options", "an object"),
        ({"logit_bias": {"5": "x"}}, "logit_bias.5", "a number"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5", "less than or equal to 100"),
        ({"stop": ["a", 5]}, "stop[1]", "a string"),
        ({"stop": 5}, "stop", "a string or an array of strings"),
        ({"tool_choice": 5}, "tool_choice", "a string or an object"),
        ({"modalities": [5]}, "modalities[0]", "a string"),
        ({"top_k": 2**63}, "top_k", "less than"),
        ({"top_k": 10**5000}, "top_k", ""),
        ({"priority": 2**64}, "priority", "less than"),
        ({"n": 1.5}, "n", "an integer"),
        ({"model": None}, "model", "a string"),
    ],
)
def test_a_wrong_type_is_named_by_its_whole_path_and_the_right_one(
    fields: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_model(ChatRequest, chat_body(**fields))
    assert refused.value.param == param and said in refused.value.message


def test_errors_of_many_wrong_items_are_not_collected() -> None:
    """Each would be a dictionary: of a hundred thousand they are a second's work."""
    for fields in ({"stop": [5] * 10**5}, {"logit_bias": {str(i): "x" for i in range(10**5)}}):
        with pytest.raises(InvalidRequest):
            check_model(ChatRequest, chat_body(**fields))
