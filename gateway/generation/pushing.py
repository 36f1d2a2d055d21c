"""Runs a generation by the engine's own calls: no task, no queue, one pass from the engine's step to frames.

The other driver, `Generation.progress`, takes what the engine cannot push (several choices, logprobs).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from engine.types import EngineError, Step
from gateway.generation.counts import Outcome
from gateway.generation.engine_errors import as_request_error
from gateway.generation.generation import Generation, Progress

log = logging.getLogger(__name__)

# Aborts under way; the loop keeps only weak references to its tasks.
_aborts: set[asyncio.Task[None]] = set()


class Pushing:
    """A generation's `engine.types.StepReceiver`.

    on_progress: called with each step's progress
    on_end:      called once, after the last progress: with None, or with what broke the reply (a
                 RequestError, or an exception that nobody foresaw)

    Neither is called while it is paused: then steps are kept as ids alone, however slow the reader is, and
    come as one when it goes on.
    """

    def __init__(
        self,
        generation: Generation,
        on_progress: Callable[[Progress], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self.generation = generation
        self._on_progress = on_progress
        self._on_end = on_end
        self._ended = False
        self._paused = False
        self._kept: Step | None = None
        self._failure: EngineError | None = None
        self._outcome: list[Exception | None] = []  # what `on_end` is still to be told

    async def start(self) -> None:
        """Hand the request to the engine.

        Raises:
            RequestError: the engine refuses it, or the server is stopping.
        """
        generation = self.generation
        generation.open()
        try:
            await generation.engine.push(
                generation.rendered.engine_prompt, generation.sampling, generation.id, self
            )
        except EngineError as error:
            self._close("failed")
            raise as_request_error(error) from error
        except BaseException as error:
            self._close("aborted" if isinstance(error, asyncio.CancelledError) else "failed")
            raise

    def step(self, step: Step) -> None:
        """From the engine."""
        if self._ended:
            return
        if self._paused:
            self._kept = step if self._kept is None else _joined(self._kept, step)
            return
        generation = self.generation
        try:
            progress = generation.feed(step)
            if progress is not None:
                self._on_progress(progress)
        except EngineError as error:
            self._end("failed", as_request_error(error))
        except Exception as error:
            self._end("failed", error, running=step.finish_reason is None)
        else:
            if generation.done:
                # Cut at a stop string, or by the format: the engine does not know yet.
                self._end("finished", None, running=step.finish_reason is None)

    def failed(self, error: EngineError) -> None:
        """From the engine: there will be no more steps."""
        if self._paused:
            self._failure = error
        elif not self._ended:
            self._end("failed", as_request_error(error))

    def pause(self) -> None:
        """The reader is slow: keep what comes."""
        self._paused = True

    def resume(self) -> None:
        """Go on, first with what was kept."""
        self._paused = False
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self.step(kept)
        if self._failure is not None and not self._paused:
            self.failed(self._failure)
        if self._outcome and not self._paused:
            self._on_end(self._outcome.pop())

    async def leave(self) -> None:
        """Nobody reads on: abort it in the engine, unless it has ended."""
        if not self._ended:
            self._close("aborted")
            await self.generation.engine.abort(self.generation.id)

    def _end(self, outcome: Outcome, error: Exception | None, running: bool = False) -> None:
        self._close(outcome)
        if running:
            task = asyncio.ensure_future(self.generation.engine.abort(self.generation.id))
            _aborts.add(task)
            task.add_done_callback(_aborts.discard)
        if self._paused:
            self._outcome.append(error)
        else:
            self._on_end(error)

    def _close(self, outcome: Outcome) -> None:
        if not self._ended:
            self._ended = True
            self.generation.close(outcome)


async def run_pushed(generation: Generation) -> None:
    """Run it to its end; what was said is in its choices.

    Raises:
        RequestError: as `Generation.progress`.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(error: Exception | None) -> None:
        if over.done():
            return
        if error is None:
            over.set_result(None)
        else:
            over.set_exception(error)

    pushing = Pushing(generation, lambda progress: None, end)
    try:
        await pushing.start()
        await over
    finally:
        await pushing.leave()


def _joined(first: Step, second: Step) -> Step:
    """Two steps of one choice as one; neither has logprobs."""
    return replace(second, token_ids=first.token_ids + second.token_ids)
