from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from engine.client import Engine
from engine.profiles import get_profile
from tests.api.conftest import checkpoint, ids, pushes, server, vocab

__all__ = ["checkpoint", "ids", "pushes", "server", "vocab"]

FINE_UNIT = 32


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fine_engine(model_folder: Path) -> AsyncIterator[Engine]:
    """vLLM with prefix hits finer than a block of 128 tokens, and a cache that is soon full (42 blocks)."""
    small = {"prefix_match_unit": FINE_UNIT, "kv_cache_memory_bytes": 24 << 20, "max_model_len": 2048}
    running = await Engine.start(get_profile("cpu-mini"), model_folder, small)
    yield running
    await running.shutdown()
