"""JSON of a model: what readers take stays, what they refuse is repaired, nothing raises (R1, R5)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.xtml.decode.json_repair import MAX_DEPTH, JsonText, read_json


def strict_value(text: str) -> Any:
    """What strict readers in two languages see; they must agree."""
    value = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert msgspec.json.decode(text.encode()) == value
    return value


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"\\ud83d"', '"\\ufffd"'),
        ('"\\uDE42\\uD83D"', '"\\ufffd\\ufffd"'),
        ('"\\ud83d\\ud83d\\ude42x"', '"\\ufffd\\ud83d\\ude42x"'),
        ('{"\\ud83d": 1}', '{"\\ufffd": 1}'),
        ('{"msg":"line1\nline2\t\x00"}', '{"msg":"line1\\nline2\\t\\u0000"}'),
        ('{"re": "\\d+ \\u12 C:\\\\x"}', '{"re": "\\\\d+ \\\\u12 C:\\\\x"}'),
        ('"a\\\nb"', '"a\\\\\\nb"'),
        ("True", "true"),
        ("[ True, FALSE , None, null]", "[ true, false , null, null]"),
        ("NaN", '"NaN"'),
        ('{"a": NaN, "b": "NaN", "c": [-Infinity]}', '{"a": "NaN", "b": "NaN", "c": ["-Infinity"]}'),
        ("1e999", '"1e999"'),
        ("[-1E+400, 1e308]", '["-1E+400", 1e308]'),
        ("1" + "0" * 309, '"1' + "0" * 309 + '"'),
        ("9" * 5000, f'"{"9" * 5000}"'),
        ('{"a":1, "a":2, "b":3}', '{"a":1, "b":3}'),
        ('{"a":1 , "a" : {"x": [2]}}', '{"a":1 }'),
        ('{"a":[{"k":1,"\\u006b":2,"k":3}],"a":[]}', '{"a":[{"k":1}]}'),
    ],
)
def test_repaired(written: str, read: str) -> None:
    found = read_json(written)
    assert found is not None and found.text == read
    strict_value(found.text)
    assert read_json(found.text) == found


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        (' { "k" : 1e2 }\n', "object"),
        ('{"a":{"a":{"a":1}},"b":{"a":2}}', "object"),
        ("[]", "array"),
        ("{}", "object"),
        ('"\\ud83d\\ude42 \\u00e9 \\/"', "string"),
        ("true", "boolean"),
        ("null", "null"),
        ("-0", "integer"),
        ("2e2", "integer"),
        ("1.0", "integer"),
        ("1.5", "number"),
        ("1e-999", "integer"),
        ("9" * 308, "integer"),
        ("0." + "3" * 5000, "number"),
        ('"' + "[" * 500 + '"', "string"),
    ],
)
def test_what_readers_take_stays_as_it_is(text: str, type_: str) -> None:
    assert read_json(text) == JsonText(text, type_)
    strict_value(text)


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            " ",
            "{",
            "}",
            "]",
            "[1,]",
            "[,1]",
            "[1 2]",
            '{"a"}',
            '{"a":}',
            '{"a":1,}',
            "{1:2}",
            "{a:1}",
            "{,}",
        ],
        *["01", "1.", ".5", "+1", "1e", "--1", "'a'", '"a', '"a\\"', "nul", "nan", "truefalse", 'true"x"'],
        *[
            "1 2",
            "[1]]",
            "[1}",
            '{"a":1]',
            "[[1]",
            '"a" ,',
            '{"a" 1}',
            '{"a"::1}',
            "1é",
            "\ufeff1",
            "[1]x",
            "-",
        ],
        *["{'a': 1}", "// c\n1", "[1, // c\n2]", "-null", "(1)", "[1;2]", '{"a":1,"a":}', '{"a":1,"a"}'],
    ],
)
def test_what_is_not_json_stays_not_json(text: str) -> None:
    assert read_json(text) is None
    assert read_json(f"[{text},\n") is None


@pytest.mark.parametrize("opener", ["[", '{"a":', '[{"\\ud83d":'])
def test_depth_is_limited_and_costs_no_recursion(opener: str) -> None:
    n = MAX_DEPTH // (opener.count("[") + opener.count("{"))
    closer = "".join({"[": "]", "{": "}"}[c] for c in reversed(opener) if c in "[{")
    nested = read_json(opener * n + "1" + closer * n)
    assert nested is not None
    strict_value(nested.text)
    assert read_json(opener * (n + 1) + "1" + closer * (n + 1)) is None
    for levels in (1_000, 100_000):
        assert read_json(opener * levels) is None
        assert read_json(opener * levels + closer * levels) is None


pieces = st.sampled_from(
    [
        *[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            '"a"',
            '"b":',
            "1",
            "-",
            "1e999",
            "9" * 400,
            "True",
            "none",
            "NaN",
        ],
        *["\\ud83d", "\\ude42", "\\", "\\u", "\n", "\x00", " ", "é", "\ud83d"],
    ]
)


@given(text=st.lists(pieces | st.text(max_size=3), max_size=14).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read_json(text)
    if found is not None and "\ud83d" not in text:
        strict_value(found.text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@given(value=values, ascii_=st.booleans(), indent=st.sampled_from([None, 1]))
def test_json_of_any_library_stays(value: Any, ascii_: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent)
    found = read_json(text)
    assert found is not None and found.text == text


@given(value=values)
def test_python_literals_and_raw_controls_are_read(value: Any) -> None:
    """The same value, in the way that models write it: True, None and raw newlines."""

    def write(part: Any) -> str:
        match part:
            case str():
                plain = json.dumps(part, ensure_ascii=False)
                return plain.replace("\\n", "\n").replace("\\t", "\t") if "\\\\" not in plain else plain
            case list():
                return "[" + ", ".join(map(write, part)) + "]"
            case dict():
                return "{" + ", ".join(f"{write(k)}: {write(v)}" for k, v in part.items()) + "}"
            case None | bool():
                return repr(part)
        return json.dumps(part)

    found = read_json(write(value))
    assert found is not None and json.loads(found.text) == value
