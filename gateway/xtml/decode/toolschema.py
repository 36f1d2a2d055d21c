"""What a tool's JSON schema says about its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from gateway.xtml.json_schema import Members, SchemaReader
from gateway.xtml.schema_keywords import JSON_TYPES

Types = frozenset[str] | None
"""The JSON types that a schema accepts; None is any."""


class ToolSchema:
    """What one tool's `parameters` say about its arguments. Nothing is read before it is asked for."""

    def __init__(self, parameters: Any) -> None:
        self._parameters = parameters
        self._reader = SchemaReader(parameters)
        self._types: dict[str, Types] = {}  # by argument

    @cached_property
    def _shapes(self) -> list[Members]:
        try:
            return self._reader.arguments(self._parameters, "")
        except RecursionError:  # a value that nests deeper than Python follows
            return []

    @cached_property
    def required(self) -> list[str]:
        """The keys that every call must have."""
        first, *others = self._shapes or [Members({}, (), True)]
        return [key for key in first.required if all(key in shape.required for shape in others)]

    def types(self, key: str) -> Types:
        """The types that the argument `key` may have."""
        if key not in self._types:
            try:
                self._types[key] = self._types_of_key(key)
            except RecursionError:
                self._types[key] = None
        return self._types[key]

    def _types_of_key(self, key: str) -> Types:
        accepted: set[str] = set()
        for shape in self._shapes:
            if (schema := shape.of(key)) is not False:
                accepted.update(*(a.json_types for a in self._reader.alternatives(schema, key)))
        return frozenset(accepted) if accepted and accepted != JSON_TYPES else None


def tool_schemas(tools: Iterable[Any]) -> dict[str, ToolSchema]:
    """Each declared tool's schema by name; of two tools of one name the first."""
    schemas: dict[str, ToolSchema] = {}
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(function, Mapping) and isinstance(name, str):
            schemas.setdefault(name, ToolSchema(function.get("parameters")))
    return schemas
