"""Tools of a Responses request: functions, custom tools and namespaces, each one function in the prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.xtml.conversation import ConversationError, ToolChoice
from gateway.xtml.reading import Reading
from gateway.xtml.request.fields import Json, object_at, string_of
from gateway.xtml.request.parts import shown
from gateway.xtml.request.tools import canonical_tool, declare_tool

_FUNCTION = ("type", "name", "description", "parameters", "strict", "defer_loading")
_FUNCTION_WITHOUT_EFFECT = ("allowed_callers", "output_schema", "cache_control")
_CUSTOM = ("type", "name", "description", "format", "defer_loading")
# A custom tool is written as a function of one argument.
CUSTOM_ARGUMENT = "input"
_CUSTOM_PARAMETERS = {
    "type": "object",
    "properties": {CUSTOM_ARGUMENT: {"type": "string"}},
    "required": [CUSTOM_ARGUMENT],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """What a tool of the prompt is to the client. `name` is without the namespace."""

    name: str
    kind: Literal["function", "custom"] = "function"
    namespace: str | None = None


@dataclass(slots=True)
class ResponsesTools:
    """Declared tools. `origins`: by name in the prompt, those that are not just functions of that name."""

    reading: Reading
    names: dict[str, str] = field(default_factory=dict)
    origins: dict[str, ToolOrigin] = field(default_factory=dict)

    def read(self, value: Any, param: str) -> tuple[dict[str, Any], ...]:
        """The items of an array of tools; what nothing here runs is left out and named."""
        if value is None:
            return ()
        if not isinstance(value, list):
            raise ConversationError(f"{param} must be an array of tools.", param)
        items: list[dict[str, Any]] = []
        for index, tool in enumerate(value):
            items += self._items(tool, f"{param}[{index}]")
        return tuple(items)

    def prompt_name(self, name: str, namespace: str | None) -> str:
        """What the prompt calls a tool that the client calls `name` (in `namespace`)."""
        if namespace is None:
            return name
        wanted = ToolOrigin(name, "function", namespace)
        found = next((prompt for prompt, origin in self.origins.items() if origin == wanted), None)
        return found or _joined(namespace, name)

    def _items(self, tool: Any, param: str) -> Iterator[dict[str, Any]]:
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if not isinstance(kind, str):
            raise ConversationError(f"{param} must be an object with a `type`.", param)
        if kind == "function":
            yield self._function(tool, param, string_of(tool, "name", param))
        elif kind == "custom":
            yield self._custom(tool, param)
        elif kind == "namespace":
            yield from self._namespace(tool, param)
        elif self.reading.hosted_tools == "refuse":
            raise ConversationError(f"{param}: nothing here runs the tool {shown(kind)}.", f"{param}.type")
        else:
            self.reading.leave_out(f"{param} ({kind[:60]})")

    def _function(self, tool: Json, param: str, name: str) -> dict[str, Any]:
        description, parameters, strict = (tool.get(n) for n in ("description", "parameters", "strict"))
        if description is not None and not isinstance(description, str):
            raise ConversationError(f"{param}.description must be a string.", f"{param}.description")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise ConversationError(
                f"{param}.parameters must be a JSON schema object.", f"{param}.parameters"
            )
        if strict is not None and not isinstance(strict, bool):
            raise ConversationError(f"{param}.strict must be true or false.", f"{param}.strict")
        self.reading.look_over(tool, param, _FUNCTION, _FUNCTION_WITHOUT_EFFECT)
        declare_tool(name, f"{param}.name", self.names)
        return canonical_tool(name, description, parameters, strict)

    def _custom(self, tool: Json, param: str) -> dict[str, Any]:
        name = string_of(tool, "name", param)
        self.reading.look_over(tool, param, _CUSTOM, ("allowed_callers", "cache_control"))
        description = tool.get("description")
        if description is not None and not isinstance(description, str):
            raise ConversationError(f"{param}.description must be a string.", f"{param}.description")
        form = object_at(tool.get("format"), f"{param}.format")
        if form.get("type") == "grammar":
            # K3 is told the grammar; nothing holds it to it.
            definition = string_of(form, "definition", f"{param}.format")
            said = f"The input must follow this {form.get('syntax', '')} grammar:\n{definition}"
            description = f"{description}\n\n{said}" if description else said
            self.reading.leave_out(f"{param}.format (not enforced)")
        declare_tool(name, f"{param}.name", self.names)
        self.origins[name] = ToolOrigin(name, "custom")
        return canonical_tool(name, description, _CUSTOM_PARAMETERS)

    def _namespace(self, tool: Json, param: str) -> Iterator[dict[str, Any]]:
        namespace, inner = string_of(tool, "name", param), tool.get("tools")
        if not isinstance(inner, list):
            raise ConversationError(f"{param}.tools must be an array of tools.", f"{param}.tools")
        about = tool.get("description")
        for index, function in enumerate(inner):
            where = f"{param}.tools[{index}]"
            if not isinstance(function, Mapping) or function.get("type") != "function":
                kind = function.get("type") if isinstance(function, Mapping) else None
                self.reading.leave_out(f"{where} ({kind})")
                continue
            name = string_of(function, "name", where)
            prompt_name = _joined(namespace, name)
            item = self._function(function, where, prompt_name)
            self.origins[prompt_name] = ToolOrigin(name, "function", namespace)
            if isinstance(about, str) and about:
                said = item["function"].get("description")
                item["function"]["description"] = f"{said}\n\n{namespace}: {about}" if said else about
            yield item


def read_tool_choice(value: Any, tools: ResponsesTools) -> ToolChoice:
    """`auto`, `none`, `required`, one tool, or some of them. Raises ConversationError."""
    if value is None:
        return ToolChoice()
    if value in ("auto", "none"):
        return ToolChoice(value)
    if value == "required":
        if not tools.names:
            raise ConversationError("tool_choice required needs at least one tool in `tools`.", "tool_choice")
        return ToolChoice("required")
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in ("function", "custom"):
        return ToolChoice("named", _declared(value, "tool_choice", tools))
    if kind == "allowed_tools":
        given, mode = value.get("tools"), value.get("mode")
        if mode not in ("auto", "required"):
            raise ConversationError("tool_choice.mode must be auto or required.", "tool_choice.mode")
        if not isinstance(given, list) or not given:
            raise ConversationError("tool_choice.tools must name at least one tool.", "tool_choice.tools")
        names = (_declared(tool, f"tool_choice.tools[{index}]", tools) for index, tool in enumerate(given))
        return ToolChoice(mode, allowed=frozenset(names))
    raise ConversationError(
        "tool_choice must be auto, none, required, a function or custom tool by name, or allowed_tools; "
        f"got {shown(kind or value)}, which nothing here runs.",
        "tool_choice",
    )


def _declared(value: Any, param: str, tools: ResponsesTools) -> str:
    given = object_at(value, param)
    namespace = given.get("namespace")
    name = tools.prompt_name(
        string_of(given, "name", param), namespace if isinstance(namespace, str) else None
    )
    if name not in tools.names:
        raise ConversationError(
            f"{param}.name is {name[:100]!r}, which no tool of the request has.", f"{param}.name"
        )
    return name


def custom_arguments(text: str) -> str:
    """A custom tool's input as the arguments of its function."""
    return json.dumps({CUSTOM_ARGUMENT: text}, ensure_ascii=False)


def _joined(namespace: str, name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{namespace}__{name}")
