"""An OpenAI chat request, as plain data, becomes a `Conversation`; every refusal names the field.

Fields that the client did not send must be absent from the data, since what is there is rendered
(docs/format.md#json). Fields that do not shape the prompt (sampling, streaming...) are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.xtml.conversation import Conversation, ConversationError, Message, Part, Role, ToolCall
from gateway.xtml.reading import Reading
from gateway.xtml.request.options import read_response_format, read_thinking
from gateway.xtml.request.parts import read_content, shown
from gateway.xtml.request.reasoning import REASONING_FIELDS, read_reasoning
from gateway.xtml.request.results import settle_results
from gateway.xtml.request.tools import read_tool_choice, read_tools

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",  # docs/decisions.md#b16
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_FIELDS = frozenset(
    ("role", "content", "name", *REASONING_FIELDS, "tool_calls", "tool_call_id", "tools", "tool", "partial")
)
# What replies of this and other services have, and clients send back with their history.
_WITHOUT_EFFECT = frozenset(
    (
        "annotations",
        "audio",
        "cache_control",
        "function_call",
        "id",
        "k3_notes",
        "k3_unparsed",
        "provider_specific_fields",
        "refusal",
    )
)


def from_request(body: Mapping[str, Any], reading: Reading | None = None) -> Conversation:
    """The conversation of a chat request; `reading` says how and is told what was found.

    Raises ConversationError (docs/format.md#prompt)."""
    items = body.get("messages")
    if not isinstance(items, list) or not items:
        raise ConversationError("messages must be an array with at least one message.", "messages")
    reading = reading or Reading()
    _check_search(body, reading)
    names: dict[str, str] = {}  # declared tool -> where
    tools = read_tools(body["tools"], "tools", names, reading) if body.get("tools") is not None else ()
    last = len(items) - 1
    params = [f"messages[{index}]" for index in range(len(items))]
    messages = tuple(
        _message(item, param, names, reading, is_last=index == last)
        for index, (item, param) in enumerate(zip(items, params, strict=True))
    )
    thinking, effort = read_thinking(body, reading)
    return Conversation(
        messages=settle_results(messages, params, reading, keep_orphans=False),
        tools=tools,
        thinking=thinking,
        effort=effort,
        tool_choice=read_tool_choice(body.get("tool_choice"), names),
        response_format=read_response_format(body.get("response_format")),
    )


def _check_search(body: Mapping[str, Any], reading: Reading) -> None:
    """OpenAI's switch for its own web search (docs/decisions.md#r22)."""
    if body.get("web_search_options") is None:
        return
    if reading.hosted_tools == "refuse":
        raise ConversationError(
            "web_search_options: nothing here searches the web; leave it out, or declare a search function.",
            "web_search_options",
        )
    reading.leave_out("web_search_options")


def _message(item: Any, param: str, names: dict[str, str], reading: Reading, *, is_last: bool) -> Message:
    if not isinstance(item, Mapping):
        raise ConversationError(f"{param} must be an object with `role` and `content`.", param)
    given_role = item.get("role")
    role = _ROLES.get(given_role) if isinstance(given_role, str) else None
    if role is None:
        raise ConversationError(
            f"{param}.role must be one of {', '.join(_ROLES)}; got {shown(given_role)}.", f"{param}.role"
        )
    if not item.keys() <= _FIELDS:
        reading.look_over(item, param, _FIELDS, _WITHOUT_EFFECT)
    parts = read_content(item, param, role, reading)
    tools = _dynamic_tools(item, param, role, parts, names, reading)
    calls = _tool_calls(item, param, role)
    partial = _partial(item, param, role, is_last)
    if partial and calls:
        raise ConversationError(
            f"{param}.tool_calls cannot stand in a partial message: only text can be continued.",
            f"{param}.tool_calls",
        )
    return Message(
        role=role,
        parts=parts,
        name=_text(item, "name", param),
        reasoning=read_reasoning(item, param, reading) if role == "assistant" else None,
        tool_calls=calls,
        tools=tools,
        tool_call_id=_tool_call_id(item, param) if role == "tool" else None,
        tool=_text(item, "tool", param) if role == "tool" else None,
        partial=partial,
    )


def _dynamic_tools(
    item: Mapping[str, Any],
    param: str,
    role: Role,
    parts: tuple[Part, ...],
    names: dict[str, str],
    reading: Reading,
) -> tuple[dict[str, Any], ...]:
    value = item.get("tools")
    if value is None:
        return ()
    if role != "system":
        raise ConversationError(
            f"{param}.tools: only a system message can declare tools, not role {role}.", f"{param}.tools"
        )
    tools = read_tools(value, f"{param}.tools", names, reading)
    if tools and any(parts):
        raise ConversationError(
            f"{param}.content must be empty where the message declares tools; use two system messages.",
            f"{param}.content",
        )
    return tools


def _tool_calls(item: Mapping[str, Any], param: str, role: Role) -> tuple[ToolCall, ...]:
    value = item.get("tool_calls")
    if value is None or value == []:
        return ()
    param = f"{param}.tool_calls"
    if role != "assistant":
        raise ConversationError(f"{param} can only stand in an assistant message, not role {role}.", param)
    if not isinstance(value, list):
        raise ConversationError(f"{param} must be an array.", param)
    return tuple(_tool_call(call, f"{param}[{index}]") for index, call in enumerate(value))


def _tool_call(call: Any, param: str) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConversationError(
            f"{param} must be an object with `function`: {{name, arguments}}.", f"{param}.function"
        )
    if call.get("type", "function") not in ("function", "builtin_function", None):
        raise ConversationError(f"{param}.type must be function; got {shown(call['type'])}.", f"{param}.type")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ConversationError(
            f"{param}.function.name must be a non-empty string.", f"{param}.function.name"
        )
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise ConversationError(
            f"{param}.function.arguments must be a string of JSON, or an object.",
            f"{param}.function.arguments",
        )
    return ToolCall(_call_id(call.get("id"), f"{param}.id"), name, arguments)


def _call_id(value: Any, param: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ConversationError(f"{param} must be a string.", param)


def _tool_call_id(item: Mapping[str, Any], param: str) -> str:
    param = f"{param}.tool_call_id"
    found = _call_id(item.get("tool_call_id"), param)
    if found is None:
        raise ConversationError(
            f"{param} is missing: a tool message must give the `id` of the call that it answers.", param
        )
    return found


def _partial(item: Mapping[str, Any], param: str, role: Role, is_last: bool) -> bool:
    value = item.get("partial")
    if value is None or value is False:
        return False
    param = f"{param}.partial"
    if value is not True:
        raise ConversationError(f"{param} must be true or false.", param)
    if role != "assistant" or not is_last:
        raise ConversationError(
            f"{param} can only be set on the last message, and that must be an assistant message.", param
        )
    return True


def _text(item: Mapping[str, Any], field: str, param: str) -> str | None:
    value = item.get(field)
    if value is not None and not isinstance(value, str):
        raise ConversationError(f"{param}.{field} must be a string.", f"{param}.{field}")
    return value
