"""A scripted engine: says what a test tells it to, id by id. For decoder, load and fault tests only.

It shows nothing about the model or vLLM; the tests that do use the real engine (tests/engine, tests/e2e).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.types import (
    CacheEvent,
    EngineError,
    EngineInfo,
    EnginePrompt,
    FinishReason,
    Sampling,
    Step,
    StepReceiver,
    TokenLogprob,
)


@dataclass
class Script:
    """What one request is answered with.

    `ids` are sent `per_step` at a time to every choice, then `finish_reason`; `choices` has the ids of each
    choice instead. `error` is raised after
    `error_after` ids. With `hold` set the engine waits for it before the first step, and with `stall` after
    the last one.
    """

    ids: Sequence[int] = ()
    per_step: int = 1
    finish_reason: FinishReason = "stop"
    n_cached: int = 0
    error: Exception | None = None
    error_after: int = 0
    hold: asyncio.Event | None = None
    stall: asyncio.Event | None = None
    pause: float = 0.0
    logprobs: Callable[[int], TokenLogprob] | None = None
    choices: Sequence[Sequence[int]] = ()


@dataclass
class ScriptedEngine:
    """Implements engine.types.EngineClient; `answer` picks the script for a request."""

    answer: Callable[[EnginePrompt, Sampling], Script]
    info: EngineInfo = field(
        default_factory=lambda: EngineInfo("scripted", "scripted", "scripted", max_model_len=32_768)
    )
    aborted: list[str] = field(default_factory=list)
    requests: list[tuple[EnginePrompt, Sampling]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    patch_problems: list[str] = field(default_factory=list)
    listeners: list[Callable[[CacheEvent], None]] = field(default_factory=list)
    death: asyncio.Event = field(default_factory=asyncio.Event)
    pushes: bool = True
    pushed: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def generate(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str
    ) -> AsyncGenerator[Step, None]:
        script = self.answer(prompt, sampling)
        self.requests.append((prompt, sampling))
        self.running.add(request_id)
        finished = False
        try:
            if script.hold is not None:
                await script.hold.wait()
            written = [list(ids) for ids in script.choices or [script.ids] * sampling.n]
            choices = [ids[: sampling.max_tokens] for ids in written]
            n_ids = max(map(len, choices))
            for start in range(0, max(n_ids, 1), script.per_step):
                if script.error is not None and start >= script.error_after:
                    raise script.error
                if script.pause:
                    await asyncio.sleep(script.pause)
                if start + script.per_step >= n_ids and script.stall is not None:
                    await script.stall.wait()
                for index, ids in enumerate(choices):
                    if start >= max(len(ids), 1):
                        continue  # this choice has ended
                    cut = len(ids) < len(written[index])
                    reason: FinishReason = "length" if cut else script.finish_reason
                    piece = tuple(ids[start : start + script.per_step])
                    yield Step(
                        index,
                        piece,
                        tuple(script.logprobs(i) for i in piece) if script.logprobs else None,
                        reason if start + script.per_step >= len(ids) else None,
                        n_cached=script.n_cached,
                    )
            finished = True
        finally:
            self.running.discard(request_id)
            if not finished:
                self.aborted.append(request_id)

    def can_push(self, sampling: Sampling) -> bool:
        return self.pushes and sampling.n == 1 and sampling.logprobs is None

    async def push(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str, receiver: StepReceiver
    ) -> None:
        """As the real engine: steps come from a callback of the loop, an abort is the last step."""

        async def run() -> None:
            try:
                async for step in self.generate(prompt, sampling, request_id):
                    receiver.step(step)
                    await asyncio.sleep(0)  # the next step is another message
            except EngineError as error:
                receiver.failed(error)
            except asyncio.CancelledError:
                receiver.step(Step(0, (), finish_reason="abort"))
                raise

        task = asyncio.create_task(run())
        self.pushed[request_id] = task
        task.add_done_callback(lambda _: self.pushed.pop(request_id, None))

    async def abort(self, request_id: str) -> None:
        if task := self.pushed.get(request_id):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        else:
            self.aborted.append(request_id)

    def on_cache_event(self, listener: Callable[[CacheEvent], None]) -> None:
        self.listeners.append(listener)

    def emit(self, event: CacheEvent) -> None:
        """What the engine's cache would report."""
        for listener in self.listeners:
            listener(event)

    async def check_health(self) -> None:
        return None

    async def wait_dead(self) -> str:
        await self.death.wait()
        return "the script says so"

    async def patch_overview(self) -> dict[str, Any]:
        return {
            "object": "engine.patches",
            "agreed": not self.patch_problems,
            "problems": self.patch_problems,
        }

    async def shutdown(self) -> None:
        return None
