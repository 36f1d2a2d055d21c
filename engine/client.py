"""`Engine`: vLLM's AsyncLLM behind the `EngineClient` protocol.

vLLM is imported only while the engine starts: its environment variables are read on import, and the service
answers on HTTP before that is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.deaths import cause_of_death
from engine.errors import EngineStartError
from engine.kv_events import KvEventReader, Listener
from engine.launch import Progress, describe, launch_in_thread
from engine.lean import Collected, LeanOutputs, Pushed, lean_outputs, summary
from engine.profiles import Profile
from engine.sampling import sampling_params, to_step
from engine.types import (
    CacheCleared,
    EngineDead,
    EngineError,
    EngineInfo,
    EnginePrompt,
    EngineRejected,
    Sampling,
    Step,
    StepReceiver,
)

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

_DEATH_POLL_SECONDS = 0.25
_SHUTDOWN_SECONDS = 5.0
_PROBE_SECONDS = 60.0

log = logging.getLogger(__name__)


class _MediaCacheMiss(Exception):
    """The engine no longer has a picture that was sent by identity only."""


def _pictures_lost() -> EngineError:
    return EngineError(
        "the engine keeps losing this request's pictures; its media cache is too small for them"
    )


def _as_engine_error(error: BaseException) -> EngineError:
    """What vLLM raised, as this service's own."""
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    if isinstance(error, EngineError):
        return error
    if isinstance(error, EngineDeadError):
        return EngineDead("the engine process has ended")
    if isinstance(error, (VLLMClientError, ValueError, TypeError, OverflowError)):
        return EngineRejected(str(error))
    return EngineError(f"generation failed: {error}")


