"""Pins on the real engine: learnt from its events, kept through floods, back after a reset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from engine.client import Engine
from engine.types import EnginePrompt, Sampling
from gateway.assembly import media_library
from gateway.generation.rendering import Renderer
from gateway.pins.pinning import Pinning
from gateway.schema.chat import ChatRequest
from gateway.schema.prefixes import PinRequest
from gateway.settings import Settings
from gateway.wire.chat.request import read_chat
from gateway.xtml import Vocab
from tests.engine.prompts import random_ids, run
from tests.prefix.conftest import FINE_UNIT

SYSTEM = "You are a careful engineer who answers in one short sentence. " * 12
PIN = PinRequest(name="coder", system=SYSTEM, efforts=["max", "low"])


@pytest_asyncio.fixture(loop_scope="session")
async def pinning(fine_engine: Engine, model_folder: Path, vocab: Vocab) -> AsyncIterator[Pinning]:
    settings = Settings(pin_budget_tokens=2000, pin_check_seconds=3600)
    renderer = Renderer(settings, vocab, media_library(settings, model_folder))
    renderer.prefixes.attach(fine_engine.info)
    pinning = Pinning(renderer, fine_engine)
    task = asyncio.create_task(pinning.run())
    yield pinning
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    fine_engine._events.listeners.clear()
    await renderer.media.aclose()


async def cached(pinning: Pinning, effort: str, text: str) -> int:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": text},
    ]
    request = ChatRequest(model="kimi-k3", messages=messages, reasoning_effort=effort)
    rendered = await pinning.renderer.render(read_chat(request))
    steps = await run(pinning.engine, rendered.engine_prompt, Sampling(max_tokens=1), f"chat-{text}")
    return steps[0].n_cached or 0


async def flood(engine: Engine, vocab: Vocab, n_blocks: int, seed: int) -> None:
    """Unrelated prompts of one step, whose blocks and states together fill `n_blocks` and more."""
    for number in range(n_blocks // 3 + 1):
        prompt = EnginePrompt(random_ids(140, 10_000 * seed + number, vocab))
        await run(engine, prompt, Sampling(max_tokens=1), f"flood-{seed}-{number}")


async def test_the_engine_confirms_a_pin_and_its_blocks_are_learnt(pinning: Pinning) -> None:
    pin = await pinning.pin(pinning.renderer.prefixes.tenant(None, None), PIN)
    state = pinning.as_json(pin)
    assert all(rank["warm"] for effort in state["efforts"] for rank in effort["ranks"])
    for prompt in pin.prompts:
        assert prompt.boundary % FINE_UNIT == 0 and prompt.boundary > 128
        assert await cached(pinning, prompt.effort, f"one {prompt.effort}") == prompt.boundary
        async with asyncio.timeout(10):
            while prompt.boundary not in prompt.homes[0].end_of.values():
                await asyncio.sleep(0.02)


async def test_a_pin_survives_a_flood_of_three_caches(pinning: Pinning, vocab: Vocab) -> None:
    pin = await pinning.pin(pinning.renderer.prefixes.tenant(None, None), PIN)
    for seed in range(3):
        await flood(pinning.engine, vocab, pinning.engine.info.n_cache_blocks, seed)  # type: ignore[arg-type]
        for prompt in pin.prompts:
            assert await cached(pinning, prompt.effort, f"after {seed} {prompt.effort}") == prompt.boundary


async def test_without_a_pin_the_same_flood_evicts_the_prefix(pinning: Pinning, vocab: Vocab) -> None:
    assert await cached(pinning, "high", "first") == 0
    assert await cached(pinning, "high", "second") > 0
    await flood(pinning.engine, vocab, 2 * pinning.engine.info.n_cache_blocks, 50)  # type: ignore[arg-type]
    assert await cached(pinning, "high", "after") == 0


async def test_a_pin_is_back_after_a_reset(pinning: Pinning) -> None:
    pin = await pinning.pin(pinning.renderer.prefixes.tenant(None, None), PIN)
    engine: Any = pinning.engine
    async with asyncio.timeout(10):
        while not await engine.reset_prefix_cache():
            await asyncio.sleep(0.05)
        while not all(p.homes[0].n_prefills >= 2 and p.is_warm(0) for p in pin.prompts):
            await asyncio.sleep(0.05)
    for prompt in pin.prompts:
        assert await cached(pinning, prompt.effort, f"reset {prompt.effort}") == prompt.boundary
