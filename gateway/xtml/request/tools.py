"""Tool declarations and tool choice of a request (docs/format.md#tools)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.xtml.conversation import ConversationError, ToolChoice

MAX_TOOLS = 128  # in one array
MAX_NAME_CHARS = 256
_NAME = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]*")


def read_tools(value: Any, param: str, names: dict[str, str]) -> tuple[dict[str, Any], ...]:
    """Check an array of tools and return its items as they came, since they are rendered whole.

    `names` maps the names declared so far to their place; the new ones are added. Raises ConversationError.
    """
    if not isinstance(value, list):
        raise ConversationError(f"{param} must be an array of tools.", param)
    if len(value) > MAX_TOOLS:
        raise ConversationError(f"{param} has {len(value)} tools; at most {MAX_TOOLS} are allowed.", param)
    for index, tool in enumerate(value):
        where = f"{param}[{index}]"
        name = _check_tool(tool, where)
        if name in names:
            raise ConversationError(
                f"{where}.function.name: {name!r} is already declared in {names[name]}; "
                "names must be unique.",
                f"{where}.function.name",
            )
        names[name] = where
    return tuple(value)


def read_tool_choice(value: Any, names: Mapping[str, str]) -> ToolChoice:
    """`auto`, `none`, `required`, a function by name, or some functions. Raises ConversationError."""
    if value is None:
        return ToolChoice()
    if value in ("auto", "none"):
        return ToolChoice(value)
    if value == "required":
        if not names:
            raise ConversationError("tool_choice required needs at least one tool in `tools`.", "tool_choice")
        return ToolChoice("required")
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "function":
        return ToolChoice("named", _declared_name(value, "tool_choice", names))
    if kind == "allowed_tools":
        return _allowed_tools(value, names)
    raise ConversationError(
        'tool_choice must be auto, none, required, {"type": "function", "function": {"name": …}}, or '
        '{"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}.',
        "tool_choice",
    )


def _allowed_tools(value: Mapping[str, Any], names: Mapping[str, str]) -> ToolChoice:
    """A choice among some of the declared tools, which all stay in the prompt. Raises ConversationError."""
    param, given = "tool_choice.allowed_tools", value.get("allowed_tools", value)
    if not isinstance(given, Mapping) or given.get("mode") not in ("auto", "required"):
        raise ConversationError(f"{param}.mode must be auto or required.", f"{param}.mode")
    tools = given.get("tools")
    if not isinstance(tools, list) or not tools:
        raise ConversationError(f"{param}.tools must name at least one tool.", f"{param}.tools")
    allowed = (_declared_name(tool, f"{param}.tools[{index}]", names) for index, tool in enumerate(tools))
    return ToolChoice(given["mode"], allowed=frozenset(allowed))


def _declared_name(value: Any, param: str, names: Mapping[str, str]) -> str:
    """The name in `{"function": {"name": …}}` or `{"name": …}`. Raises ConversationError."""
    function = value.get("function", value) if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    param += ".function.name"
    if not isinstance(name, str) or not name:
        raise ConversationError(f"{param} must name a declared tool.", param)
    if name not in names:
        raise ConversationError(
            f"{param} is {name[:MAX_NAME_CHARS]!r}, which no tool of the request has.", param
        )
    return name


def _check_tool(tool: Any, param: str) -> str:
    """The tool's name. Raises ConversationError."""
    if not isinstance(tool, dict):
        raise ConversationError(f"{param} must be an object with `type` and `function`.", param)
    if tool.get("type") != "function":
        raise ConversationError(f"{param}.type must be function.", f"{param}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise ConversationError(f"{param}.function must be an object with a `name`.", f"{param}.function")
    name = function.get("name")
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise ConversationError(
            f"{param}.function.name must be 1 to {MAX_NAME_CHARS} letters, digits, `_` or `-`, "
            "and not begin with a digit.",
            f"{param}.function.name",
        )
    _check_type(function, "description", str, "a string", param)
    _check_type(function, "parameters", dict, "a JSON schema object", param)
    _check_type(function, "strict", bool, "true or false", param)
    return name


def _check_type(function: dict[str, Any], field: str, wanted: type, said: str, param: str) -> None:
    value = function.get(field)
    if value is not None and not isinstance(value, wanted):
        raise ConversationError(f"{param}.function.{field} must be {said}.", f"{param}.function.{field}")