class Engine:
    """One running engine. Create it with `await Engine.start(...)`."""

    def __init__(self, llm: AsyncLLM, info: EngineInfo) -> None:
        self._running: AsyncLLM | None = llm
        self.info = info
        self._outputs: LeanOutputs | None = None
        self._lean: LeanOutputs | None = None
        self._resending: set[asyncio.Task[None]] = set()
        # Kept, since vLLM's client lets go of it when an engine process ends.
        self._processes = llm.engine_core.resources.engine_manager
        self._events = KvEventReader({r: c.endpoint for r, c in llm.get_kv_event_sources().items()})

    @classmethod
    async def start(
        cls,
        profile: Profile,
        model: Path | str,
        overrides: Mapping[str, Any] | None = None,
        progress: Progress = lambda phase: None,
    ) -> Engine:
        """Start the engine's processes and load the model; the event loop stays free meanwhile.

        `overrides` are fields of vLLM's AsyncEngineArgs. `progress` is called with the name of each phase,
        in the event loop's thread. Raises EngineStartError.
        """
        llm = await launch_in_thread(profile, str(model), overrides or {}, progress)
        engine = cls(llm, describe(llm, profile.name))
        try:
            progress("warming up")
            engine._events.start()
            engine._outputs = engine._lean = lean_outputs(llm)
            await engine._check_plugins()
            await engine._warm_up()
            await engine._probe_lean()
            engine.info = replace(engine.info, state_groups=await engine._state_groups())
        except BaseException:
            await engine.shutdown()
            raise
        progress("ready")
        return engine

    async def generate(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """See `EngineClient.generate`. Pictures that the engine has seen are sent by identity; when it has
        dropped one meanwhile, the request is sent again with the data, unnoticed by the caller."""
        self._check_length(prompt)
        params = sampling_params(sampling)
        for attempt in ("by identity", "with data"):
            steps = self._steps(prompt, sampling, params, request_id, resend=attempt == "with data")
            try:
                async with aclosing(steps):
                    async for step in steps:
                        yield step
                return
            except _MediaCacheMiss:
                continue
        raise _pictures_lost()

    async def abort(self, request_id: str) -> None:
        """Stop a request and free what it holds; unknown and finished ones are ignored."""
        if self._running is not None:
            await self._running.abort(request_id)

    def on_cache_event(self, listener: Listener) -> None:
        """See `EngineClient.on_cache_event`; `listener` runs in the event loop's thread and must be quick."""
        self._events.listeners.append(listener)

    async def check_health(self) -> None:
        """Raises EngineDead."""
        if self.is_dead:
            raise EngineDead("the engine process has ended")

    @property
    def is_dead(self) -> bool:
        """Whether the engine is gone, by itself or by `shutdown`."""
        return self._running is None or self._running.errored

    async def wait_dead(self) -> str:
        """Return when the engine is gone, with the reason: which of its processes ended, and how."""
        while not self.is_dead:  # noqa: ASYNC110 - vLLM's monitor thread sets a flag, no event
            await asyncio.sleep(_DEATH_POLL_SECONDS)
        return await cause_of_death(self._processes, self.info.n_data_parallel_ranks)

    @property
    def n_unfinished(self) -> int:
        """Completions that are waiting or running."""
        return self._llm.get_num_unfinished_requests()

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False when some are in use."""
        done = await self._llm.reset_prefix_cache()
        if done:
            # The engine publishes this only with its next step, which may be long in coming.
            for rank in range(self.info.n_data_parallel_ranks):
                self._events.deliver(CacheCleared(rank))
        return done

    async def reset_media_cache(self) -> None:
        """Forget all pictures, prepared and encoded."""
        await self._llm.reset_mm_cache()
        await self._llm.reset_encoder_cache()

    async def rank_rpc(self, method: str, *args: Any) -> list[list[Any]]:
        """Call a method by name on every worker (`engine.plugin.worker`): answers by data-parallel rank.

        `AsyncLLM.collective_rpc` asks all ranks and gives back the first one's answers only.
        """
        core = self._llm.engine_core
        answers = await core.call_utility_all_async("collective_rpc", method, None, args, None)
        return cast("list[list[Any]]", answers)

    async def collective_rpc(self, method: str, *args: Any) -> list[Any]:
        """As `rank_rpc`, in one list: the workers of rank 0, then those of rank 1, ..."""
        return [answer for workers in await self.rank_rpc(method, *args) for answer in workers]

    async def patch_reports(self) -> list[dict[str, Any]]:
        """What became of the engine patches in each worker (`patches.Report.to_json`)."""
        return await self.collective_rpc("k3_patch_report")

    async def patch_overview(self) -> dict[str, Any]:
        """The engine patches here and in each worker, and whether they agree (`patches.overview`)."""
        from patches import apply_all, current_report, overview

        front = current_report() or apply_all()
        return overview(front.to_json(), await self.patch_reports())

    async def shutdown(self) -> None:
        """End the engine's processes; running requests end with EngineDead. Safe to call again."""
        from vllm.v1.engine.exceptions import EngineDeadError

        llm, self._running = self._running, None
        if llm is None:
            return
        await self._events.close()
        for task in list(self._resending):
            task.cancel()
        # Left alone, vLLM's output task would take the closed sockets for a crash and log it as one.
        llm.output_processor.propagate_error(EngineDeadError())
        if llm.output_handler is not None:
            llm.output_handler.cancel()
        if self._outputs is not None:
            self._outputs.close()
        await asyncio.to_thread(llm.shutdown, _SHUTDOWN_SECONDS)
        # Its finalizer shuts down once more, which fails when the interpreter is already being torn down.
        llm.shutdown = lambda timeout=None: None

    @property
    def _llm(self) -> AsyncLLM:
        if self._running is None:
            raise EngineDead("the engine has been shut down")
        return self._running

    async def _steps(
        self, prompt: EnginePrompt, sampling: Sampling, params: Any, request_id: str, resend: bool
    ) -> AsyncGenerator[Step, None]:
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        known, engine_input = self._engine_input(prompt, resend)
        outputs = cast(
            "AsyncGenerator[RequestOutput, None]",
            self._llm.generate(
                engine_input,
                params,
                request_id,
                priority=sampling.priority,
                data_parallel_rank=sampling.data_parallel_rank,
                session_id=sampling.pin,
            ),
        )
        begun = False
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    for completion in output.outputs:
                        if completion.finish_reason == "error":
                            raise self._failure(sampling, request_id, set() if begun else known)
                        begun = True
                        yield to_step(completion, sampling.logprobs, output.num_cached_tokens)
        except (EngineDeadError, VLLMClientError) as error:
            raise _as_engine_error(error) from error
        except EngineGenerateError as error:
            raise _as_engine_error(error.__cause__ or error) from error

    def can_push(self, sampling: Sampling) -> bool:
        """See `EngineClient.can_push`."""
        return self._lean is not None and sampling.n == 1 and sampling.logprobs is None

    async def push(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str, receiver: StepReceiver
    ) -> None:
        """See `EngineClient.push`. Pictures are sent as `generate` sends them."""
        self._check_length(prompt)
        await self._push(prompt, sampling, request_id, receiver, resend=False)

    async def _push(
        self, prompt: EnginePrompt, sampling: Sampling, request_id: str, receiver: StepReceiver, resend: bool
    ) -> None:
        assert self._lean is not None  # `can_push` said so
        loop = asyncio.get_running_loop()
        known, engine_input = self._engine_input(prompt, resend)

        def failed(error: Exception | None) -> None:
            # Afterwards: vLLM's handler drops lost pictures from the mirror only when it has told of them.
            loop.call_soon(settle, error)

        def settle(error: Exception | None) -> None:
            found = _as_engine_error(error) if error else self._failure(sampling, request_id, known)
            if not isinstance(found, _MediaCacheMiss):
                receiver.failed(found)
            elif resend:
                receiver.failed(_pictures_lost())
            else:
                self._resending.add(task := loop.create_task(again()))
                task.add_done_callback(self._resending.discard)

        async def again() -> None:
            try:
                await self._push(prompt, sampling, request_id, receiver, resend=True)
            except EngineError as error:
                receiver.failed(error)

        try:
            queue = await self._llm.add_request(
                request_id,
                engine_input,
                sampling_params(sampling),
                priority=sampling.priority,
                data_parallel_rank=sampling.data_parallel_rank,
                session_id=sampling.pin,
            )
        except asyncio.CancelledError:
            await self.abort(request_id)
            raise
        except Exception as error:
            raise _as_engine_error(error) from error
        self._lean.attach(queue, Pushed(receiver, failed))

    def _engine_input(self, prompt: EnginePrompt, resend: bool) -> tuple[set[str], Any]:
        """The input, and the identities of pictures that go without their data.

        This end mirrors the engine's media cache: both see the same items in the same order. A new picture
        that comes twice is sent once.
        """
        from engine.prompt import engine_input, kwargs_item

        mirror = self._llm.renderer.mm_processor_cache
        known: set[str] = set()
        items: list[Any] = []
        if resend and mirror is not None:
            for placed in prompt.media:
                mirror.invalidate(placed.item.identity)
        for placed in prompt.media:
            identity = placed.item.identity
            if mirror is not None and mirror.is_cached_item(identity):
                known.add(identity)
                items.append(mirror.get_and_update_item(None, identity)[0])
            elif mirror is not None:
                items.append(mirror.get_and_update_item((kwargs_item(placed.item), []), identity)[0])
            else:
                items.append(kwargs_item(placed.item))
        return known, engine_input(prompt, items)

    def _failure(self, sampling: Sampling, request_id: str, known: set[str]) -> EngineError | _MediaCacheMiss:
        """Why vLLM finished a request with the bare reason "error".

        `known`: pictures sent without data; those that the engine lacks were just dropped from the mirror.
        """
        mirror = self._llm.renderer.mm_processor_cache
        if mirror is not None and not all(map(mirror.is_cached_item, known)):
            return _MediaCacheMiss()
        if sampling.structural_tag is not None:
            return EngineRejected("the engine cannot compile or follow this request's grammar")
        return EngineError(f"the engine failed request {request_id}")

    def _check_length(self, prompt: EnginePrompt) -> None:
        limit = self.info.max_model_len
        if not prompt.ids:
            raise EngineRejected("the prompt is empty")
        if len(prompt.ids) >= limit:
            raise EngineRejected(
                f"the prompt has {len(prompt.ids)} tokens; the context holds {limit}, of which at least one "
                "must be left for the completion"
            )

    async def _check_plugins(self) -> None:
        """A worker without the plugin would run stock code: unpatched on a GPU."""
        for rank, workers in enumerate(await self.rank_rpc("k3_plugin_registered")):
            if not all(workers):
                raise EngineStartError(
                    f"the plugin did not load in worker {workers.index(False)} of data-parallel rank {rank}",
                    "Start all workers from the environment that k3-gateway is installed in",
                )

    async def _state_groups(self) -> frozenset[int]:
        """Cache groups of recurrent layers, asked of the engine process; all ranks have the same layers."""
        groups = await self._llm.engine_core.call_utility_async("get_kv_cache_group_metadata")
        return frozenset(group["group_idx"] for group in groups if group["kind"] == "mamba")

    async def _probe_lean(self) -> None:
        """Ask one request both ways; where they differ, all requests go the ordinary way."""
        if self._lean is None:
            return
        prompt = EnginePrompt(ids=[0] * 8)
        sampling = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True, read_cache=False)
        try:
            ordinary = [step async for step in self.generate(prompt, sampling, "probe-ordinary")]
            lean = Collected()
            await self.push(prompt, sampling, "probe-lean", lean)
            async with asyncio.timeout(_PROBE_SECONDS):
                pushed = await lean.done
            if summary(pushed) != summary(ordinary):
                raise ValueError(f"{summary(pushed)} instead of {summary(ordinary)}")
        except (EngineError, ValueError, TimeoutError, AttributeError, TypeError) as error:
            self._lean = None
            log.warning("the lean output path is off, this vLLM does not fit it: %r", error)

    async def _warm_up(self) -> None:
        """The first request of a process is slow, and the first sign of a broken engine."""
        try:
            async for _ in self.generate(EnginePrompt(ids=[0] * 8), Sampling(max_tokens=1), "warm-up"):
                pass
        except EngineError as error:
            raise EngineStartError(f"the first request failed: {error}", "See the log above") from error
