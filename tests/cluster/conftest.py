"""Two data-parallel ranks, real processes: the profile `cpu-mini-dp2`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
import pytest_asyncio

from engine.client import Engine
from engine.profiles import get_profile
from gateway.xtml import Vocab

RANK_FORM = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def vocab(model_folder: Path) -> Vocab:
    return Vocab.load(model_folder)


async def start_ranks(model_folder: Path) -> Engine:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("K3_MODEL", str(model_folder))
        return await Engine.start(get_profile("cpu-mini-dp2"), model_folder)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def ranks(model_folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    running = await start_ranks(model_folder)
    together = await running.rank_rpc("k3_n_ranks_in_step")
    request.config.stash[RANK_FORM] = (
        "two ranks that share every expert and step together"
        if together == [[2], [2]]
        else f"two ranks independent of each other ({together})"
    )
    yield running
    await running.shutdown()


@contextmanager
def environment_of_rank(rank: int, name: str, value: str) -> Iterator[None]:
    """Processes of one data-parallel rank start with another environment, as on a second machine."""
    stock = SpawnProcess.start

    def start(process: SpawnProcess) -> None:
        if process.name != f"EngineCore_DP{rank}":
            return stock(process)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(name, value)
            return stock(process)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SpawnProcess, "start", start)
        yield
    assert name not in os.environ


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if (form := config.stash.get(RANK_FORM, None)) is not None:
        terminalreporter.write_line(f"data-parallel form: {form}")
