"""Keeps pinned prompts in the engine's prefix cache.

vLLM has no pin: its cache gives up the blocks that were not used for the longest time. So a pin is used
again, by a request of one token, before so much was stored that its turn would come; and it is computed again
when the engine reports that blocks of it are gone, that the cache was cleared, or that events were lost. What
counts is the engine's own number of cached tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import aclosing

from engine.types import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    EngineClient,
    EngineDead,
    EngineError,
    Sampling,
)
from gateway.pins.book import Home, PinBook, PinnedPrompt
from gateway.prefix.sections import SectionTree

log = logging.getLogger(__name__)

_TURNOVER = 0.25  # of the cache's blocks may be stored between two uses of a pin
_RETRY_SECONDS = 5.0  # after an error, or when the engine did not keep what it computed


class KeepWarm:
    """check_seconds: a pin is used at least this often, whatever the events say"""

    def __init__(self, book: PinBook, engine: EngineClient, tree: SectionTree, check_seconds: float) -> None:
        self.book = book
        self.engine = engine
        self.tree = tree
        self.check_seconds = check_seconds
        self.n_stored = [0] * engine.info.n_data_parallel_ranks
        self.n_prefills = 0
        self.n_touches = 0
        self._wake = asyncio.Event()
        engine.on_cache_event(self.on_event)

    async def run(self) -> None:
        """Until cancelled, or until the engine is dead."""
        while True:
            self._wake.clear()
            self.book.drop_expired()
            due = [(pinned, rank) for pinned in self._pinned() for rank in self._due_ranks(pinned)]
            try:
                await asyncio.gather(*(self.warm(pinned, rank) for pinned, rank in due))
            except EngineDead:
                return
            # Short, because the time of a pin and its expiry are looked at here too. (Not `wait_for`, which
            # before Python 3.12 loses a cancellation that comes together with the event.)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self.check_seconds, _RETRY_SECONDS)):
                    await self._wake.wait()

    async def warm(self, pinned: PinnedPrompt, rank: int) -> None:
        """Have `rank` compute or use the prompt, and ask it how much of that it has now.

        Raises EngineDead.
        """
        home = pinned.homes[rank]
        async with home.lock:
            home.is_stale, home.error = False, None
            home.touched, home.touched_at = self.n_stored[rank], time.monotonic()
            try:
                # The first time all of it is computed, so that all its blocks are reported.
                # (vLLM 0.32 can report reused ones, but dies of that where a hit ends inside a block.)
                home.n_cached = await self._ask(pinned, rank, read_cache=home.n_prefills > 0)
                self.n_touches += 1
                if home.n_cached < pinned.boundary:
                    home.n_prefills += 1
                    self.n_prefills += 1
                    home.n_cached = await self._ask(pinned, rank)
            except EngineDead:
                raise
            except EngineError as error:
                home.error = str(error)
                log.warning("pin %s on rank %d: %s", pinned.key, rank, error)
            if pinned.is_warm(rank):
                cache = pinned.prompt.cache_salt or ""
                match = self.tree.match(cache, pinned.written)
                self.tree.add(cache, pinned.written, match, pinned.boundary, rank)

    def on_event(self, event: CacheEvent) -> None:
        """Quick: called for every event of the engine."""
        if isinstance(event, BlocksStored):
            if event.pin is not None:
                self._learn(event)
                return
            self.n_stored[event.rank] += len(event.hashes)
            if any(self._is_due_by_turnover(p.homes[event.rank], event.rank) for p in self._pinned()):
                self._wake.set()
        elif isinstance(event, BlocksRemoved):
            for pinned in self._pinned():
                if self._loses(pinned, event):
                    pinned.homes[event.rank].is_stale = True
                    self._wake.set()
        else:
            if isinstance(event, CacheCleared):
                self.tree.forget_rank(event.rank)
            for pinned in self._pinned():
                pinned.homes[event.rank].is_stale = True
            self._wake.set()

    async def _ask(self, pinned: PinnedPrompt, rank: int, *, read_cache: bool = True) -> int:
        several = self.engine.info.n_data_parallel_ranks > 1
        sampling = Sampling(
            max_tokens=1,
            temperature=0.0,
            priority=-1,
            data_parallel_rank=rank if several else None,
            pin=pinned.key,
            read_cache=read_cache,
        )
        n_cached = 0
        steps = self.engine.generate(pinned.prompt, sampling, f"pin-{uuid.uuid4().hex[:16]}")
        async with aclosing(steps):
            async for step in steps:
                n_cached = max(n_cached, step.n_cached or 0)
        return n_cached

    def _pinned(self) -> Iterator[PinnedPrompt]:
        return (pinned for pin in self.book for pinned in pin.prompts)

    def _due_ranks(self, pinned: PinnedPrompt) -> list[int]:
        now = time.monotonic()
        due = []
        for rank, home in enumerate(pinned.homes):
            age = now - home.touched_at
            never = home.touched_at == 0.0
            failed = (home.error is not None or not pinned.is_warm(rank)) and age > _RETRY_SECONDS
            if (
                never
                or home.is_stale
                or failed
                or age > self.check_seconds
                or self._is_due_by_turnover(home, rank)
            ):
                due.append(rank)
        return due

    def _is_due_by_turnover(self, home: Home, rank: int) -> bool:
        n_blocks = self.engine.info.n_cache_blocks
        return bool(n_blocks) and self.n_stored[rank] - home.touched > n_blocks * _TURNOVER

    def _learn(self, event: BlocksStored) -> None:
        """Which blocks hold a pin. An event counts only if its token ids are the pin's at that place."""
        pinned = next((p for p in self._pinned() if p.key == event.pin), None)
        if pinned is None or not event.hashes:
            return
        end_of = pinned.homes[event.rank].end_of
        n, ids = len(event.token_ids), pinned.prompt.ids
        start = 0 if event.parent is None else end_of.get(event.parent)
        if len(event.hashes) == 1 and tuple(ids[pinned.boundary - n : pinned.boundary]) == event.token_ids:
            start = pinned.boundary - n  # may lie inside a block, whose parent was never stored by itself
        elif event.group in self.engine.info.state_groups:
            return  # states left out make holes; the hashes are those of the attention's blocks anyway
        if (
            start is None
            or start < 0
            or n % len(event.hashes)
            or tuple(ids[start : start + n]) != event.token_ids
        ):
            return
        for number, block in enumerate(event.hashes, start=1):
            end_of[block] = start + number * (n // len(event.hashes))

    def _loses(self, pinned: PinnedPrompt, event: BlocksRemoved) -> bool:
        """Whether a hit needs one of them: attention up to the boundary, and the state exactly there."""
        end_of = pinned.homes[event.rank].end_of
        ends = [end_of[block] for block in event.hashes if block in end_of]
        if event.group in self.engine.info.state_groups:
            return pinned.boundary in ends
        return any(end <= pinned.boundary for end in ends)
