"""One reading of JSON schema: decoder and grammar agree on it, and nothing in a document raises."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.xtml.decode.toolschema import ToolSchema
from gateway.xtml.grammar.calls import CallableTool, Marks, calls_grammar, type_attribute
from gateway.xtml.grammar.rules import literal
from gateway.xtml.json_schema import SchemaReader, json_type, nonfinite_number, same_json
from gateway.xtml.schema_keywords import WIRE_TYPES

MARKS = Marks(1, 2, 3, (1, 2, 3))
ID = "https://example.test/schema"
KEY = "key"  # longer than the pieces of undeclared keys


def leaf() -> st.SearchStrategy[Any]:
    types = st.sampled_from([*WIRE_TYPES, "integer"])
    keyword = st.sampled_from(
        [
            {"minimum": 1},
            {"multipleOf": 2},
            {"minLength": 1},
            {"pattern": "^a"},
            {"items": {}},
            {"minItems": 1},
            {"properties": {"a": {}}},
            {"required": ["a"]},
            {"uniqueItems": True},
            {"patternProperties": {}},
            {"minimum": 1, "minLength": 2},
        ]
    )
    values = st.sampled_from([1, 1.0, 1.5, "a", "1", None, True, False, [1], {"a": 1}])
    return (
        st.booleans()
        | st.builds(lambda t: {"type": t}, types)
        | st.builds(lambda t, n: {"type": t, "nullable": n}, types, st.booleans())
        | st.builds(lambda ts: {"type": ts}, st.lists(types, min_size=1, max_size=3))
        | keyword
        | st.builds(lambda vs: {"enum": vs}, st.lists(values, max_size=4))
        | st.builds(lambda t, vs: {"type": t, "enum": vs}, types, st.lists(values, max_size=4))
        | st.builds(lambda v: {"const": v}, values)
        | st.sampled_from(["#/$defs/a", "#/$defs/b", f"{ID}#/$defs/a", "#", "#/anyOf/²", "#/no"]).map(
            lambda ref: {"$ref": ref}
        )
        | st.sampled_from([5, "odd", {"type": "odd"}, {"enum": 5}, {"anyOf": 5}, {"required": "a"}, {}])
    )


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    words = st.sampled_from(["anyOf", "oneOf", "allOf"])
    branches = st.lists(inner, min_size=1, max_size=3)
    beside = st.sampled_from([{}, {"type": "object"}, {"type": ["integer", "string"]}, {"nullable": True}])
    return st.builds(lambda word, found, more: {word: found} | more, words, branches, beside)


SCHEMAS = st.recursive(leaf(), combined, max_leaves=6)
OBJECTS = st.fixed_dictionaries(
    {"properties": st.fixed_dictionaries({}, optional={KEY: SCHEMAS, "y": SCHEMAS})},
    optional={
        "required": st.lists(st.sampled_from([KEY, "y", "z"]), max_size=2),
        "additionalProperties": SCHEMAS,
    },
)
PARAMETERS = st.builds(
    lambda root, definitions: root | {"$id": ID, "$defs": definitions},
    OBJECTS
    | st.builds(lambda word, shapes: {word: shapes}, st.sampled_from(["anyOf", "oneOf", "allOf"]),
                st.lists(OBJECTS, min_size=1, max_size=2))
    | st.just({"$ref": "#/$defs/a"}),
    st.fixed_dictionaries({"a": SCHEMAS | OBJECTS, "b": SCHEMAS}),
)  # fmt: skip


def types_in_grammar(grammar: str, key: str) -> set[str]:
    """The type attributes that the EBNF allows for a key, found rule by rule."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    attribute = {name: kind for name, body in rules.items() for kind in WIRE_TYPES
                 if body.startswith(literal(type_attribute(kind)) + " ")}  # fmt: skip
    found: set[str] = set()
    for body in rules.values():
        if body.startswith(literal(key) + " "):
            for option in rules[body.split(" ")[1]].split(" | "):
                found.add(attribute[option.split(" ")[0]])
    return found


@settings(deadline=None)
@given(parameters=PARAMETERS)
def test_decoder_and_grammar_agree(parameters: dict[str, Any]) -> None:
    schema = ToolSchema(parameters)
    grammar, loosened = calls_grammar([CallableTool("tools[0]", "f", parameters)], MARKS, many=True)
    if any("nested too deeply" in line or "places in one" in line for line in loosened):
        return  # only the grammar has a bound for the document as a whole
    allowed = types_in_grammar(grammar, KEY)
    if not allowed:  # the key is not declared
        return
    accepted = schema.types(KEY) or {*WIRE_TYPES}
    assert allowed <= {"number" if t == "integer" else t for t in accepted}
    undeclared = SchemaReader(parameters).arguments(parameters, "")
    if all(KEY in shape.properties for shape in undeclared):
        assert allowed == {"number" if t == "integer" else t for t in accepted}
    for key in schema.required:
        assert all(key in shape.required for shape in undeclared)


