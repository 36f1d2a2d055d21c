"""What a client is told about how its request was done, beside the reply itself.

| note | when it is known |
|---|---|
| `ignored`, `effort`, `media`, `stability` | before the engine runs: a header |
| `history`, `history-repair`, `grammar-loosened` | likewise |
| `prefix` | a header; again in the last chunk where the engine had not said by then what it found |
| `repairs` | at the end: a header of a whole reply, in the last chunk of a stream |

Below `gateway.api` notes have plain names; there they become `k3-*` headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Notes:
    """Notes by name, in the order in which they were made. Values may quote the request."""

    def __init__(self, notes: Mapping[str, str] | None = None) -> None:
        self._notes: dict[str, str] = dict(notes or {})
        self._sent: dict[str, str] | None = None

    def __setitem__(self, name: str, value: str) -> None:
        self._notes[name] = value

    def __getitem__(self, name: str) -> str:
        return self._notes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._notes

    def update(self, notes: Mapping[str, str]) -> None:
        """Set several."""
        self._notes.update(notes)

    def add(self, name: str, values: Iterable[str], limit: int = 1000) -> None:
        """Append to a list-like note, at most `limit` characters of it."""
        before = [self._notes[name]] if name in self._notes else []
        if said := "; ".join([*before, *values]):
            self._notes[name] = said[:limit]

    def sent(self) -> dict[str, str]:
        """All notes so far, which go out now as headers."""
        self._sent = dict(self._notes)
        return self._sent

    def late(self) -> dict[str, str]:
        """Notes made or changed after `sent`."""
        before = self._sent or {}
        return {name: value for name, value in self._notes.items() if before.get(name) != value}
