"""`context_management.edits`: what a Messages request asks to be left out of its own history.

Both kinds shorten the prompt, and so end the prefix that is cached where they first leave something out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.xtml import ConversationError, Reading

Json = dict[str, Any]

_CLEARED = "[Old tool result content cleared]"
_KEPT_TOOL_USES = 3


def apply_edits(messages: list[Json], management: Mapping[str, Any], reading: Reading) -> list[Json]:
    """The messages as the edits leave them; other kinds of edits are named in `reading`.

    Triggers that count input tokens cannot be judged before the prompt is written: such an edit is named and
    does nothing; one with a trigger of tool uses, or without one, is applied.

    Raises ConversationError.
    """
    edits = management.get("edits")
    if edits is None:
        return messages
    if not isinstance(edits, list):
        raise ConversationError("context_management.edits must be an array.", "context_management.edits")
    for index, edit in enumerate(edits):
        param = f"context_management.edits[{index}]"
        kind = edit.get("type") if isinstance(edit, Mapping) else None
        if not isinstance(edit, Mapping) or not isinstance(kind, str):
            raise ConversationError(f"{param} must be an object with a `type`.", param)
        if kind == "clear_thinking_20251015":
            messages = _clear_thinking(messages, _turns_kept(edit, param))
        elif kind == "clear_tool_uses_20250919" and (kept := _tool_uses_kept(messages, edit)) is not None:
            messages = _clear_tool_results(messages, kept, edit)
        else:
            reading.leave_out(f"{param} ({kind[:60]})")
    return messages


def _turns_kept(edit: Mapping[str, Any], param: str) -> int | None:
    """How many of the last assistant turns keep their thinking; None is all."""
    keep = edit.get("keep", {"type": "thinking_turns", "value": 1})
    if keep == "all" or (isinstance(keep, Mapping) and keep.get("type") == "all"):
        return None
    value = keep.get("value") if isinstance(keep, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConversationError(
            f'{param}.keep must be "all" or {{"type": "thinking_turns", "value": N}}.', f"{param}.keep"
        )
    return value


def _clear_thinking(messages: list[Json], n_kept: int | None) -> list[Json]:
    """Without the thinking of all but the last turns; a turn begins with a message of the user."""
    if n_kept is None:
        return messages
    turns = 0
    edited = list(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        content = message.get("content")
        if message.get("role") == "user" and not _only_results(content):
            turns += 1
        elif message.get("role") == "assistant" and turns >= n_kept and isinstance(content, list):
            kept = [b for b in content if not (isinstance(b, Mapping) and "thinking" in str(b.get("type")))]
            edited[index] = {**message, "content": kept}
    return edited


def _only_results(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content
    )


def _tool_uses_kept(messages: list[Json], edit: Mapping[str, Any]) -> int | None:
    """How many tool uses keep their results; None where the edit is not to be applied."""
    trigger = edit.get("trigger")
    keep = edit.get("keep")
    n_kept = keep.get("value") if isinstance(keep, Mapping) else None
    n_kept = n_kept if isinstance(n_kept, int) and n_kept >= 0 else _KEPT_TOOL_USES
    if isinstance(trigger, Mapping):
        if trigger.get("type") != "tool_uses" or not isinstance(trigger.get("value"), int):
            return None
        if len(_results(messages)) <= trigger["value"]:
            return len(_results(messages))
    return n_kept


def _results(messages: list[Json]) -> list[tuple[int, int]]:
    """Where the tool results stand: message and block."""
    return [
        (at, number)
        for at, message in enumerate(messages)
        if isinstance(message.get("content"), list)
        for number, block in enumerate(message["content"])
        if isinstance(block, Mapping) and block.get("type") == "tool_result"
    ]


def _clear_tool_results(messages: list[Json], n_kept: int, edit: Mapping[str, Any]) -> list[Json]:
    excluded = edit.get("exclude_tools")
    excluded = excluded if isinstance(excluded, list) else []
    names = {
        block.get("id"): block.get("name")
        for message in messages
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if isinstance(block, Mapping) and block.get("type") == "tool_use"
    }
    places = _results(messages)
    edited = list(messages)
    for at, number in places[: max(len(places) - n_kept, 0)]:
        content = list(edited[at]["content"])
        if names.get(content[number].get("tool_use_id")) in excluded:
            continue
        content[number] = {**content[number], "content": _CLEARED}
        edited[at] = {**edited[at], "content": content}
    return edited
