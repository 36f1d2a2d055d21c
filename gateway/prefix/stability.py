"""Options that make prompts of one client more alike. Both change what the model reads, so both are off
until configured, and the reply's header `k3-stability` says when one did something."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.xtml import Conversation, Message


@dataclass(frozen=True, slots=True)
class Stabilised:
    """notes: what was done; n_moved: messages at the conversation's end that the client did not send"""

    conversation: Conversation
    notes: tuple[str, ...] = ()
    n_moved: int = 0


class Stability:
    """sort_tools:     declare tools in the order of their names
    volatile_lines: regular expressions; a line of the first system message that one of them matches from its
                    beginning is moved to a system message of its own at the prompt's end, where K3's notes on
                    tool choice stand too. There it costs its own length in each turn, not the history's
                    (docs/decisions.md#c06).
    """

    def __init__(self, *, sort_tools: bool = False, volatile_lines: Sequence[str] = ()) -> None:
        self.sort_tools = sort_tools
        self.volatile = [re.compile(pattern) for pattern in volatile_lines]

    def apply(self, conversation: Conversation) -> Stabilised:
        """The conversation as it is to be rendered."""
        notes: list[str] = []
        if self.sort_tools and conversation.tools:
            tools = tuple(sorted(conversation.tools, key=_tool_name))
            if tools != conversation.tools:
                conversation = replace(conversation, tools=tools)
                notes.append("sorted-tools")
        n_moved = 0
        if self.volatile and (lines := self._take_lines(conversation)):
            moved, messages = lines
            last = len(messages) - conversation.partial  # the model goes on with a partial message
            note = Message("system", ("\n".join(moved),))
            conversation = replace(conversation, messages=(*messages[:last], note, *messages[last:]))
            notes.append(f"moved-lines={len(moved)}")
            n_moved = 1
        return Stabilised(conversation, tuple(notes), n_moved)

    def _take_lines(self, conversation: Conversation) -> tuple[list[str], tuple[Message, ...]] | None:
        """Volatile lines of the first message if that is a system message, and the messages without them."""
        first, *rest = conversation.messages
        if first.role != "system" or first.tools:
            return None
        moved: list[str] = []
        parts = tuple(self._keep(part, moved) if isinstance(part, str) else part for part in first.parts)
        return (moved, (replace(first, parts=parts), *rest)) if moved else None

    def _keep(self, text: str, moved: list[str]) -> str:
        kept: list[str] = []
        for line in text.split("\n"):
            (moved if any(pattern.match(line) for pattern in self.volatile) else kept).append(line)
        return "\n".join(kept)


def _tool_name(tool: dict[str, object]) -> str:
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else ""
