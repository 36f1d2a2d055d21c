"""Which call a tool result answers (docs/format.md#tool-results)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.xtml.conversation import ToolCall


def call_positions(calls: Sequence[ToolCall]) -> dict[str, int]:
    """Position by id; the first of equal ids wins (docs/format.md#tool-results)."""
    positions: dict[str, int] = {}
    for position, call in enumerate(calls):
        if call.id:
            positions.setdefault(call.id, position)
    return positions


def respelled_positions(calls: Sequence[ToolCall]) -> dict[str, int]:
    """Position by the spelling that all spellings of an id have in common, where only one call has it.

    `functions.x:0` and `x:0` are the same call, also where a proxy wrote `_` for `.` and `:`. A call that
    came without an id goes by its name and place.
    """
    positions: dict[str, int] = {}
    shared: set[str] = set()
    for position, call in enumerate(calls):
        spelling = canonical_id(call.id or f"{call.name}:{position}")
        if spelling in positions and calls[positions[spelling]].id != call.id:
            shared.add(spelling)
        positions.setdefault(spelling, position)
    return {spelling: at for spelling, at in positions.items() if spelling not in shared}


def canonical_id(call_id: str) -> str:
    """What all spellings of a call's id have in common."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id).removeprefix("functions_")
