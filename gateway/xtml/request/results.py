"""Tool results and the calls that they answer (docs/decisions.md#r18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.xtml.call_matching import call_positions, canonical_id, respelled_positions
from gateway.xtml.conversation import ConversationError, Message, ToolCall
from gateway.xtml.reading import Reading


def settle_results(
    messages: Sequence[Message], params: Sequence[str], reading: Reading, *, keep_orphans: bool
) -> tuple[Message, ...]:
    """The messages, every tool result with the name of the call that it answers by its id.

    A result goes to no other call. One whose id no call before it has is refused; with `keep_orphans` it
    stays in its place, named in `reading.history`: with the name it came with, as a result without a call,
    and without a name as a user's text, since the format cannot say a result of nothing. Calls that nothing
    answers are named too.

    params:       where each message stands, such as `messages[3]` or `input[3]`
    keep_orphans: true in formats whose clients trim and compact histories, false in chat

    Raises:
        ConversationError: an unknown id without `keep_orphans`; with `reading.strict_history` any result
            without a call and any call without a result.
    """
    known: dict[str, str] = {}  # id of every call so far -> name
    calls = _Calls((), "")
    settled: list[Message] = []
    for message, param in zip(messages, params, strict=True):
        if message.role == "assistant":
            _name_unanswered(calls, reading, in_chat=not keep_orphans)
            calls = _Calls(message.tool_calls, param)
            known |= {call.id: call.name for call in message.tool_calls if call.id}
        elif message.role == "tool":
            call_id = message.tool_call_id or ""
            name = calls.answer(call_id) or known.get(call_id)
            if name is None:
                message = _orphan(message, param, reading, keep=keep_orphans)
            elif message.tool != name:
                message = replace(message, tool=name)
        settled.append(message)
    _name_unanswered(calls, reading, in_chat=not keep_orphans)
    return tuple(settled)


class _Calls:
    """The calls of the last assistant message, and which of them were answered."""

    def __init__(self, calls: tuple[ToolCall, ...], param: str) -> None:
        self.calls = calls
        self.param = param
        self.open = set(range(len(calls)))
        self._by_id = call_positions(calls) if calls else {}
        self._respelled = respelled_positions(calls) if calls else {}

    def answer(self, call_id: str) -> str | None:
        """The name of the call with this id, which is answered now."""
        position = self._by_id.get(call_id)
        if position is None and self._respelled:
            position = self._respelled.get(canonical_id(call_id))
        if position is None:
            return None
        self.open.discard(position)
        return self.calls[position].name


def _orphan(message: Message, param: str, reading: Reading, *, keep: bool) -> Message:
    call_id = (message.tool_call_id or "")[:100]
    where = param if keep else f"{param}.tool_call_id"
    if not keep or reading.strict_history:
        raise ConversationError(
            f"{where}: no call before this result has the id {call_id!r}. Send the assistant message with "
            "the call, or leave the result out.",
            where,
        )
    reading.say(f"{param}: a result without its call ({call_id})")
    if message.tool or message.name:
        return message
    return Message("user", (f"The result of an earlier tool call, {call_id}:\n", *message.parts))


def _name_unanswered(calls: _Calls, reading: Reading, *, in_chat: bool) -> None:
    for position in sorted(calls.open):
        call = calls.calls[position]
        called = f"{call.name} ({call.id})" if call.id else call.name
        where = f"{calls.param}.tool_calls[{position}]" if in_chat else calls.param
        if reading.strict_history:
            raise ConversationError(
                f"{where}: nothing after it gives the result of the call {called[:200]!r}. Send its result, "
                "or leave the call out.",
                where,
            )
        reading.say(f"{where}: a call without its result ({called[:100]})")
