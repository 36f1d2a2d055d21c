"""Token counts of one request, and their sums over all requests of this process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["finished", "aborted", "failed"]


@dataclass(slots=True)
class Counts:
    """Tokens of a running request; those of completions over all choices.

    n_prompt: as the setting `prompt_tokens` counts it
    n_cached: of the prompt, read from the engine's prefix cache
    """

    n_prompt: int = 0
    n_cached: int = 0
    n_completion: int = 0
    n_reasoning: int = 0
    n_image: int = 0
    n_video: int = 0


@dataclass(slots=True)
class Totals:
    """Sums over the completions of this process.

    tokens:   by kind: prompt, cached (part of prompt), completion, reasoning (part of completion)
    outcomes: requests by how they ended: finished, aborted (the client left), failed
    repairs:  deviations from the chat format by kind (docs/concepts/decoding.md)
    """

    tokens: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome, counts: Counts, repairs: Counter[str]) -> None:
        """One request has ended."""
        self.outcomes[outcome] += 1
        self.tokens["prompt"] += counts.n_prompt
        self.tokens["cached"] += counts.n_cached
        self.tokens["completion"] += counts.n_completion
        self.tokens["reasoning"] += counts.n_reasoning
        self.repairs.update(repairs)
