"""What goes into the engine and what comes out; imports nothing of vLLM, so tests can script an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from media.types import MediaItem

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class PlacedMedia:
    """A media item and where its placeholders stand: `ids[offset : offset + item.n_tokens]`."""

    offset: int
    item: MediaItem


@dataclass(frozen=True, slots=True)
class EnginePrompt:
    """A rendered prompt. `cache_salt` separates prefix (and media) caches of tenants."""

    ids: Sequence[int]
    media: tuple[PlacedMedia, ...] = ()
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to generate. Stop strings are not here: they are matched on decoded content.

    See docs/concepts/decoding.md#stop-strings.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    structural_tag: str | None = None
    priority: int = 0
    data_parallel_rank: int | None = None
    # Names the prompt as a pinned one: blocks that it stores are reported as `BlocksStored` with this name.
    pin: str | None = None
    # False computes and stores the whole prompt, whatever the prefix cache has.
    read_cache: bool = True


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability (nats) of the sampled token and of the most likely ones, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What one completion got since the last step.

    `n_cached` (prompt tokens read from the prefix cache) is set from the first step on.
    """

    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    n_cached: int | None = None


class EngineError(Exception):
    """Generation failed for one request; the engine goes on."""


class EngineRejected(EngineError):
    """The engine refused the request's content (too long, bad grammar...): the client's fault."""


class EngineDead(EngineError):
    """The engine is gone and will not come back; the process has to be restarted."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the front end must know of the running engine."""

    model: str
    profile: str
    engine_version: str
    max_model_len: int
    n_data_parallel_ranks: int = 1
    prefix_unit: int = 128
    speculative: bool = False
    # Of the prefix cache of one data-parallel rank; 0 = not known.
    n_cache_blocks: int = 0
    n_cache_tokens: int = 0
    # Cache groups that keep one recurrent state per boundary (KDA) instead of a block per stretch (MLA).
    state_groups: frozenset[int] = frozenset()
    has_cache_events: bool = False


BlockHash = bytes | int


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks are in the prefix cache of `rank`.

    hashes:    of the blocks stored, in order; each stands for the whole prefix up to its block's end
    token_ids: what the blocks' stretch of the prompt holds; blocks that are not kept are left out of `hashes`
    parent:    hash of the block before, None at the prompt's start
    pin:       `Sampling.pin` of the request
    """

    rank: int
    group: int
    hashes: tuple[BlockHash, ...]
    token_ids: tuple[int, ...]
    parent: BlockHash | None = None
    pin: str | None = None


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks left the prefix cache of `rank`: their memory was needed."""

    rank: int
    group: int
    hashes: tuple[BlockHash, ...]


@dataclass(frozen=True, slots=True)
class CacheCleared:
    """The whole prefix cache of `rank` was dropped (reset, sleep)."""

    rank: int


@dataclass(frozen=True, slots=True)
class CacheEventsLost:
    """Some events of `rank` did not arrive; what was known of its cache may be wrong."""

    rank: int


CacheEvent = BlocksStored | BlocksRemoved | CacheCleared | CacheEventsLost


class StepReceiver(Protocol):
    """Who gets the steps of a pushed request. Called in the event loop's thread; must be quick and not raise.

    The last call is a step with a finish reason, or `failed`.
    """

    def step(self, step: Step) -> None: ...

    def failed(self, error: EngineError) -> None: ...


class EngineClient(Protocol):
    """The only way the gateway reaches a model. `engine.client.Engine` is the real one."""

    info: EngineInfo

    def generate(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """Yield steps of all `sampling.n` completions until each has a finish reason.

        Closing the generator, or cancelling the task that reads it, aborts the request.
        Raises EngineRejected, EngineError or EngineDead.
        """
        ...

    def can_push(self, sampling: Sampling) -> bool:
        """Whether `push` takes such a request; `generate` takes all."""
        ...

    async def push(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str, receiver: StepReceiver
    ) -> None:
        """Like `generate`, but calls `receiver` with each step as the engine's message is read.

        Returns once the request is on its way; `abort` ends it early. Raises as `generate` does, where the
        request is refused at once.
        """
        ...

    async def abort(self, request_id: str) -> None: ...

    def on_cache_event(self, listener: Callable[[CacheEvent], None]) -> None:
        """Call `listener` with every event from now on; never, where `info.has_cache_events` is false."""
        ...

    async def check_health(self) -> None:
        """Raises EngineDead."""
        ...

    async def shutdown(self) -> None: ...
