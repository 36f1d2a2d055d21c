"""Arguments follow the tool's schema where nothing is lost by it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.xtml import Vocab
from gateway.xtml.decode.fit import fit
from gateway.xtml.decode.json_repair import read_json
from gateway.xtml.decode.toolschema import ToolSchema
from tests.xtml.completions import CC, TC, XC, XO, argument, call_opener, decode


def typed(schema: Any, **root: Any) -> ToolSchema:
    return ToolSchema({"type": "object", "properties": {"x": schema}, **root})


INTEGERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "type": ({"type": "integer"}, {}),
    "type list": ({"type": ["integer", "null"]}, {}),
    "anyOf": ({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0}]}, {}),
    "oneOf": ({"oneOf": [{"type": "boolean"}, {"type": "integer"}]}, {}),
    "allOf": ({"allOf": [{"description": "n"}, {"type": "integer"}]}, {}),
    "nullable": ({"type": "integer", "nullable": True}, {}),
    "enum": ({"enum": [100, 200]}, {}),
    "const": ({"const": 200}, {}),
    "ref": ({"$ref": "#/$defs/n"}, {"$defs": {"n": {"type": "integer"}}}),
    "nested ref": (
        {"anyOf": [{"$ref": "#/definitions/a~1b"}, {"type": "null"}]},
        {"definitions": {"a/b": {"$ref": "#/definitions/n"}, "n": {"type": "integer"}}},
    ),
    "number": ({"type": "number"}, {}),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_quoted_number_for_an_integer(name: str) -> None:
    schema, root = INTEGERS[name]
    assert fit("200", "string", typed(schema, **root).types("x")) == ("200", True)


@pytest.mark.parametrize(
    "parameters",
    [
        {"$ref": "#/$defs/p", "$defs": {"p": {"properties": {"x": {"type": "integer"}}}}},
        {"allOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {}}}]},
        {"anyOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"x": {"type": "null"}}}]},
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ],
)
def test_properties_are_found_where_the_schema_has_them(parameters: dict[str, Any]) -> None:
    assert fit("200", "string", ToolSchema(parameters).types("x")) == ("200", True)


@pytest.mark.parametrize(
    ("text", "written", "type_", "expected"),
    [
        ("true", "string", "boolean", "true"),
        ("False", "string", "boolean", "false"),
        ("1.5", "string", "number", "1.5"),
        ("2e2", "string", "integer", "2e2"),
        ("null", "string", "null", "null"),
        ('{"a": 1e2}', "string", "object", '{"a": 1e2}'),
        ('[1, "two"]', "string", "array", '[1, "two"]'),
        ('"[1]"', "array", "array", "[1]"),
        ("5", "number", "string", '"5"'),
        ("1.50", "number", "string", '"1.50"'),
        ("true", "boolean", "string", '"true"'),
        ('{"a":1}', "object", "string", '"{\\"a\\":1}"'),
        ("Oslo", None, "string", '"Oslo"'),
        ("5", None, "string", '"5"'),
        ("5", None, "integer", "5"),
        ("200", "string", "string", '"200"'),
    ],
)
def test_lossless(text: str, written: str | None, type_: str, expected: str) -> None:
    assert fit(text, written, typed({"type": type_}).types("x")) == (expected, True)


@pytest.mark.parametrize(
    ("text", "written", "type_", "expected"),
    [
        ("200.5", "string", "integer", '"200.5"'),
        ("two", "string", "integer", '"two"'),
        ("[1]", "string", "object", '"[1]"'),
        ("1", "number", "boolean", "1"),
        ("null", "null", "string", "null"),
        ("{'a': 1}", "object", "object", "\"{'a': 1}\""),
    ],
)
def test_what_would_lose_something_stays(text: str, written: str, type_: str, expected: str) -> None:
    assert fit(text, written, typed({"type": type_}).types("x")) == (expected, False)


@pytest.mark.parametrize("literal", ["1e2", "1.50", '{ "k" : 1 }', "[1,2]", "-0", "9" * 300, " 1"])
def test_values_without_a_schema_keep_their_literal(literal: str) -> None:
    assert fit(literal, "number", None) == (literal, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NaN", '"NaN"'),
        ("-Infinity", '"-Infinity"'),
        ('{"a": NaN, "b": "NaN", "c": [Infinity, 1e2]}', '{"a": "NaN", "b": "NaN", "c": ["Infinity", 1e2]}'),
        ("NaNs", '"NaNs"'),
    ],
)
def test_nan_and_infinity_become_strings(text: str, expected: str) -> None:
    assert fit(text, "number", None).json == expected


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "01", "'a'", "", "nul", "1 2", '"\n', "1" + "é"])
def test_what_is_no_json_becomes_a_string(text: str) -> None:
    assert json.loads(fit(text, "object", None).json) == text


@given(text=st.text(max_size=30), written=st.sampled_from(["string", "number", "object", "odd", None]))
def test_result_is_always_valid_json(text: str, written: str | None) -> None:
    for accepted in (None, frozenset({"string"}), frozenset({"integer", "number"}), frozenset({"object"})):
        assert read_json(fit(text, written, accepted).json) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/properties/x"},
        {"$ref": "#"},
        {"$ref": "https://example.org/schema"},
        {"$ref": 5},
        {"anyOf": [{"$ref": "#/properties/x"}, {"$ref": "#/properties/x"}]},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "odd"},
        {"type": 5},
        {"enum": "odd"},
        {"anyOf": "odd"},
        True,
        None,
        {},
    ],
)
def test_schema_that_says_nothing_restricts_nothing(schema: Any) -> None:
    assert typed(schema).types("x") in (None, frozenset({"object"}))


@pytest.mark.parametrize("parameters", [None, 5, [], {"properties": 5}, {"required": 5}, {"required": [5]}])
def test_parameters_that_are_no_schema_restrict_nothing(parameters: Any) -> None:
    schema = ToolSchema(parameters)
    assert (schema.types("x"), schema.required) == (None, [])


def test_schemas_that_refer_to_each_other_are_read_in_no_time() -> None:
    """Followed along every path, these would take 100 to the power of the depth."""
    refs = [{"$ref": f"#/$defs/{n}"} for n in range(100)]
    definitions = {str(n): {"anyOf": refs, "properties": {"x": {"allOf": refs}}} for n in range(100)}
    schema = ToolSchema({"anyOf": refs, "$defs": definitions})
    assert schema.types("x") is None or "object" in schema.types("x")


def test_call_is_coerced_and_mismatches_are_counted(small_vocab: Vocab) -> None:
    """Field report A16."""
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "properties": {
                    "n": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
                    "b": {"type": "boolean"},
                },
                "required": ["n", "s"],
                "$defs": {"n": {"type": "integer"}},
            },
        },
    }
    body = argument("n", "200") + argument("b", "maybe") + argument("other", "5")
    got = decode(small_vocab, "r", TC, XO, call_opener("f"), body, CC, XC, tools=[tool])
    assert got.calls == [("f", '{"n":200,"b":"maybe","other":"5"}')]
    assert got.repairs == {"type_mismatch": 1, "missing_argument": 1}
