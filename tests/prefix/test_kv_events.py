"""The event reader against vLLM's own publisher, over a real socket; what pins make of events."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm.distributed.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVEventBatch,
    ZmqEventPublisher,
)

from engine.kv_events import KvEventReader, local_config
from engine.types import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    CacheEventsLost,
    EngineInfo,
    EnginePrompt,
)
from gateway.pins.book import Home, Pin, PinBook, PinnedPrompt
from gateway.pins.keep_warm import KeepWarm
from gateway.prefix.sections import SectionTree
from gateway.prefix.tenants import EVERYBODY
from gateway.xtml import Vocab
from tests.prefix.prompts import user, written
from tests.scripted import Script, ScriptedEngine


def stored(medium: str | None = "GPU") -> BlockStored:
    return BlockStored(
        block_hashes=[b"a" * 32, b"b" * 32],
        parent_block_hash=None,
        token_ids=[1, 2, 3, 4],
        block_size=2,
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=1,
        session_id="pin",
    )


@pytest.fixture
def publisher() -> Iterator[ZmqEventPublisher]:
    config = local_config()
    publisher = ZmqEventPublisher(1, endpoint=config.endpoint)
    yield publisher
    publisher.shutdown()


async def read(publisher: ZmqEventPublisher, batches: list[list[object]], n_events: int) -> list[CacheEvent]:
    """Publish until the subscription is there, then `batches`; the `n_events` that follow."""
    reader = KvEventReader({1: publisher.get_publisher_config().endpoint})
    events: list[CacheEvent] = []
    reader.listeners.append(events.append)
    reader.start()
    try:
        async with asyncio.timeout(20):
            while not events:  # a subscriber misses what was published before it was there
                publisher.publish(KVEventBatch(ts=0.0, events=[AllBlocksCleared()]))
                await asyncio.sleep(0.02)
            for batch in batches:
                publisher.publish(KVEventBatch(ts=0.0, events=batch))
            while sum(not isinstance(e, CacheCleared) for e in events) < n_events:
                await asyncio.sleep(0.02)
    finally:
        await reader.close()
    return [event for event in events if not isinstance(event, CacheCleared)]


async def test_events_of_vllms_publisher_are_read_in_order(publisher: ZmqEventPublisher) -> None:
    removed = BlockRemoved(block_hashes=[b"a" * 32], medium="GPU", group_idx=1)
    events = await read(publisher, [[stored()], [removed]], 2)
    assert events == [
        BlocksStored(1, 1, (b"a" * 32, b"b" * 32), (1, 2, 3, 4), None, "pin"),
        BlocksRemoved(1, 1, (b"a" * 32,)),
    ]


async def test_copies_in_other_tiers_are_no_events_of_the_cache(publisher: ZmqEventPublisher) -> None:
    events = await read(publisher, [[stored("CPU")], [stored()]], 1)
    assert len(events) == 1


async def test_events_that_did_not_arrive_are_noticed(publisher: ZmqEventPublisher) -> None:
    publisher._seq_gen = itertools.count(0, 2)
    events = await read(publisher, [[stored()]], 2)
    assert CacheEventsLost(1) in events


async def test_the_sockets_folder_is_private_and_removed(publisher: ZmqEventPublisher) -> None:
    folder = Path(publisher.get_publisher_config().endpoint.removeprefix("ipc://").split("_dp")[0]).parent
    assert folder.stat().st_mode & 0o077 == 0
    await read(publisher, [[stored()]], 1)
    assert not folder.exists()


# -- what a pin learns: blocks of 8 tokens, one group of attention (0), one of states (1)

IDS = list(range(100, 130))
BOUNDARY = 24


@pytest.fixture
def pinned(vocab: Vocab) -> PinnedPrompt:
    home = Home(n_cached=BOUNDARY, is_stale=False)
    return PinnedPrompt("key", "max", EnginePrompt(IDS), written(vocab, user("x")), BOUNDARY, [home])


@pytest.fixture
def keep_warm(pinned: PinnedPrompt) -> KeepWarm:
    info = EngineInfo("m", "p", "v", 1000, prefix_unit=8, n_cache_blocks=50, state_groups=frozenset({1}))
    book = PinBook(1000)
    book.add(Pin("p", EVERYBODY, {}, ("max",), None, False, [pinned]))
    return KeepWarm(book, ScriptedEngine(lambda prompt, sampling: Script(), info), SectionTree(), 60)


def learn(keep_warm: KeepWarm) -> None:
    hashes = (b"1", b"2", b"3")
    for group in (0, 1):
        keep_warm.on_event(BlocksStored(0, group, hashes, tuple(IDS[:24]), None, "key"))


@pytest.mark.parametrize(
    ("group", "block", "loses"),
    [
        (0, b"1", True),
        (0, b"3", True),
        (0, b"other", False),
        (1, b"1", False),  # a state inside the prefix is not needed
        (1, b"3", True),  # the one at its end is
    ],
)
def test_only_blocks_that_a_hit_needs_count(
    keep_warm: KeepWarm, pinned: PinnedPrompt, group: int, block: bytes, loses: bool
) -> None:
    learn(keep_warm)
    keep_warm.on_event(BlocksRemoved(0, group, (block,)))
    assert pinned.is_warm(0) is not loses


def test_a_boundary_inside_a_block_is_learnt_from_its_token_ids(
    keep_warm: KeepWarm, pinned: PinnedPrompt
) -> None:
    keep_warm.on_event(BlocksStored(0, 0, (b"1",), tuple(IDS[:16]), None, "key"))
    keep_warm.on_event(BlocksStored(0, 1, (b"fine",), tuple(IDS[16:24]), b"never stored", "key"))
    keep_warm.on_event(BlocksRemoved(0, 1, (b"fine",)))
    assert not pinned.is_warm(0)


def test_blocks_with_other_tokens_are_not_the_pins(keep_warm: KeepWarm, pinned: PinnedPrompt) -> None:
    keep_warm.on_event(BlocksStored(0, 0, (b"1",), (9, 9, 9, 9, 9, 9, 9, 9), None, "key"))
    keep_warm.on_event(BlocksRemoved(0, 0, (b"1",)))
    assert pinned.is_warm(0)


def test_a_pin_is_used_again_before_its_turn_to_be_evicted_comes(
    keep_warm: KeepWarm, pinned: PinnedPrompt
) -> None:
    pinned.homes[0].touched_at = 1e12
    for number in range(12):
        keep_warm.on_event(BlocksStored(0, 0, (b"%d" % number,), (0,) * 8))
    assert keep_warm._due_ranks(pinned) == []
    keep_warm.on_event(BlocksStored(0, 0, (b"x",), (0,) * 8))
    assert keep_warm._due_ranks(pinned) == [0]
