"""A body of Anthropic's Messages API, as plain data, becomes a `Conversation`; every refusal names the field.

Nothing is moved: system messages in the middle stay there, pictures stay inside their tool results, tools
that are added mid-way become dynamic declarations, so that the prompt before them keeps its ids
(docs/format.md#wire-formats).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gateway.xtml.conversation import (
    Conversation,
    ConversationError,
    Effort,
    MediaPart,
    Message,
    Part,
    ResponseFormat,
    ToolCall,
)
from gateway.xtml.reading import Reading
from gateway.xtml.request.billing import is_billing_line
from gateway.xtml.request.fields import Json, object_at, string_of
from gateway.xtml.request.messages_tools import MessagesTools, read_tool_choice, referred_tool
from gateway.xtml.request.parts import shown
from gateway.xtml.request.results import settle_results

# What a result that reports a failure begins with; the format has no place for the flag itself.
ERROR_MARK = "[error]\n"

_BLOCK_WITHOUT_EFFECT = ("cache_control", "citations", "context", "title", "caller", "source")
_EFFORTS: dict[str, Effort] = {"low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"}
# `budget_tokens` up to which an effort is the nearest.
_BUDGETS: tuple[tuple[int, Effort], ...] = ((4_096, "low"), (16_384, "high"))


def from_messages(body: Json, reading: Reading | None = None) -> Conversation:
    """The conversation of a Messages request; `reading` says how and is told what was found.

    Raises ConversationError.
    """
    items = body.get("messages")
    if not isinstance(items, list) or not items:
        raise ConversationError("messages must be an array with at least one message.", "messages")
    reading = reading or Reading()
    tools = MessagesTools(reading)
    declared = tools.read(body.get("tools"))
    reader = _Reader(reading, tools)
    if (system := reader.system(body.get("system"))) is not None:
        reader.add(system, "system")
    for index, item in enumerate(items):
        reader.message(item, f"messages[{index}]")
    tools.name_deferred()
    messages, params = reader.messages, reader.params
    last = messages[-1] if messages else None
    if last is not None and last.role == "assistant":
        if last.tool_calls:
            raise ConversationError(
                f"{params[-1]}: the last message cannot be an assistant message with tool_use blocks: only "
                "text can be continued. Send the tool results after it.",
                params[-1],
            )
        messages[-1] = replace(last, partial=True)
    thinking, effort = read_thinking(body, reading)
    return Conversation(
        messages=settle_results(messages, params, reading, keep_orphans=True),
        tools=declared,
        thinking=thinking,
        effort=effort,
        tool_choice=read_tool_choice(body.get("tool_choice"), tools.names),
        response_format=_response_format(body.get("output_config")),
    )


def read_thinking(body: Json, reading: Reading) -> tuple[bool, Effort | None]:
    """Whether to think, and how hard: `output_config.effort`, else `thinking.budget_tokens`, else `max`."""
    thinking = object_at(body.get("thinking"), "thinking")
    output = object_at(body.get("output_config"), "output_config")
    reading.look_over(output, "output_config", ("effort", "format"), ("task_budget",))
    effort = output.get("effort")
    if effort is not None and effort not in _EFFORTS:
        raise ConversationError(
            f"output_config.effort must be one of {', '.join(_EFFORTS)}; got {shown(effort)}.",
            "output_config.effort",
        )
    kind = thinking.get("type")
    if kind not in (None, "enabled", "adaptive", "between_tools", "disabled"):
        raise ConversationError(
            "thinking.type must be enabled, adaptive, between_tools or disabled.", "thinking.type"
        )
    reading.look_over(thinking, "thinking", ("type", "budget_tokens"), ("display", "block_binding"))
    if kind == "disabled":
        return False, None
    if effort is not None:
        return True, _EFFORTS[effort]
    budget = thinking.get("budget_tokens")
    if budget is None:
        return True, "max"
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        raise ConversationError(
            "thinking.budget_tokens must be a positive integer.", "thinking.budget_tokens"
        )
    chosen: Effort = next((nearest for most, nearest in _BUDGETS if budget <= most), "max")
    reading.leave_out(f"thinking.budget_tokens (taken as effort {chosen})")
    return True, chosen


class _Reader:
    """Reads messages one after another. A turn that the client split over messages is one message here."""

    def __init__(self, reading: Reading, tools: MessagesTools) -> None:
        self.reading = reading
        self.tools = tools
        self.messages: list[Message] = []
        self.params: list[str] = []

    def add(self, message: Message, param: str) -> None:
        """Append, or merge into an assistant turn that goes on."""
        last = self.messages[-1] if self.messages else None
        if message.role == "assistant" and last is not None and last.role == "assistant":
            self.messages[-1] = replace(
                last,
                parts=last.parts + message.parts,
                reasoning=(last.reasoning or "") + (message.reasoning or "") or None,
                tool_calls=last.tool_calls + message.tool_calls,
            )
            return
        self.messages.append(message)
        self.params.append(param)

    def system(self, value: Any) -> Message | None:
        """The `system` field: text, or text blocks."""
        if value is None or value == "":
            return None
        if isinstance(value, str):
            return Message("system", (value,))
        if not isinstance(value, list):
            raise ConversationError("system must be a string or an array of text blocks.", "system")
        parts = []
        for index, block in enumerate(value):
            param = f"system[{index}]"
            text = self._text(block, param)
            if is_billing_line(text):
                self.reading.leave_out(param)
            else:
                parts.append(text)
        return Message("system", tuple(parts)) if parts else None

    def message(self, item: Any, param: str) -> None:
        """One message of the array."""
        if not isinstance(item, Mapping):
            raise ConversationError(f"{param} must be an object with `role` and `content`.", param)
        self.reading.look_over(
            item, param, ("role", "content"), ("id", "type", "model", "stop_reason", "usage")
        )
        role, content = item.get("role"), item.get("content")
        if role not in ("user", "assistant", "system"):
            raise ConversationError(
                f"{param}.role must be user, assistant or system; got {shown(role)}.", f"{param}.role"
            )
        if isinstance(content, str):
            self.add(Message(role, (content,) if content else ()), param)
            return
        if not isinstance(content, list):
            raise ConversationError(
                f"{param}.content must be a string or an array of blocks.", f"{param}.content"
            )
        blocks = [(block, f"{param}.content[{index}]") for index, block in enumerate(content)]
        for block, where in blocks:
            if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
                raise ConversationError(f"{where} must be an object with a `type`.", where)
        if role == "assistant":
            self.add(self._assistant(blocks), param)
        elif role == "system":
            self._system_message(blocks, param)
        else:
            self._user(blocks, param)

    def _assistant(self, blocks: list[tuple[Json, str]]) -> Message:
        parts: list[Part] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for block, param in blocks:
            match block["type"]:
                case "text":
                    parts.append(self._text(block, param))
                case "thinking":
                    thoughts.append(string_of(block, "thinking", param))
                case "tool_use":
                    calls.append(_call(block, param))
                case _:
                    # Sealed thinking of another service, server tools, compactions...
                    self.reading.leave_out(f"{param} ({block['type'][:60]})")
        return Message(
            "assistant", tuple(parts), reasoning="".join(thoughts) or None, tool_calls=tuple(calls)
        )

    def _user(self, blocks: list[tuple[Json, str]], param: str) -> None:
        """Results and what stands between them, in the client's order."""
        parts: list[Part] = []
        first = param
        referred: list[dict[str, Any]] = []

        def flush() -> None:
            if referred:
                self.add(Message("system", tools=tuple(referred)), param)
                referred.clear()
            if parts:
                self.add(Message("user", tuple(parts)), first)
                parts.clear()

        for block, where in blocks:
            if block["type"] == "tool_result":
                if parts:
                    flush()
                self.add(self._result(block, where, referred), where)
            else:
                if not parts:
                    first = where if referred or len(blocks) > 1 else param
                parts += self._parts(block, where)
        flush()
        if not blocks:
            self.add(Message("user"), param)

    def _result(self, block: Json, param: str, referred: list[dict[str, Any]]) -> Message:
        call_id = string_of(block, "tool_use_id", param)
        self.reading.look_over(
            block, param, ("type", "tool_use_id", "content", "is_error"), _BLOCK_WITHOUT_EFFECT
        )
        content = block.get("content")
        parts: list[Part] = []
        if block.get("is_error") is True:
            parts.append(ERROR_MARK)
        if isinstance(content, str):
            if content:
                parts.append(content)
        elif isinstance(content, list):
            for index, inner in enumerate(content):
                where = f"{param}.content[{index}]"
                if not isinstance(inner, Mapping) or not isinstance(inner.get("type"), str):
                    raise ConversationError(f"{where} must be an object with a `type`.", where)
                if inner["type"] == "tool_reference":
                    if (item := self.tools.add(inner, where)) is not None:
                        referred.append(item)
                    parts.append(f"Tool {string_of(inner, 'tool_name', where)} is now available.\n")
                else:
                    parts += self._parts(inner, where)
        elif content is not None:
            raise ConversationError(
                f"{param}.content must be a string or an array of blocks.", f"{param}.content"
            )
        return Message("tool", tuple(parts), tool_call_id=call_id)

    def _system_message(self, blocks: list[tuple[Json, str]], param: str) -> None:
        """Text, and tools that are added or removed from here on, each in a message of its own."""
        texts: list[Part] = []

        def flush() -> None:
            if texts:
                self.add(Message("system", tuple(texts)), param)
                texts.clear()

        for block, where in blocks:
            match block["type"]:
                case "text":
                    text = self._text(block, where)
                    if is_billing_line(text):
                        self.reading.leave_out(where)
                    else:
                        texts.append(text)
                case "tool_addition":
                    named = referred_tool(block.get("tool")) or object_at(
                        block.get("tool"), f"{where}.tool"
                    ).get("name")
                    back = isinstance(named, str) and named in self.tools.removed
                    item = self.tools.add(block.get("tool"), f"{where}.tool")
                    flush()
                    if item is not None:
                        self.add(Message("system", tools=(item,)), where)
                    elif back:
                        self.add(Message("system", (f"The tool {named} is available again.",)), where)
                case "tool_removal":
                    flush()
                    if (name := self.tools.remove(block.get("tool"), f"{where}.tool")) is not None:
                        note = f"The tool {name} is no longer available. Do not call it."
                        self.add(Message("system", (note,)), where)
                case kind:
                    self.reading.leave_out(f"{where} ({kind[:60]})")
        flush()

    def _parts(self, block: Json, param: str) -> Iterator[Part]:
        """What the model reads of a block of a user message or a tool result."""
        match block["type"]:
            case "text":
                yield self._text(block, param)
            case "image":
                self.reading.look_over(block, param, ("type", "source"), _BLOCK_WITHOUT_EFFECT)
                yield MediaPart("image", _source_url(block, param), param=f"{param}.source")
            case "video":
                self.reading.look_over(block, param, ("type", "source"), _BLOCK_WITHOUT_EFFECT)
                yield MediaPart("video", _source_url(block, param), param=f"{param}.source")
            case "document":
                yield from self._document(block, param)
            case "search_result":
                texts = block.get("content")
                title, source = block.get("title"), block.get("source")
                yield "\n".join(str(line) for line in (title, source) if isinstance(line, str)) + "\n"
                for index, inner in enumerate(texts if isinstance(texts, list) else ()):
                    yield self._text(inner, f"{param}.content[{index}]")
            case kind:
                self.reading.leave_out(f"{param} ({kind[:60]})")

    def _document(self, block: Json, param: str) -> Iterator[Part]:
        source = object_at(block.get("source"), f"{param}.source")
        kind = source.get("type")
        if kind == "text":
            yield string_of(source, "data", f"{param}.source")
        elif kind == "content":
            content = source.get("content")
            if isinstance(content, str):
                yield content
            for index, inner in enumerate(content if isinstance(content, list) else ()):
                where = f"{param}.source.content[{index}]"
                if not isinstance(inner, Mapping) or not isinstance(inner.get("type"), str):
                    raise ConversationError(f"{where} must be an object with a `type`.", where)
                yield from self._parts(inner, where)
        else:
            raise ConversationError(
                f"{param}: Kimi K3 reads no PDF or other files; send their text, or pages as pictures.",
                f"{param}.source",
            )

    def _text(self, block: Any, param: str) -> str:
        if not isinstance(block, Mapping) or block.get("type") != "text":
            raise ConversationError(f"{param} must be a text block.", param)
        if len(block) > 2:
            self.reading.look_over(block, param, ("type", "text"), _BLOCK_WITHOUT_EFFECT)
        return string_of(block, "text", param)


