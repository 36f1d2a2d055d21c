"""A body of OpenAI's Responses API, as plain data, becomes a `Conversation`; every refusal names the field.

The items of one assistant turn come apart and in any order (Codex sends reasoning, call, then message); here
they become one message in K3's order: thinking, response, calls (docs/format.md#wire-formats).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from gateway.xtml.conversation import (
    Conversation,
    ConversationError,
    Detail,
    MediaPart,
    Message,
    Part,
    ResponseFormat,
    Role,
    ToolCall,
)
from gateway.xtml.reading import Reading
from gateway.xtml.request.billing import is_billing_line
from gateway.xtml.request.fields import Json, object_at, string_of
from gateway.xtml.request.options import read_response_format, read_thinking
from gateway.xtml.request.parts import shown
from gateway.xtml.request.responses_tools import (
    ResponsesTools,
    ToolOrigin,
    custom_arguments,
    read_tool_choice,
)
from gateway.xtml.request.results import settle_results

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_ITEM_FIELDS = (
    "id",
    "type",
    "role",
    "content",
    "status",
    "phase",
    "call_id",
    "name",
    "arguments",
    "namespace",
)
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


@dataclass(frozen=True, slots=True)
class ResponsesConversation:
    """`origins`: what tools of the prompt are to the client, where they are not plain functions."""

    conversation: Conversation
    origins: Mapping[str, ToolOrigin]


def from_responses(body: Json, reading: Reading | None = None) -> ResponsesConversation:
    """The conversation of a Responses request; `reading` says how and is told what was found.

    `input` is text or items; items of earlier turns stand in front of it already. Raises ConversationError.
    """
    reading = reading or Reading()
    tools = ResponsesTools(reading)
    declared = tools.read(body.get("tools"), "tools")
    reader = _Reader(reading, tools)
    if (instructions := body.get("instructions")) is not None:
        if not isinstance(instructions, str):
            raise ConversationError("instructions must be a string.", "instructions")
        if instructions:
            reader.add(Message("system", (instructions,)), "instructions")
    items = body.get("input")
    if isinstance(items, str):
        reader.add(Message("user", (items,)), "input")
    elif isinstance(items, list):
        for index, item in enumerate(items):
            reader.item(item, f"input[{index}]")
        reader.end_turn()
    else:
        raise ConversationError("input must be a string or an array of items.", "input")
    if not reader.messages:
        raise ConversationError("input must have at least one message.", "input")
    text = object_at(body.get("text"), "text")
    reading.look_over(text, "text", ("format",), ("verbosity",))
    thinking, effort = read_thinking({"reasoning": _reasoning(body, reading)})
    conversation = Conversation(
        messages=settle_results(reader.messages, reader.params, reading, keep_orphans=True),
        tools=declared,
        thinking=thinking,
        effort=effort,
        tool_choice=read_tool_choice(body.get("tool_choice"), tools),
        response_format=_response_format(text.get("format")),
    )
    return ResponsesConversation(conversation, tools.origins)


class _Reader:
    """Reads items one after another; those of an assistant turn are gathered until another role speaks."""

    def __init__(self, reading: Reading, tools: ResponsesTools) -> None:
        self.reading = reading
        self.tools = tools
        self.messages: list[Message] = []
        self.params: list[str] = []
        self._turn = _Turn()

    def add(self, message: Message, param: str) -> None:
        """A message that is not the assistant's."""
        self.end_turn()
        self.messages.append(message)
        self.params.append(param)

    def end_turn(self) -> None:
        """The assistant's turn that was being gathered is whole."""
        turn, self._turn = self._turn, _Turn()
        if turn.param:
            reasoning = "".join(turn.reasoning) or None
            self.messages.append(
                Message("assistant", tuple(turn.parts), reasoning=reasoning, tool_calls=tuple(turn.calls))
            )
            self.params.append(turn.param)

    def item(self, item: Any, param: str) -> None:
        """One item of `input`."""
        if not isinstance(item, Mapping):
            raise ConversationError(f"{param} must be an object with a `type` or a `role`.", param)
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, param)
        elif kind == "reasoning":
            self._turn_at(param).reasoning.append(_reasoning_text(item, param))
        elif kind == "function_call":
            self._turn_at(param).calls.append(self._call(item, param))
        elif kind == "custom_tool_call":
            arguments = custom_arguments(string_of(item, "input", param))
            call_id, name = string_of(item, "call_id", param), string_of(item, "name", param)
            self._turn_at(param).calls.append(ToolCall(call_id, name, arguments))
        elif kind in _OUTPUTS:
            call_id = string_of(item, "call_id", param)
            parts = self._parts(item.get("output"), f"{param}.output")
            self.add(Message("tool", parts, tool_call_id=call_id), param)
        elif kind == "additional_tools":
            declared = self.tools.read(item.get("tools"), f"{param}.tools")
            if declared:
                self.add(Message("system", tools=declared), param)
        else:
            self._other(item, kind, param)

    def _other(self, item: Json, kind: Any, param: str) -> None:
        """Items that nothing here makes; a summary that stands in one for earlier turns is kept as text."""
        for field in ("summary", "content"):
            if kind == "compaction" and isinstance(text := item.get(field), str) and text:
                self.add(Message("user", (text,)), param)
                return
        self.reading.leave_out(f"{param} ({kind[:60]})" if isinstance(kind, str) else param)

    def _turn_at(self, param: str) -> _Turn:
        self._turn.param = self._turn.param or param
        return self._turn

    def _message(self, item: Json, param: str) -> None:
        given = item.get("role")
        role = _ROLES.get(given) if isinstance(given, str) else None
        if role is None:
            raise ConversationError(
                f"{param}.role must be one of {', '.join(_ROLES)}; got {shown(given)}.", f"{param}.role"
            )
        self.reading.look_over(item, param, _ITEM_FIELDS)
        parts = self._parts(item.get("content"), f"{param}.content", role=role)
        if role == "assistant":
            self._turn_at(param).parts += parts
        else:
            self.add(Message(role, parts), param)

    def _call(self, item: Json, param: str) -> ToolCall:
        namespace = item.get("namespace")
        name = self.tools.prompt_name(
            string_of(item, "name", param), namespace if isinstance(namespace, str) else None
        )
        return ToolCall(string_of(item, "call_id", param), name, string_of(item, "arguments", param))

    def _parts(self, content: Any, param: str, role: Role | Literal["tool"] = "tool") -> tuple[Part, ...]:
        if isinstance(content, str):
            return (content,) if content else ()
        if content is None:
            return ()
        if not isinstance(content, list):
            raise ConversationError(f"{param} must be a string or an array of parts.", param)
        parts: list[Part] = []
        for index, part in enumerate(content):
            where = f"{param}[{index}]"
            if not isinstance(part, Mapping):
                raise ConversationError(f"{where} must be an object with a `type`.", where)
            kind = part.get("type")
            if kind in ("input_text", "output_text", "text", "summary_text"):
                text = string_of(part, "text", where)
                if role == "system" and is_billing_line(text):
                    self.reading.leave_out(where)
                else:
                    parts.append(text)
            elif kind == "refusal":
                parts.append(string_of(part, "refusal", where))
            elif kind in ("input_image", "input_video") and role != "assistant":
                parts.append(_media(part, kind, where))
            elif kind == "input_file":
                parts.append(_file(part, where))
            else:
                self.reading.leave_out(f"{where} ({kind[:60]})" if isinstance(kind, str) else where)
        return tuple(parts)


