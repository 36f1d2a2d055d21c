"""An OpenAI chat request, as plain data, becomes a `Conversation`; every refusal names the field.

Fields that the client did not send must be absent from the data, since what is there is rendered
(docs/format.md#json). Fields that do not shape the prompt (sampling, streaming...) are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from gateway.xtml.conversation import (
    Conversation,
    ConversationError,
    Detail,
    MediaPart,
    Message,
    Part,
    Role,
    ToolCall,
)
from gateway.xtml.request.options import read_response_format, read_thinking
from gateway.xtml.request.tools import read_tool_choice, read_tools

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",  # docs/decisions.md#b16
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_IMAGE_PARTS = ("image_url", "input_image", "image")
_VIDEO_PARTS = ("video_url", "input_video", "video")


def from_request(body: Mapping[str, Any]) -> Conversation:
    """The conversation of a chat request. Raises ConversationError (docs/format.md#prompt)."""
    items = body.get("messages")
    if not isinstance(items, list) or not items:
        raise ConversationError("messages must be an array with at least one message.", "messages")
    names: dict[str, str] = {}  # declared tool -> where
    tools = read_tools(body["tools"], "tools", names) if body.get("tools") is not None else ()
    last = len(items) - 1
    messages = tuple(
        _message(item, f"messages[{index}]", names, is_last=index == last) for index, item in enumerate(items)
    )
    thinking, effort = read_thinking(body)
    return Conversation(
        messages=messages,
        tools=tools,
        thinking=thinking,
        effort=effort,
        tool_choice=read_tool_choice(body.get("tool_choice"), names),
        response_format=read_response_format(body.get("response_format")),
    )


def _message(item: Any, param: str, names: dict[str, str], *, is_last: bool) -> Message:
    if not isinstance(item, Mapping):
        raise ConversationError(f"{param} must be an object with `role` and `content`.", param)
    given_role = item.get("role")
    role = _ROLES.get(given_role) if isinstance(given_role, str) else None
    if role is None:
        raise ConversationError(
            f"{param}.role must be one of {', '.join(_ROLES)}; got {_shown(given_role)}.", f"{param}.role"
        )
    parts = _content(item, param, role)
    tools = _dynamic_tools(item, param, role, parts, names)
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
        reasoning=_reasoning(item, param) if role == "assistant" else None,
        tool_calls=calls,
        tools=tools,
        tool_call_id=_tool_call_id(item, param) if role == "tool" else None,
        tool=_text(item, "tool", param) if role == "tool" else None,
        partial=partial,
    )


def _content(item: Mapping[str, Any], param: str, role: Role) -> tuple[Part, ...]:
    content = item.get("content")
    if isinstance(content, str):
        return (content,) if content else ()
    if content is None:
        return ()
    if not isinstance(content, list):
        raise ConversationError(
            f"{param}.content must be a string, an array of parts, or null.", f"{param}.content"
        )
    return tuple(_part(part, f"{param}.content[{index}]", role) for index, part in enumerate(content))


def _part(part: Any, param: str, role: Role) -> Part:
    if not isinstance(part, Mapping):
        raise ConversationError(f"{param} must be an object with a `type`.", param)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _TEXT_PARTS:
        field = _TEXT_PARTS[kind]
        text = part.get(field)
        if not isinstance(text, str):
            raise ConversationError(f"{param}.{field} must be a string.", f"{param}.{field}")
        return text
    if kind in _IMAGE_PARTS or kind in _VIDEO_PARTS:
        if role == "assistant":
            raise ConversationError(
                f"{param}: pictures and videos cannot stand in assistant messages; "
                "put them in a user, system or tool message.",
                param,
            )
        return _media_part(part, kind, param)
    if kind in ("input_audio", "audio", "audio_url", "file", "input_file"):
        raise ConversationError(
            f"{param}.type {kind!r} is not something Kimi K3 can read; send text, image_url or video_url.",
            f"{param}.type",
        )
    raise ConversationError(
        f"{param}.type must be text, image_url or video_url; got {_shown(kind)}.", f"{param}.type"
    )


def _media_part(part: Mapping[str, Any], kind: str, param: str) -> MediaPart:
    """The URL stands under the type's own name, or `image_url` / `video_url`, as text or `{"url": …}`."""
    medium = "image" if kind in _IMAGE_PARTS else "video"
    field = next(
        (name for name in (kind, f"{medium}_url", medium, "url") if part.get(name) is not None), None
    )
    value = part[field] if field is not None else None
    detail = part.get("detail")
    where = f"{param}.{field or f'{medium}_url'}"
    if isinstance(value, Mapping):
        detail = value.get("detail", detail)
        value = value.get("url")
        where += ".url"
    if not isinstance(value, str) or not value:
        raise ConversationError(f"{where} must be a URL (http, https or data).", where)
    if detail is None:
        detail = "auto"
    if detail not in get_args(Detail):
        raise ConversationError(
            f"{param}: detail must be one of {', '.join(get_args(Detail))}; got {_shown(detail)}.",
            f"{param}.{field}.detail",
        )
    return MediaPart("image" if medium == "image" else "video", value, cast(Detail, detail), param)


def _dynamic_tools(
    item: Mapping[str, Any], param: str, role: Role, parts: tuple[Part, ...], names: dict[str, str]
) -> tuple[dict[str, Any], ...]:
    value = item.get("tools")
    if value is None:
        return ()
    if role != "system":
        raise ConversationError(
            f"{param}.tools: only a system message can declare tools, not role {role}.", f"{param}.tools"
        )
    tools = read_tools(value, f"{param}.tools", names)
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
    if call.get("type", "function") not in ("function", None):
        raise ConversationError(
            f"{param}.type must be function; got {_shown(call['type'])}.", f"{param}.type"
        )
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


def _reasoning(item: Mapping[str, Any], param: str) -> str | None:
    """`reasoning_content` unless it is empty, else `reasoning` (docs/format.md#assistant)."""
    return _text(item, "reasoning_content", param) or _text(item, "reasoning", param)


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


def _shown(value: Any) -> str:
    """A value of the client's in an error message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
