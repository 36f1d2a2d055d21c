"""Where a prompt's tokens went: read from the cache, or lost to a change, a boundary or eviction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.prefix.sections import Match


@dataclass(slots=True)
class Account:
    """All counts in tokens.

    n_shared: in common with earlier prompts and completions (a lower bound)
    possible: `n_shared`, at most the prompt less one, floored to the unit: the engine computes at least one
    kept:     the largest boundary in there at which an earlier prompt surely left its state
    n_cached: what the engine read from its cache; None before it said so
    """

    n_prompt: int
    n_shared: int
    possible: int
    kept: int
    n_before: int
    changed: str | None
    changed_kind: str | None
    rank: int = 0
    n_cached: int | None = None

    @property
    def lost_to_change(self) -> int:
        """Of the last prompt that began alike, what stood behind the change."""
        return max(min(self.n_before, self.n_prompt) - self.n_shared, 0) if self.changed else 0

    @property
    def lost_to_eviction(self) -> int | None:
        """Had been computed and kept, and was no longer there."""
        return None if self.n_cached is None else max(self.kept - self.n_cached, 0)

    @property
    def lost_to_boundary(self) -> int:
        """Shared, but behind the last boundary with a state."""
        return max(self.n_shared - max(self.kept, self.n_cached or 0), 0)

    def header(self, n_prompt: int | None = None) -> str:
        """`k3-prefix`; `cached=?` where the headers went out before the engine began."""
        n_prompt = self.n_prompt if n_prompt is None else n_prompt
        # The engine's prompt may be longer than the one that is billed, and so may what it found of it.
        cached = "?" if self.n_cached is None else min(self.n_cached, n_prompt)
        shown = f"cached={cached}/{n_prompt}"
        return f"{shown} changed={self.changed}" if self.changed else shown

    def as_json(self) -> dict[str, Any]:
        """For `POST /v1/prefixes/explain`."""
        return {
            "prompt_tokens": self.n_prompt,
            "shared_tokens": self.n_shared,
            "possible_tokens": self.possible,
            "cached_tokens": self.n_cached,
            "changed": self.changed,
            "rank": self.rank,
            "lost": {
                "change": self.lost_to_change,
                "boundary": self.lost_to_boundary,
                "eviction": self.lost_to_eviction,
            },
        }


def account(match: Match, n_prompt: int, unit: int, rank: int = 0) -> Account:
    """The account of a prompt before it runs; set `n_cached` when the engine says it."""
    possible = min(match.n_shared, n_prompt - 1) // unit * unit
    boundaries = [node.boundary for node in match.known if node.boundary <= possible]
    return Account(
        n_prompt,
        match.n_shared,
        possible,
        max(boundaries, default=0),
        match.n_before,
        match.changed,
        match.changed_kind,
        rank,
    )
