"""Prompts of random tokens and pictures for tests of the engine, and both ways to its steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from engine.types import EngineError, EnginePrompt, PlacedMedia, Sampling, Step
from gateway.xtml import Vocab
from media.types import MediaItem

Grid = tuple[int, int, int]


def random_ids(n: int, seed: int, vocab: Vocab) -> list[int]:
    return random.Random(seed).choices(range(vocab.n_ranks), k=n)


def random_item(grid: Grid, seed: int) -> MediaItem:
    """Noise that is coarse enough for neighbouring image patches to differ."""
    t, h, w = grid
    shape = (t * h * w, 3, 14, 14)
    patches = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return MediaItem(patches=patches, grid=grid, identity=f"{seed:08d}-{t}x{h}x{w}")


def prompt_with_media(grids: Sequence[Grid], seed: int, vocab: Vocab, gap: int = 20) -> EnginePrompt:
    """Text, item, text, item, ..., text; every stretch of text has `gap` tokens."""
    ids = random_ids(gap, seed, vocab)
    placed = []
    for number, grid in enumerate(grids):
        item = random_item(grid, seed * 100 + number)
        ids.append(vocab.media_begin)
        placed.append(PlacedMedia(offset=len(ids), item=item))
        ids += [vocab.media_pad] * item.n_tokens
        ids.append(vocab.media_end)
        ids += random_ids(gap, seed * 100 + number, vocab)
    return EnginePrompt(ids=ids, media=tuple(placed))


async def run(engine, prompt: EnginePrompt, sampling: Sampling, request_id: str) -> list[Step]:
    return [step async for step in engine.generate(prompt, sampling, request_id)]


class Queued:
    """A receiver that queues."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Step | EngineError] = asyncio.Queue()
        self.step = self.queue.put_nowait
        self.failed = self.queue.put_nowait


async def pushed(
    engine, prompt: EnginePrompt, sampling: Sampling, request_id: str
) -> AsyncGenerator[Step, None]:
    """As `Engine.generate`, over `Engine.push`."""
    receiver = Queued()
    over = False
    try:
        await engine.push(prompt, sampling, request_id, receiver)
        while not over:
            step = await receiver.queue.get()
            over = isinstance(step, EngineError) or step.finish_reason is not None
            if isinstance(step, EngineError):
                raise step
            yield step
    finally:
        if not over:
            await engine.abort(request_id)


def tokens(steps: Sequence[Step], index: int = 0) -> list[int]:
    return [token for step in steps if step.index == index for token in step.token_ids]
