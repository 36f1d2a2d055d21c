"""Tool declarations and tool choice of a request (docs/format.md#tools)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.xtml.conversation import ConversationError, ToolChoice
from gateway.xtml.reading import Reading

MAX_NAME_CHARS = 256
_NAME = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]*")
# What clients add for other servers; the rest of an item is rendered, whatever it is.
_WITHOUT_EFFECT = ("cache_control", "defer_loading", "eager_input_streaming")


def canonical_tool(
    name: str,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    strict: bool | None = None,
) -> dict[str, Any]:
    """The one item that a function tool is in the prompt, whatever wire format declared it.

    What is None is left out, and so is a `strict` that is not true, which only chat can say: the same tool
    gives the same prompt in every format (docs/format.md#tools).
    """
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = dict(parameters)
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def declare_tool(name: Any, param: str, names: dict[str, str]) -> str:
    """Check a tool's name, which stands at `param`, and add it to `names` (name -> where it is declared).

    Raises:
        ConversationError: not a name that the format can say, or declared before.
    """
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise ConversationError(
            f"{param} must be 1 to {MAX_NAME_CHARS} letters, digits, `_` or `-`, and not begin with a digit.",
            param,
        )
    if name in names:
        raise ConversationError(
            f"{param}: {name!r} is already declared in {names[name]}; names must be unique.", param
        )
    names[name] = param.removesuffix(".name").removesuffix(".function")
    return name


def read_tools(
    value: Any, param: str, names: dict[str, str], reading: Reading | None = None
) -> tuple[dict[str, Any], ...]:
    """Check chat's array of tools and return its items, which are rendered whole, as they came.

    Only what other servers read of an item is left out, and so are tools that a hosted service runs itself.
    `names` maps the names declared so far to their place; the new ones are added. Raises ConversationError.
    """
    if not isinstance(value, list):
        raise ConversationError(f"{param} must be an array of tools.", param)
    reading = reading or Reading()
    tools: list[dict[str, Any]] = []
    for index, tool in enumerate(value):
        where = f"{param}[{index}]"
        if _is_hosted(tool, where, reading):
            continue
        function = _check_tool(tool, where)
        declare_tool(function.get("name"), f"{where}.function.name", names)
        tools.append(_without_hints(tool, where, reading))
    return tuple(tools)


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


def _is_hosted(tool: Any, param: str, reading: Reading) -> bool:
    """Whether it is one of Moonshot's builtin tools, such as `$web_search`: nothing here runs them."""
    if not isinstance(tool, dict) or tool.get("type") != "builtin_function":
        return False
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    shown = name[:MAX_NAME_CHARS] if isinstance(name, str) else "builtin_function"
    if reading.hosted_tools == "refuse":
        raise ConversationError(
            f"{param}: nothing here runs the builtin tool {shown!r}; leave it out, or declare a function.",
            f"{param}.type",
        )
    reading.leave_out(f"{param} ({shown})")
    return True


def _check_tool(tool: Any, param: str) -> dict[str, Any]:
    """The tool's function. Raises ConversationError."""
    if not isinstance(tool, dict):
        raise ConversationError(f"{param} must be an object with `type` and `function`.", param)
    if tool.get("type") != "function":
        raise ConversationError(f"{param}.type must be function.", f"{param}.type")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise ConversationError(f"{param}.function must be an object with a `name`.", f"{param}.function")
    _check_type(function, "description", str, "a string", param)
    _check_type(function, "parameters", dict, "a JSON schema object", param)
    _check_type(function, "strict", bool, "true or false", param)
    return function


def _without_hints(tool: dict[str, Any], param: str, reading: Reading) -> dict[str, Any]:
    """The item without what other servers read of it: a cache mark must not change the prompt."""
    function = tool["function"]
    for item, where in ((tool, param), (function, f"{param}.function")):
        for name in _WITHOUT_EFFECT:
            if name in item:
                reading.leave_out(f"{where}.{name}")
    if not any(name in tool or name in function for name in _WITHOUT_EFFECT):
        return tool
    kept = {name: value for name, value in tool.items() if name not in _WITHOUT_EFFECT}
    kept["function"] = {name: value for name, value in function.items() if name not in _WITHOUT_EFFECT}
    return kept


def _check_type(function: dict[str, Any], field: str, wanted: type, said: str, param: str) -> None:
    value = function.get(field)
    if value is not None and not isinstance(value, wanted):
        raise ConversationError(f"{param}.function.{field} must be {said}.", f"{param}.function.{field}")
