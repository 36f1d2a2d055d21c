"""What tests of several packages share: one mini checkpoint and one running engine for the whole session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine.client import Engine
from engine.mini.build import checkpoint_dir
from engine.profiles import get_profile


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return checkpoint_dir()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(model_folder: Path) -> AsyncIterator[Engine]:
    """vLLM serving the mini K3 in float32, as the `cpu-mini` profile has it."""
    with pytest.MonkeyPatch.context() as environment:
        # Set by the start for vLLM's processes; programs that later tests start must not inherit it.
        environment.setenv("K3_MODEL", str(model_folder))
        running = await Engine.start(get_profile("cpu-mini"), model_folder)
    yield running
    await running.shutdown()
