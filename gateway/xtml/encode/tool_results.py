"""The order, names and numbers of tool results (docs/format.md#tool-results)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.xtml.call_matching import call_positions, canonical_id, respelled_positions
from gateway.xtml.conversation import ConversationError, Message, ToolCall


@dataclass(slots=True)
class Placed:
    """`messages[index]` in its place in the prompt; `tool` and `number` are attributes of a tool result."""

    index: int
    tool: str = ""
    number: int = 0


def place_messages(messages: Sequence[Message]) -> list[Placed]:
    """All messages in prompt order.

    The results after an assistant message are put in the order of its calls, if each of them names one
    of those by id; else they stay as they came.
    No result is given the name of another call. Numbers count rendered results from 1 after each
    assistant message. Raises ConversationError where no tool name can be found for a result.
    """
    placed: list[Placed] = []
    calls: tuple[ToolCall, ...] = ()
    n_results = 0
    at = 0
    while at < len(messages):
        if messages[at].role != "tool":
            if messages[at].role == "assistant":
                calls, n_results = messages[at].tool_calls, 0
            placed.append(Placed(at))
            at += 1
            continue
        end = at
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        for index, name in _in_call_order(messages, range(at, end), calls):
            n_results += 1
            tool = name if name is not None else _named(messages[index], index)
            placed.append(Placed(index, tool, n_results))
        at = end
    return placed


def _in_call_order(
    messages: Sequence[Message], run: range, calls: tuple[ToolCall, ...]
) -> list[tuple[int, str | None]]:
    """(message, name of its call) sorted by call; in the given order if any answers none of these calls."""
    by_id = call_positions(calls)
    ids = [messages[at].tool_call_id or "" for at in run]
    if not all(i in by_id for i in ids):
        respelled = respelled_positions(calls)
        by_id |= {
            i: respelled[canonical_id(i)] for i in ids if i not in by_id and canonical_id(i) in respelled
        }
    if not all(i in by_id for i in ids):
        return [(at, calls[by_id[i]].name if i in by_id else None) for i, at in zip(ids, run, strict=True)]
    pairs = sorted((by_id[i], at) for i, at in zip(ids, run, strict=True))
    return [(at, calls[position].name) for position, at in pairs]


def _named(message: Message, index: int) -> str:
    """The name that a result without a call came with: it is not given to another call."""
    name = message.tool if message.tool is not None else message.name
    if name is not None:
        return name
    raise ConversationError(
        f"messages[{index}] is a tool result without a call: its tool_call_id is not among the tool_calls of "
        "the assistant message before it, and it has no `name`. Send the assistant message with the call, "
        "or give the tool's `name`.",
        f"messages[{index}].tool_call_id",
    )
