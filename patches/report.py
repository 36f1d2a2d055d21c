"""What became of each patch, as people and other processes read it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["applied", "already fixed", "not applicable", "off", "failed"]

LINE_PREFIX = "Kimi-K3 runtime patch:"


class PatchError(RuntimeError):
    """A patch that is needed could not be applied, and K3_PATCHES=strict forbids to go on without it."""


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """One defect of a patch that mends several."""

    state: State
    evidence: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table. `parts` is empty for a patch that mends one defect."""

    patch: str
    switch: str
    state: State
    evidence: str
    fixes: str
    fixed_since: str | None
    parts: Mapping[str, PartOutcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """All patches in one process. `version` identifies the patch set, `engine_version` the vLLM under it."""

    version: str
    engine_version: str
    model: str | None
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.state == "failed")

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain JSON values."""
        return [asdict(outcome) for outcome in self.outcomes]

    def lines(self) -> list[str]:
        """One log line per patch."""
        return [f"{LINE_PREFIX} {o.switch} {o.state}: {o.evidence}" for o in self.outcomes]

    def to_json(self, rank: int | None = None, data_parallel_rank: int = 0) -> dict[str, Any]:
        """What a process says of itself. `rank` is that of a worker within its data-parallel rank, None for
        the front end."""
        return {
            "rank": rank,
            "data_parallel_rank": data_parallel_rank,
            "pid": os.getpid(),
            "version": self.version,
            "engine_version": self.engine_version,
            "model": self.model,
            "patches": self.rows(),
        }


def _states(process: Mapping[str, Any]) -> dict[str, str]:
    states = {}
    for row in process["patches"]:
        states[row["switch"]] = row["state"]
        states |= {f"{row['switch']}/{name}": part["state"] for name, part in row["parts"].items()}
    return states


def _name(rank: Mapping[str, Any], several: bool) -> str:
    if several:
        return f"data-parallel rank {rank['data_parallel_rank']}, worker {rank['rank']}"
    return f"rank {rank['rank']}"


def agree(front: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the engine's ranks cannot be trusted to compute the same thing; empty when all agree.

    Both are `Report.to_json` values: the front end's and, through `collective_rpc("k3_patch_report")`,
    one of each worker.
    """
    problems = [] if ranks else ["no rank has reported"]
    several = len({rank["data_parallel_rank"] for rank in ranks}) > 1
    for process, name in [(front, "front end"), *((rank, _name(rank, several)) for rank in ranks)]:
        if not process["patches"]:
            problems.append(f"{name}: patches were never applied (is k3_gateway in VLLM_PLUGINS?)")
            continue
        problems += [
            f"{name}: {row['switch']} failed: {row['evidence']}"
            for row in process["patches"]
            if row["state"] == "failed"
        ]
        for key, what in (("version", "patch set"), ("engine_version", "vLLM")):
            if process[key] != front[key]:
                problems.append(f"{name}: {what} {process[key]}, the front end has {front[key]}")
        theirs, ours = _states(process), _states(front)
        problems += [
            f"{name}: {switch} is {theirs.get(switch, 'missing')}, "
            f"in the front end {ours.get(switch, 'missing')}"
            for switch in sorted(theirs.keys() | ours.keys())
            if front["patches"] and theirs.get(switch) != ours.get(switch)
        ]
    return problems


def overview(front: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The body of `GET /v1/engine/patches`."""
    problems = agree(front, ranks)
    return {
        "object": "engine.patches",
        "version": front["version"],
        "engine_version": front["engine_version"],
        "agreed": not problems,
        "problems": problems,
        "data": front["patches"],
        "ranks": list(ranks),
    }
