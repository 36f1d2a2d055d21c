"""Tools and tool choice of a Messages request, with tools that are declared on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.xtml.conversation import ConversationError, ToolChoice
from gateway.xtml.reading import Reading
from gateway.xtml.request.fields import object_at, string_of
from gateway.xtml.request.parts import shown
from gateway.xtml.request.tools import canonical_tool, declare_tool

_TOOL_FIELDS = ("type", "name", "description", "input_schema", "strict", "defer_loading")
_TOOL_WITHOUT_EFFECT = ("cache_control", "eager_input_streaming", "allowed_callers", "input_examples")


@dataclass(slots=True)
class MessagesTools:
    """Declared tools. `deferred`: those that are declared where the conversation first refers to them."""

    reading: Reading
    names: dict[str, str] = field(default_factory=dict)
    deferred: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)

    def read(self, value: Any) -> tuple[dict[str, Any], ...]:
        """The tools of the request's own array."""
        if value is None:
            return ()
        if not isinstance(value, list):
            raise ConversationError("tools must be an array of tools.", "tools")
        items = (self._item(tool, f"tools[{index}]") for index, tool in enumerate(value))
        return tuple(item for item in items if item is not None)

    def add(self, tool: Any, param: str) -> dict[str, Any] | None:
        """A tool that is offered from here on, by definition or by reference; None if it is there already."""
        name = referred_tool(tool)
        if name is None:
            given = object_at(tool, param)
            name = given.get("name") if isinstance(given.get("name"), str) else None
            if name in self.names and name in self.removed:
                self.removed.discard(name)
                return None
            return self._item(tool, param)
        self.removed.discard(name)
        if name not in self.deferred:
            if name not in self.names:
                self.reading.leave_out(f"{param} ({name[:100]}: not among tools)")
            return None
        item = self.deferred.pop(name)
        declare_tool(name, f"{param}.name", self.names)
        return item

    def remove(self, tool: Any, param: str) -> str | None:
        """The name of a tool that is offered no longer."""
        name = referred_tool(tool) or object_at(tool, param).get("name")
        if not isinstance(name, str) or name not in self.names:
            self.reading.leave_out(param)
            return None
        self.removed.add(name)
        return name

    def name_deferred(self) -> None:
        """Say which tools the conversation never referred to."""
        for name in self.deferred:
            self.reading.leave_out(f"tools ({name}: deferred)")

    def _item(self, tool: Any, param: str) -> dict[str, Any] | None:
        if not isinstance(tool, Mapping):
            raise ConversationError(f"{param} must be an object with `name` and `input_schema`.", param)
        kind = tool.get("type")
        if kind not in (None, "custom"):
            if self.reading.hosted_tools == "refuse":
                raise ConversationError(
                    f"{param}: nothing here runs the server tool {shown(kind)}.", f"{param}.type"
                )
            self.reading.leave_out(f"{param} ({kind})" if isinstance(kind, str) else param)
            return None
        description, schema, strict = (tool.get(n) for n in ("description", "input_schema", "strict"))
        if description is not None and not isinstance(description, str):
            raise ConversationError(f"{param}.description must be a string.", f"{param}.description")
        if not isinstance(schema, Mapping):
            raise ConversationError(
                f"{param}.input_schema must be a JSON schema object.", f"{param}.input_schema"
            )
        if strict is not None and not isinstance(strict, bool):
            raise ConversationError(f"{param}.strict must be true or false.", f"{param}.strict")
        self.reading.look_over(tool, param, _TOOL_FIELDS, _TOOL_WITHOUT_EFFECT)
        if tool.get("defer_loading") is True:
            name = declare_tool(tool.get("name"), f"{param}.name", {**self.names})
            self.deferred[name] = canonical_tool(name, description, schema, strict)
            return None
        name = declare_tool(tool.get("name"), f"{param}.name", self.names)
        return canonical_tool(name, description, schema, strict)


def read_tool_choice(value: Any, names: Mapping[str, str]) -> ToolChoice:
    if value is None:
        return ToolChoice()
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in ("auto", "none"):
        return ToolChoice(kind)
    if kind == "any":
        if not names:
            raise ConversationError("tool_choice any needs at least one tool in `tools`.", "tool_choice")
        return ToolChoice("required")
    if kind == "tool":
        name = string_of(value, "name", "tool_choice")
        if name not in names:
            raise ConversationError(
                f"tool_choice.name is {name[:100]!r}, which no tool of the request has.", "tool_choice.name"
            )
        return ToolChoice("named", name)
    raise ConversationError("tool_choice.type must be auto, any, tool or none.", "tool_choice.type")


def referred_tool(tool: Any) -> str | None:
    """The name that a `tool_reference` refers to."""
    if isinstance(tool, Mapping) and tool.get("type") == "tool_reference":
        name = tool.get("tool_name")
        return name if isinstance(name, str) else None
    return None
