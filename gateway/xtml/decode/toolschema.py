"""What a tool's JSON schema says about its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

JSON_TYPES = frozenset({"boolean", "null", "number", "integer", "string", "object", "array"})
_MAX_DEPTH = 50  # of nested sub-schemas; what is deeper restricts nothing

Types = frozenset[str] | None
"""The JSON types that a schema accepts; None is any."""


class ToolSchema:
    """What one tool's `parameters` say about its arguments."""

    def __init__(self, parameters: Any) -> None:
        self._root = parameters
        self._types: dict[str, Types] = {}  # by argument
        self._types_of_refs: dict[str, Types] = {}
        self._objects = list(self._object_schemas(parameters, 0, set()))
        self.required = [
            key
            for schema, always in self._objects
            if always and isinstance(schema.get("required"), list)
            for key in schema["required"]
            if isinstance(key, str)
        ]

    def types(self, key: str) -> Types:
        """The types that the argument `key` may have."""
        if key not in self._types:
            self._types[key] = self._types_of_key(key)
        return self._types[key]

    def _types_of_key(self, key: str) -> Types:
        accepted: set[str] = set()
        for schema, _ in self._objects:
            properties = schema.get("properties")
            if isinstance(properties, dict) and key in properties:
                found = self._accepted(properties[key], 0)
            elif isinstance(schema.get("additionalProperties"), dict):
                found = self._accepted(schema["additionalProperties"], 0)
            else:
                continue
            if found is None:
                return None
            accepted |= found
        return frozenset(accepted) or None

    def _object_schemas(
        self, schema: Any, depth: int, followed: set[str], always: bool = True
    ) -> Iterator[tuple[dict[str, Any], bool]]:
        """The parameters' schema and those it consists of; `always` false under anyOf and oneOf."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return
        yield schema, always
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in followed:
            followed.add(ref)
            yield from self._object_schemas(self._resolve(ref), depth + 1, followed, always)
        for word in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(word)
            for branch in branches if isinstance(branches, list) else ():
                yield from self._object_schemas(branch, depth + 1, followed, always and word == "allOf")

    def _resolve(self, ref: str) -> Any:
        if not ref.startswith("#"):
            return None
        found = self._root
        for step in ref[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
        return found

    def _accepted(self, schema: Any, depth: int) -> Types:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return None
        accepted = _named_types(schema.get("type"))
        if schema.get("nullable") is True and accepted is not None:
            accepted |= {"null"}
        if isinstance(schema.get("$ref"), str):
            accepted = _both(accepted, self._accepted_by_ref(schema["$ref"], depth))
        if "const" in schema:
            accepted = _both(accepted, _types_of_values([schema["const"]]))
        if isinstance(schema.get("enum"), list):
            accepted = _both(accepted, _types_of_values(schema["enum"]))
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                branches = [self._accepted(branch, depth + 1) for branch in schema[word]]
                if None not in branches:
                    accepted = _both(accepted, frozenset().union(*(b for b in branches if b is not None)))
        for branch in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
            accepted = _both(accepted, self._accepted(branch, depth + 1))
        if accepted is None and "properties" in schema:
            return frozenset({"object"})
        if accepted is None and "items" in schema:
            return frozenset({"array"})
        return accepted

    def _accepted_by_ref(self, ref: str, depth: int) -> Types:
        """Each reference is followed once; one that leads back to itself restricts nothing."""
        if ref not in self._types_of_refs:
            self._types_of_refs[ref] = None
            self._types_of_refs[ref] = self._accepted(self._resolve(ref), depth + 1)
        return self._types_of_refs[ref]


def tool_schemas(tools: Iterable[Any]) -> dict[str, ToolSchema]:
    """Each declared tool's schema by name; of two tools of one name the first."""
    schemas: dict[str, ToolSchema] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(function, Mapping) and isinstance(name, str):
            schemas.setdefault(name, ToolSchema(function.get("parameters")))
    return schemas


def _named_types(named: Any) -> Types:
    names = (
        {named}
        if isinstance(named, str)
        else set(filter(_is_str, named))
        if isinstance(named, list)
        else set()
    )
    names &= JSON_TYPES
    if "number" in names:
        names.add("integer")
    return frozenset(names) or None


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _types_of_values(values: list[Any]) -> Types:
    return frozenset(_type_of_value(v) for v in values) or None


def _type_of_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _both(left: Types, right: Types) -> Types:
    if left is None or right is None:
        return left if right is None else right
    return (left & right) or None  # a contradiction restricts nothing
