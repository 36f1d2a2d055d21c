"""Which of vLLM's engine processes ended, and how: people look for the reason in that one's messages."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import Any

_POLL_SECONDS = 0.1
_N_POLLS = 50
_RANK = re.compile(r"_DP(\d+)$")


async def cause_of_death(manager: Any, n_ranks: int = 1) -> str:
    """A sentence that names the process that ended first, its data-parallel rank where there are several, and
    how it ended.

    manager: vLLM's `CoreEngineProcManager`, or None where its processes are not children of this one (Ray)
    """
    name = None
    for _ in range(_N_POLLS):  # an engine that fails says so before its process has ended
        name = getattr(manager, "failed_proc_name", None)
        if name is not None or manager is None:
            break
        await asyncio.sleep(_POLL_SECONDS)
    if name is None:
        return "an engine process has ended"
    exit_code = next((process.exitcode for process in manager.processes if process.name == name), None)
    return describe(name, exit_code, n_ranks)


def describe(name: str, exit_code: int | None, n_ranks: int) -> str:
    """`name` is vLLM's name of the process: EngineCore, or EngineCore_DP1 of rank 1."""
    rank = _RANK.search(name)
    who = f"the process of data-parallel rank {rank[1]}" if rank else "the engine process"
    how = "has ended"
    if exit_code is not None and exit_code < 0:
        how = f"was ended by {_signal_name(-exit_code)}"
    elif exit_code is not None:
        how = f"has ended with status {exit_code}"
    others = "; the other ranks cannot go on without it" if rank and n_ranks > 1 else ""
    return f"{who} {how}{others}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
