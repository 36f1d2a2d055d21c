"""What the scripted core and the measuring process agree on: how long a step takes, its answers, its log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.xtml import Vocab

EXECUTOR = "bench.serve.executor.ScriptedExecutor"
# (requests in a step, seconds it takes), as a GPU's steps grow with the batch.
STEP_SECONDS: Sequence[tuple[int, float]] = ((8, 0.005), (32, 0.010), (64, 0.020), (10**9, 0.100))
REASONING = "The user asks about rivers and lakes. I recall what is known and put it in order. "
CONTENT = (
    "Rivers carry water from hills to lakes and the sea. A lake keeps it for years, a river for days. "
    "In spring the snow melts and both rise; in a dry summer the smaller ones vanish altogether.\n\n"
)


def step_seconds(n_requests: int) -> float:
    """How long a paced step of so many requests takes."""
    return next(seconds for most, seconds in STEP_SECONDS if n_requests <= most)


def write_script(path: Path, vocab: Vocab) -> None:
    """A reply that thinks for some sentences and then goes on about rivers for as long as it may."""
    opened = [
        vocab.close,
        *vocab.encode("think"),
        vocab.sep,
        vocab.open,
        *vocab.encode("response"),
        vocab.sep,
    ]
    tokens = [*vocab.encode(REASONING * 2), *opened]
    path.write_text(json.dumps({"tokens": tokens + vocab.encode(CONTENT), "loop_from": len(tokens)}))


@dataclass(frozen=True, slots=True)
class FirstToken:
    """When the core had a request in a step for the last time before its first token, and gave that token.

    Times are seconds of the machine's monotonic clock, which all processes share.
    """

    scheduled: float
    given: float
    n_prompt: int
    n_computed: int

    @classmethod
    def read_all(cls, path: Path) -> list[FirstToken]:
        rows = (line.split() for line in path.read_text().splitlines())
        return [cls(float(a), float(b), int(c), int(d)) for a, b, c, d in rows]
