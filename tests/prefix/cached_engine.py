"""A scripted engine with a prefix cache of its own: blocks of one unit, least recently used first to go.

It stands for the contract that pins rely on (cached counts, events); what vLLM does is tested with vLLM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256

from engine.types import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    EngineInfo,
    EnginePrompt,
    Sampling,
)
from tests.scripted import Script, ScriptedEngine

UNIT = 16


class CachedEngine(ScriptedEngine):
    """`reply`: ids of every completion."""

    def __init__(self, n_ranks: int = 1, n_blocks: int = 1000, reply: Sequence[int] = ()) -> None:
        info = EngineInfo(
            "scripted",
            "scripted",
            "scripted",
            max_model_len=32_768,
            n_data_parallel_ranks=n_ranks,
            prefix_unit=UNIT,
            n_cache_blocks=n_blocks,
            n_cache_tokens=n_blocks * UNIT,
            has_cache_events=True,
        )
        super().__init__(self._answer, info)
        self.reply = reply
        self.caches: list[OrderedDict[bytes, None]] = [OrderedDict() for _ in range(n_ranks)]
        self.keeps = True
        self.error: Exception | None = None

    def clear(self, rank: int = 0) -> None:
        """A reset or a sleep."""
        self.caches[rank].clear()
        self.emit(CacheCleared(rank))

    def evict(self, wanted: Callable[[int], bool] = lambda number: True, rank: int = 0) -> None:
        """Drop those blocks whose number in order of use is wanted."""
        blocks = [block for number, block in enumerate(self.caches[rank]) if wanted(number)]
        for block in blocks:
            del self.caches[rank][block]
        self.emit(BlocksRemoved(rank, 0, tuple(blocks)))

    def pin_requests(self, rank: int | None = None) -> list[tuple[EnginePrompt, Sampling]]:
        return [
            (prompt, sampling)
            for prompt, sampling in self.requests
            if sampling.pin is not None and rank in (None, sampling.data_parallel_rank or 0)
        ]

    def _answer(self, prompt: EnginePrompt, sampling: Sampling) -> Script:
        if self.error is not None:
            return Script(error=self.error)
        cache = self.caches[sampling.data_parallel_rank or 0]
        blocks = _blocks(prompt)
        usable = blocks[: (len(prompt.ids) - 1) // UNIT]
        n_hit = next((i for i, block in enumerate(usable) if block not in cache), len(usable))
        if not sampling.read_cache:
            n_hit = 0
        for block in reversed(blocks[:n_hit]):
            cache.move_to_end(block)
        if self.keeps:
            self._store(prompt, sampling, blocks, n_hit)
        return Script(ids=list(self.reply) or [0], n_cached=n_hit * UNIT)

    def _store(self, prompt: EnginePrompt, sampling: Sampling, blocks: list[bytes], n_hit: int) -> None:
        rank = sampling.data_parallel_rank or 0
        cache = self.caches[rank]
        for block in reversed(blocks[n_hit:]):
            cache[block] = None
        if blocks[n_hit:]:
            self.emit(
                BlocksStored(
                    rank,
                    0,
                    tuple(blocks[n_hit:]),
                    tuple(prompt.ids[n_hit * UNIT : len(blocks) * UNIT]),
                    blocks[n_hit - 1] if n_hit else None,
                    sampling.pin,
                )
            )
        while len(cache) > self.info.n_cache_blocks:
            block, _ = cache.popitem(last=False)
            self.emit(BlocksRemoved(rank, 0, (block,)))


def _blocks(prompt: EnginePrompt) -> list[bytes]:
    key = (prompt.cache_salt or "").encode()
    blocks = []
    for end in range(UNIT, len(prompt.ids) + 1, UNIT):
        key = sha256(key + repr(prompt.ids[end - UNIT : end]).encode()).digest()
        blocks.append(key)
    return blocks
