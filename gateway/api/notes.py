"""Notes of a generation as `k3-*` headers."""

from __future__ import annotations

from gateway.generation.notes import Notes

# What a browser's script may read of replies (docs/reference/api.md).
REPLY_HEADERS = (
    "retry-after",
    "x-request-id",
    "k3-effort",
    "k3-grammar-loosened",
    "k3-history",
    "k3-history-repair",
    "k3-ignored",
    "k3-media",
    "k3-prefix",
    "k3-repairs",
    "k3-stability",
)


def note_headers(notes: Notes) -> dict[str, str]:
    """All notes made so far. They may quote the request: what HTTP does not take is escaped as in Python."""
    return {f"k3-{name}": value.encode("unicode_escape").decode() for name, value in notes.sent().items()}
