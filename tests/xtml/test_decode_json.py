"""Whatever JSON the model writes, in values, keys and blocks: nothing raises (docs/decisions.md#r1, #r5).

Every call that is not marked as broken has arguments that strict readers take.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.xtml import Vocab
from tests.xtml.completions import (
    AC,
    CC,
    END,
    TC,
    XC,
    XO,
    Decoded,
    Spelled,
    argument,
    call_opener,
    decode,
    to_ids,
)
from tests.xtml.random_ids import TOOLS
from tests.xtml.stream_client import Assembled

ODD = [
    '"\\ud83d"',
    '"\\ude42\\ud83d"',
    "9" * 5000,
    "-1e999",
    "NaN",
    '"\x00\n\x1f"',
    '"\\u0000"',
    "True",
    "None",
]
ODD += [
    "[" * 1000 + "]" * 1000,
    '{"a":' * 1000 + "1" + "}" * 1000,
    '"\\d"',
    '"',
    "\\",
    "{",
    '"\\u12"',
    "\ufffe",
]
KEYS = ["s", "n", "o", "x", "\\ud83d", "\\u0000", "a\nb", 'q\\"', "\\d", "", "9" * 50]

odd = st.sampled_from(ODD)
values = odd | st.builds(
    lambda kind, parts: (
        "[" + ",".join(parts) + "]" if kind else "{" + ",".join(f'"{p[:3]}":{p}' for p in parts) + "}"
    ),
    st.booleans(),
    st.lists(odd | st.text(max_size=5), max_size=3),
)
types = st.sampled_from(["string", "number", "object", "boolean", "null", "odd"])
attributes = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(KEYS)
blocks = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=4).map(
    lambda members: "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"
)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def check(vocab: Vocab, *body: str) -> None:
    parts = ["r", TC, XO, call_opener("f"), *body, CC, XC, END]
    ids = to_ids(vocab, *parts)
    for size in (0, 1, 5):
        got = Decoded(vocab, ids, size=size, tools=TOOLS)
        client = Assembled(got.events, got.finish_reason)
        assert client.calls == [(c.id, c.name, c.arguments) for c in got.reply.tool_calls]
        for call in got.reply.tool_calls:
            msgspec.json.encode({"arguments": call.arguments})
            if call.valid_arguments:
                value = json.loads(call.arguments)
                assert isinstance(value, dict)
                assert msgspec.json.decode(call.arguments.encode()) == value
        for part in got.reply.unparsed:
            msgspec.json.encode(part)


def fuzz(n: int) -> Any:
    return settings(max_examples=n, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@fuzz(150)
@given(arguments=st.lists(st.tuples(attributes, types, values | st.text(max_size=9)), min_size=1, max_size=4))
def test_values_and_keys_of_tags(small_vocab: Vocab, arguments: list[tuple[str, str, str]]) -> None:
    body: list[str] = []
    for key, type_, value in arguments:
        header = f'argument key="{escaped(key)}" type="{type_}"'
        body += ["<|open|>", Spelled(header), "<|sep|>", Spelled(value), AC]
    check(small_vocab, *body)


@fuzz(150)
@given(block=blocks | values | st.text(max_size=9), bare=st.booleans(), tag=st.booleans())
def test_blocks_and_bare_bodies(small_vocab: Vocab, block: str, bare: bool, tag: bool) -> None:
    opener, closer = ("", "") if bare else ("<|open|>json<|sep|>", "<|close|>json<|sep|>")
    check(small_vocab, *[argument("s", "v")] * tag, opener, Spelled(block), closer)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_much_more_of_both(small_vocab: Vocab, seed: int) -> None:
    @settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False)
    @given(block=blocks, value=values, type_=types, key=attributes)
    def run(block: str, value: str, type_: str, key: str) -> None:
        check(small_vocab, "<|open|>json<|sep|>", Spelled(block))
        header = f'argument key="{escaped(key)}" type="{type_}"'
        check(small_vocab, "<|open|>", Spelled(header), "<|sep|>", Spelled(value))

    run()


# One value, written in each of the four ways, and what it becomes by the schema.
SCHEMA_TYPES = {"s": "string", "i": "integer", "b": "boolean", "o": "object", "a": "array", "z": "null"}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"properties": {key: {"type": type_} for key, type_ in SCHEMA_TYPES.items()}},
    },
}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("o", '{"msg":"line1\nline2"}', '{"msg":"line1\\nline2"}'),
        ("o", '{"k":True,"k":2}', '{"k":true}'),
        ("o", '{"re":"\\d"}', '{"re":"\\\\d"}'),
        ("a", "[None, 1e999]", '[null, "1e999"]'),
        ("b", "True", "true"),
        ("b", "false", "false"),
        ("i", "200", "200"),
        ("i", "2e2", "2e2"),
        ("z", "None", "null"),
        ("unknown", '{"a": 1e2}', '{"a": 1e2}'),
    ],
)
@pytest.mark.parametrize("way", ["tag", "string tag", "block", "string in a block", "bare"])
def test_one_repair_however_it_was_written(
    small_vocab: Vocab, key: str, value: str, expected: str, way: str
) -> None:
    """R5"""
    if key == "unknown" and way.startswith("string"):
        expected = json.dumps(value)  # nothing says that it is not a string
    block = f'{{"{key}":{value}}}'
    match way:
        case "tag":
            body = argument(key, value, "object")
        case "string tag":
            body = argument(key, value)
        case "block":
            body = f"<|open|>json<|sep|>{block}<|close|>json<|sep|>"
        case "string in a block":
            body = f"<|open|>json<|sep|>{json.dumps({key: value})}<|close|>json<|sep|>"
        case _:
            body = block
    got = decode(small_vocab, "r", TC, XO, call_opener("f"), body, CC, XC, END, tools=[TOOL])
    [call] = got.reply.tool_calls
    assert json.loads(call.arguments) == {key: json.loads(expected)}
    assert "type_mismatch" not in got.repairs
    if way == "tag":
        assert call.arguments == f'{{"{key}":{expected}}}'


@pytest.mark.parametrize(
    ("block", "arguments"),
    [
        ('{"i": "5", "s": 7 }', '{"i":5,"s":"7"}'),
        ('{"s": "a", "s": "b", "i": 1}', '{"s": "a", "i": 1}'),
        ('{ "s" : "\\u00e9" }', '{ "s" : "\\u00e9" }'),
        ('{"\\ud83d": "\\ud83d"}', '{"\\ufffd": "\\ufffd"}'),
        ('{"s": "a\tb", "i": "1"}', '{"s":"a\\tb","i":1}'),
    ],
)
def test_block_is_fitted_and_else_as_it_is_written(small_vocab: Vocab, block: str, arguments: str) -> None:
    body = ["<|open|>json<|sep|>", Spelled(block), "<|close|>json<|sep|>"]
    got = decode(small_vocab, "r", TC, XO, call_opener("f"), *body, CC, XC, END, tools=[TOOL])
    assert got.calls == [("f", arguments)]


def test_value_that_no_repair_fits_is_counted_in_blocks_too(small_vocab: Vocab) -> None:
    body = '<|open|>json<|sep|>{"i": "two", "b": 1}<|close|>json<|sep|>'
    got = decode(small_vocab, "r", TC, XO, call_opener("f"), body, CC, XC, END, tools=[TOOL])
    assert got.calls == [("f", '{"i": "two", "b": 1}')]
    assert got.repairs == {"type_mismatch": 2}
