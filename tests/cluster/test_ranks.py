"""Two ranks compute what one does; what is asked of ranks reaches both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engine.client import Engine
from engine.types import BlocksStored, CacheCleared, CacheEvent, EnginePrompt, Sampling, Step
from gateway.app import build_app
from gateway.assembly import media_library
from gateway.service import Service
from gateway.settings import Settings
from gateway.xtml import Vocab
from tests.cluster.conftest import environment_of_rank, start_ranks
from tests.engine.prompts import prompt_with_media, random_ids, run, tokens

pytestmark = pytest.mark.slow

TOLERANCE = 1e-3  # nats
GREEDY = Sampling(max_tokens=12, temperature=0.0, logprobs=5, ignore_eos=True)
SWITCH = "KIMI_K3_VISION_DTYPE"


def on(rank: int) -> Sampling:
    return replace(GREEDY, data_parallel_rank=rank)


def same(one: list[Step], other: list[Step]) -> None:
    assert tokens(one) == tokens(other)
    pairs = zip(
        (position for step in one for position in step.logprobs or ()),
        (position for step in other for position in step.logprobs or ()),
        strict=True,
    )
    for ours, theirs in pairs:
        assert ours.logprob == pytest.approx(theirs.logprob, abs=TOLERANCE)
        expected = dict(theirs.top)
        for token, value in ours.top:
            # The fifth likeliest of one may be the sixth of the other.
            assert value == pytest.approx(expected.get(token, min(expected.values())), abs=TOLERANCE)


async def test_each_rank_alone_is_as_one_engine(engine: Engine, ranks: Engine, vocab: Vocab) -> None:
    """The other rank has no request and computes along with an empty one."""
    prompts = [
        EnginePrompt(random_ids(40, 1, vocab)),
        EnginePrompt(random_ids(700, 2, vocab)),
        prompt_with_media([(1, 6, 10), (4, 8, 12)], 3, vocab),
    ]
    for number, prompt in enumerate(prompts):
        expected = await run(engine, prompt, GREEDY, f"one-{number}")
        for rank in (0, 1):
            same(await run(ranks, prompt, on(rank), f"alone-{rank}-{number}"), expected)


async def test_both_ranks_at_once_are_as_one_engine(engine: Engine, ranks: Engine, vocab: Vocab) -> None:
    """Steps of different sizes meet: one rank decodes while the other is amid a prompt of several steps."""
    lengths = (1, 30, 300, 900, 17, 513)
    prompts = [EnginePrompt(random_ids(n, 100 + n, vocab)) for n in lengths]
    expected = [await run(engine, p, GREEDY, f"both-one-{i}") for i, p in enumerate(prompts)]
    found = await asyncio.gather(
        *(run(ranks, prompt, on(number % 2), f"both-{number}") for number, prompt in enumerate(prompts))
    )
    for ours, theirs in zip(found, expected, strict=True):
        same(ours, theirs)


async def test_calls_reach_the_workers_of_both_ranks(ranks: Engine) -> None:
    assert await ranks.rank_rpc("k3_plugin_registered") == [[True], [True]]
    assert [report["data_parallel_rank"] for report in await ranks.patch_reports()] == [0, 1]
    assert len({report["pid"] for report in await ranks.patch_reports()}) == 2
    assert (await ranks.patch_overview())["agreed"]


async def test_the_cache_is_counted_for_one_rank(engine: Engine, ranks: Engine) -> None:
    assert ranks.info.n_data_parallel_ranks == 2
    assert ranks.info.n_cache_blocks == engine.info.n_cache_blocks
    assert ranks.info.n_cache_tokens == engine.info.n_cache_tokens
    assert ranks.info.state_groups == engine.info.state_groups != frozenset()


async def test_cache_events_of_both_ranks_are_read(ranks: Engine, vocab: Vocab) -> None:
    events: list[CacheEvent] = []
    ranks.on_cache_event(events.append)
    for rank in (0, 1):
        events.clear()
        ids = random_ids(300, 50 + rank, vocab)
        await run(ranks, EnginePrompt(ids), on(rank), f"events-{rank}")
        async with asyncio.timeout(20):
            while not any(isinstance(event, BlocksStored) for event in events):
                await asyncio.sleep(0.02)
        stored = [event for event in events if isinstance(event, BlocksStored)]
        assert {event.rank for event in stored} == {rank}
        assert any(list(event.token_ids)[:128] == ids[:128] for event in stored)
        again = await run(ranks, EnginePrompt(ids), on(rank), f"events-again-{rank}")
        other = await run(ranks, EnginePrompt(ids), on(1 - rank), f"events-other-{rank}")
        assert (again[0].n_cached, other[0].n_cached) == (256, 0)
    events.clear()
    assert await ranks.reset_prefix_cache()
    assert {event.rank for event in events if isinstance(event, CacheCleared)} == {0, 1}


@asynccontextmanager
async def served(engine: Engine, model_folder: Path, vocab: Vocab) -> AsyncIterator[httpx.AsyncClient]:
    """The whole service over an engine that runs already, and that goes on afterwards."""
    settings = Settings()

    async def start(report: Callable[[str], None]) -> Engine:
        return engine

    async def keep() -> None:
        return None

    service = Service(
        settings, model_folder, vocab, media_library(settings, model_folder), start, lambda error: None
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "shutdown", keep)
        running = asyncio.create_task(service.run_engine())
        transport = httpx.ASGITransport(build_app(service))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                yield http
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def ready_says(http: httpx.AsyncClient, text: str) -> httpx.Response:
    async with asyncio.timeout(30):
        while text not in (answer := await http.get("/ready")).text:
            await asyncio.sleep(0.05)
    return answer


async def test_load_is_shared_where_prefixes_do_not_matter(
    ranks: Engine, model_folder: Path, vocab: Vocab
) -> None:
    events: list[CacheEvent] = []
    ranks.on_cache_event(events.append)
    bodies = [
        {"messages": [{"role": "user", "content": f"{number} " * 200}], "max_tokens": 8, "model": "kimi-k3"}
        for number in range(8)
    ]
    async with served(ranks, model_folder, vocab) as http:
        await ready_says(http, '"ready"')
        calls = (http.post("/v1/chat/completions", json=body, timeout=120) for body in bodies)
        replies = await asyncio.gather(*calls)
    assert [reply.status_code for reply in replies] == [200] * 8
    async with asyncio.timeout(20):
        while len({event.rank for event in events}) < 2:
            await asyncio.sleep(0.02)


async def test_a_rank_that_is_patched_otherwise_is_named(model_folder: Path, vocab: Vocab) -> None:
    with environment_of_rank(1, SWITCH, "0"):
        engine = await start_ranks(model_folder)
    try:
        overview = await engine.patch_overview()
        assert not overview["agreed"] and overview["problems"]
        assert all(problem.startswith("data-parallel rank 1, ") for problem in overview["problems"])
        async with served(engine, model_folder, vocab) as http:
            ready = await ready_says(http, "data-parallel rank 1")
            assert ready.status_code == 503 and SWITCH in ready.json()["detail"]
            body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}]}
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 503
    finally:
        await engine.shutdown()