class _Turn:
    """What one assistant turn has said so far."""

    def __init__(self) -> None:
        self.param = ""
        self.reasoning: list[str] = []
        self.parts: list[Part] = []
        self.calls: list[ToolCall] = []


def _reasoning(body: Json, reading: Reading) -> dict[str, Any]:
    given = object_at(body.get("reasoning"), "reasoning")
    reading.look_over(given, "reasoning", ("effort", "summary"), ("generate_summary", "context"))
    return {"effort": given["effort"]} if given.get("effort") is not None else {}


def _reasoning_text(item: Json, param: str) -> str:
    """The text of a reasoning item: its content, else its summary."""
    for field in ("content", "summary"):
        parts = item.get(field)
        if parts is None:
            continue
        if not isinstance(parts, list):
            raise ConversationError(f"{param}.{field} must be an array of parts.", f"{param}.{field}")
        texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
        if text := "".join(text for text in texts if isinstance(text, str)):
            return text
    return ""


def _media(part: Json, kind: str, param: str) -> MediaPart:
    medium: Literal["image", "video"] = "image" if kind == "input_image" else "video"
    field = f"{medium}_url"
    value, detail = part.get(field), part.get("detail")
    where = f"{param}.{field}"
    if isinstance(value, Mapping):
        value, where = value.get("url"), f"{where}.url"
    if value is None and isinstance(part.get("file_id"), str):
        value, where = f"ms://{part['file_id']}", f"{param}.file_id"
    if not isinstance(value, str) or not value:
        raise ConversationError(f"{where} must be a URL (http, https or data), or give a file_id.", where)
    if detail is None or detail == "original":
        detail = "auto"
    if detail not in ("auto", "low", "high"):
        raise ConversationError(
            f"{param}.detail must be one of auto, low, high; got {shown(detail)}.", f"{param}.detail"
        )
    return MediaPart(medium, value, cast(Detail, detail), where)


def _file(part: Json, param: str) -> MediaPart:
    """A file that is a picture or a clip; other files are refused by name."""
    data = part.get("file_data") or part.get("file_url")
    if isinstance(data, str) and data.startswith(("data:image/", "data:video/")):
        return MediaPart(
            "image" if data.startswith("data:image/") else "video", data, param=f"{param}.file_data"
        )
    if isinstance(part.get("file_id"), str):
        return MediaPart("image", f"ms://{part['file_id']}", param=f"{param}.file_id")
    raise ConversationError(
        f"{param}: Kimi K3 reads no PDF or other files; send their text, or pages as pictures.", param
    )


def _response_format(value: Any) -> ResponseFormat:
    """`text.format`: flat, where chat's `response_format` has an object inside."""
    if isinstance(value, Mapping) and value.get("type") == "json_schema":
        inner = {name: value[name] for name in ("name", "schema", "strict") if name in value}
        value = {"type": "json_schema", "json_schema": inner}
    try:
        return read_response_format(value)
    except ConversationError as error:
        old = "response_format.json_schema" if "json_schema." in error.param else "response_format"
        message, param = (text.replace(old, "text.format") for text in (error.message, error.param))
        raise ConversationError(message, param) from None
