"""The keywords of JSON schema that are understood, and what their values must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

# The types of the wire (docs/format.md#arguments); JSON schema has `integer` besides.
WIRE_TYPES = ("string", "number", "boolean", "null", "object", "array")
JSON_TYPES = frozenset({*WIRE_TYPES, "integer"})

ANNOTATIONS = frozenset({
    "$anchor", "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description",
    "example", "examples", "readOnly", "title", "writeOnly",
})  # fmt: skip
OF_TYPE = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
}
# Keywords that hint at a type and say nothing else here.
HINTS = {
    "object": {"minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired",
               "dependentSchemas", "dependencies", "unevaluatedProperties"},
    "array": {"uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems", "additionalItems"},
}  # fmt: skip
GENERAL = frozenset({"$ref", "type", "enum", "const", "anyOf", "oneOf", "allOf", "nullable"})
KNOWN = ANNOTATIONS | GENERAL | frozenset().union(*OF_TYPE.values())


class Rule(NamedTuple):
    """What a keyword's value must be: in words, and whether it is."""

    wanted: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and bool(value >= 0 and value == value // 1)  # 2.0 counts as 2


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_types(value: Any) -> bool:
    names = value if isinstance(value, list) and value else [value]
    return all(isinstance(name, str) and name in JSON_TYPES for name in names)


def _are_keys(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_COUNT = Rule("a count", _is_count)
_TEXT = Rule("a string", _is_text)
_SCHEMAS = Rule("a list of schemas", _is_list)
_LIMIT = Rule("a number", _is_number)
_EXCLUSIVE = Rule("a number", lambda value: isinstance(value, bool) or _is_number(value))  # draft 4: a bool
RULES = {
    "$ref": _TEXT,
    "type": Rule("one of JSON's types", _are_types),
    "enum": Rule("a list", _is_list),
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "allOf": _SCHEMAS,
    "nullable": Rule("true or false", lambda value: isinstance(value, bool)),
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "pattern": _TEXT,
    "format": _TEXT,
    "minimum": _LIMIT,
    "maximum": _LIMIT,
    "exclusiveMinimum": _EXCLUSIVE,
    "exclusiveMaximum": _EXCLUSIVE,
    "multipleOf": Rule("a number above 0", lambda value: _is_number(value) and value > 0),
    "properties": Rule("an object", lambda value: isinstance(value, dict)),
    "required": Rule("a list of strings", _are_keys),
    "additionalProperties": Rule("a schema", _is_schema),
    "items": Rule("a schema", lambda value: isinstance(value, dict | bool | list)),  # a list: before 2020-12
    "prefixItems": _SCHEMAS,
    "minItems": _COUNT,
    "maxItems": _COUNT,
}
