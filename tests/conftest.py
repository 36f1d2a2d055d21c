"""What tests of several packages share: one mini checkpoint and one running engine for the whole session."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import settings as hypothesis_settings

from engine.client import Engine
from engine.mini.build import checkpoint_dir
from engine.profiles import get_profile

# How many random cases: `dev` is `make check`, `ci` (also if unset) `make test`.
PROFILE = os.environ.get("K3_TEST_PROFILE", "ci")
hypothesis_settings.register_profile("dev", max_examples=20, deadline=None)
hypothesis_settings.register_profile("ci", max_examples=100, deadline=None)
hypothesis_settings.load_profile(PROFILE)

# Fixtures and folders by which a test needs vLLM's engine, or a server of its own.
_ENGINES = {"engine", "fine_engine", "mini_server"}
_ENGINE_FOLDERS = (
    "tests/agents/",
    "tests/clients/",
    "tests/deploy/",
    "tests/e2e/",
    "tests/patches/",
)
_SERVERS = {"server"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make check` leaves out."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & _ENGINES or item.nodeid.startswith(_ENGINE_FOLDERS):
            item.add_marker("engine")
        if fixtures & _SERVERS:
            item.add_marker("server")


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
