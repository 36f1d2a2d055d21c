"""Ids for tool calls. The wire format has none, so the server makes them up (docs/format.md#call-ids)."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterable
from typing import Literal

_ALPHABET = string.ascii_letters + string.digits


def opaque_call_id(name: str) -> str:
    """`call_` and 24 random letters and digits; the tool's `name` does not show."""
    return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(24))


class CallIds:
    """Makes ids that match `^[A-Za-z0-9_-]+$` and are none of the conversation's.

    style:   "opaque", or "positional": `{name}_{n}`, n counting the calls of the conversation from 0
    history: the id of each call already in the conversation, None for a call without one
    """

    def __init__(self, style: Literal["opaque", "positional"], history: Iterable[str | None] = ()) -> None:
        ids = list(history)
        self._style = style
        self._taken = set(ids)
        self._next = len(ids)

    def __call__(self, name: str) -> str:
        call_id = self._make(name)
        while call_id in self._taken:
            call_id = self._make(name)
        self._taken.add(call_id)
        return call_id

    def _make(self, name: str) -> str:
        if self._style == "opaque":
            return opaque_call_id(name)
        self._next += 1
        return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}_{self._next - 1}"