@settings(deadline=None)
@given(parameters=PARAMETERS, value=st.sampled_from([1, 1.5, "a", None, True, [1], {"a": 1}]))
def test_what_is_said_of_a_place_does_not_depend_on_what_was_asked_before(
    parameters: dict[str, Any], value: Any
) -> None:
    schema = ToolSchema(parameters)
    assert [schema.types(k) for k in ("y", KEY)] == [ToolSchema(parameters).types(k) for k in ("y", KEY)]
    assert json_type(value) in {"integer", "number", "string", "null", "boolean", "array", "object"}


@pytest.mark.parametrize("step", ["²", "9" * 5000, "-1", "1e1", "", "~", "%zz", "\ud83d"])
def test_odd_steps_of_a_reference_lead_nowhere(step: str) -> None:
    parameters = {"anyOf": [{"type": "object"}], "properties": {KEY: {"$ref": f"#/anyOf/{step}"}}}
    reported: list[str] = []
    reader = SchemaReader(parameters, lambda path, what: reported.append(f"{path}: {what}"))
    assert len(reader.alternatives(parameters["properties"][KEY], KEY)) == len(WIRE_TYPES)
    assert len(reported) == 1 and "not found, any value allowed" in reported[0] and len(reported[0]) < 200
    assert ToolSchema(parameters).types(KEY) is None


@pytest.mark.parametrize(
    ("node", "types"),
    [
        ({"minimum": 0}, {"integer", "number"}),
        ({"type": "number", "enum": [1, 2.5]}, {"integer", "number"}),
        ({"type": "integer", "enum": [1.0, 2.5]}, {"integer"}),
        ({"minLength": 1}, {"string"}),
        ({"items": {}}, {"array"}),
        ({"required": []}, {"object"}),
        ({"type": ["string", "odd"]}, {"string"}),
        ({"type": "string", "anyOf": [{"type": "integer"}, {"maxLength": 2}]}, {"string"}),
        ({"allOf": [{"type": "number"}, {"type": ["integer", "null"]}]}, {"integer"}),
        ({"allOf": [{"enum": ["a", 1]}, {"enum": [1.0, True]}]}, {"integer"}),
        ({"const": 1, "enum": [True]}, None),  # 1 is not true
        ({"allOf": [{"allOf": [{"type": "string"}]}, {"allOf": [{"type": ["string", "null"]}]}]}, {"string"}),
        ({"$ref": f"{ID}#/$defs/a%20b"}, {"boolean"}),
        ({"$ref": "#/$defs/c"}, {"string", "null"}),
        (False, None),
        ({"type": "string", "nullable": True}, {"string", "null"}),
    ],
)
def test_types(node: Any, types: set[str] | None) -> None:
    definitions = {"a b": {"type": "boolean"}, "c": {"$ref": "#/$defs/d"}, "d": {"type": ["string", "null"]}}
    document = {"$id": ID, "properties": {KEY: node}, "additionalProperties": False, "$defs": definitions}
    assert ToolSchema(document).types(KEY) == types


def test_required_of_every_shape() -> None:
    one, two = {"required": ["a", "b"], "properties": {}}, {"required": ["c", "a"], "properties": {}}
    assert ToolSchema({"anyOf": [one, two]}).required == ["a"]
    assert ToolSchema({"allOf": [one, two]}).required == ["a", "b", "c"]
    assert ToolSchema({"required": "a"}).required == []
    assert ToolSchema({"required": ["a", 5], "properties": {}}).required == ["a"]


def test_a_schema_as_deep_as_it_likes() -> None:
    node: Any = {"type": "string"}
    for _ in range(5000):
        node = {"allOf": [node]}
    assert ToolSchema({"properties": {KEY: node}}).types(KEY) is None
    assert ToolSchema(node).required == []


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_number_that_no_json_has_is_found_with_its_path(number: float) -> None:
    schema = {"properties": {"a": {"enum": [1, 2.5]}, "b": {"anyOf": [{}, {"minimum": number}]}}}
    assert nonfinite_number(schema, "parameters") == "parameters.properties.b.anyOf[1].minimum"
    assert nonfinite_number([0.1, 10**400, True, None, "NaN"], "x") is None
    assert ToolSchema(schema).types("b") is None


def test_equal_json_has_the_same_text() -> None:
    assert same_json([1, {"a": 2.0, "b": None}]) == same_json([1.0, {"b": None, "a": 2}])
    assert len({same_json(v) for v in (1, True, "1", None, [1], {"1": 1})}) == 6