def _call(block: Json, param: str) -> ToolCall:
    name, arguments = string_of(block, "name", param), block.get("input")
    if not isinstance(arguments, Mapping):
        raise ConversationError(f"{param}.input must be an object.", f"{param}.input")
    invalid = arguments.get("invalid_arguments")
    if isinstance(invalid, str) and len(arguments) == 1:
        return ToolCall(string_of(block, "id", param), name, invalid)  # as this service gave them out
    return ToolCall(string_of(block, "id", param), name, dict(arguments))


def _source_url(block: Json, param: str) -> str:
    source = object_at(block.get("source"), f"{param}.source")
    match source.get("type"):
        case "base64":
            kind = source.get("media_type")
            data = string_of(source, "data", f"{param}.source")
            return f"data:{kind if isinstance(kind, str) else 'application/octet-stream'};base64,{data}"
        case "url":
            return string_of(source, "url", f"{param}.source")
        case "file":
            return "ms://" + string_of(source, "file_id", f"{param}.source")
    raise ConversationError(f"{param}.source.type must be base64, url or file.", f"{param}.source.type")


def _response_format(output: Any) -> ResponseFormat:
    value = object_at(output, "output_config").get("format")
    if value is None:
        return ResponseFormat()
    param = "output_config.format"
    if not isinstance(value, Mapping) or value.get("type") != "json_schema":
        raise ConversationError(f"{param}.type must be json_schema.", f"{param}.type")
    if not isinstance(value.get("schema"), dict):
        raise ConversationError(f"{param}.schema must be a JSON schema object.", f"{param}.schema")
    return ResponseFormat("json_schema", value["schema"], True)
