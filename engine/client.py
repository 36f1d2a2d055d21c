"""`Engine`: vLLM's AsyncLLM behind the `EngineClient` protocol.

vLLM is imported only while the engine starts: its environment variables are read on import, and the service
answers on HTTP before that is done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine import plugin
from engine.checks import check_memory, check_model, check_plugin_allowed
from engine.errors import EngineStartError
from engine.profiles import COMMON_ENVIRONMENT, Profile
from engine.types import (
    EngineDead,
    EngineError,
    EngineInfo,
    EnginePrompt,
    EngineRejected,
    FinishReason,
    Sampling,
    Step,
    TokenLogprob,
)

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

Progress = Callable[[str], None]

_DEATH_POLL_SECONDS = 0.25
_SHUTDOWN_SECONDS = 5.0


class _MediaCacheMiss(Exception):
    """The engine no longer has a picture that was sent by identity only."""


class Engine:
    """One running engine. Create it with `await Engine.start(...)`."""

    def __init__(self, llm: AsyncLLM, info: EngineInfo) -> None:
        self._running: AsyncLLM | None = llm
        self.info = info

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
        loop = asyncio.get_running_loop()

        def report(phase: str) -> None:
            loop.call_soon_threadsafe(progress, phase)

        llm = await asyncio.to_thread(_launch, profile, str(model), overrides or {}, report)
        engine = cls(llm, _describe(llm, profile.name))
        try:
            progress("warming up")
            await engine._check_plugins()
            await engine._warm_up()
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
        params = _sampling_params(sampling)
        for attempt in ("by identity", "with data"):
            steps = self._steps(prompt, sampling, params, request_id, resend=attempt == "with data")
            try:
                async with aclosing(steps):
                    async for step in steps:
                        yield step
                return
            except _MediaCacheMiss:
                continue
        raise EngineError(
            "the engine keeps losing this request's pictures; its media cache is too small for them"
        )

    async def abort(self, request_id: str) -> None:
        """Stop a request and free what it holds; unknown and finished ones are ignored."""
        if self._running is not None:
            await self._running.abort(request_id)

    async def check_health(self) -> None:
        """Raises EngineDead."""
        if self.is_dead:
            raise EngineDead("the engine process has ended")

    @property
    def is_dead(self) -> bool:
        """Whether the engine is gone, by itself or by `shutdown`."""
        return self._running is None or self._running.errored

    async def wait_dead(self) -> None:
        """Return when the engine is gone."""
        while not self.is_dead:  # noqa: ASYNC110 - vLLM's monitor thread sets a flag, no event
            await asyncio.sleep(_DEATH_POLL_SECONDS)

    @property
    def n_unfinished(self) -> int:
        """Completions that are waiting or running."""
        return self._llm.get_num_unfinished_requests()

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False when some are in use."""
        return await self._llm.reset_prefix_cache()

    async def reset_media_cache(self) -> None:
        """Forget all pictures, prepared and encoded."""
        await self._llm.reset_mm_cache()
        await self._llm.reset_encoder_cache()

    async def collective_rpc(self, method: str, *args: Any) -> list[Any]:
        """Call a method by name on every worker; see `engine.worker`."""
        return await self._llm.collective_rpc(method, args=args)

    async def patch_reports(self) -> list[dict[str, Any]]:
        """What became of the engine patches in each worker (`patches.Report.to_json`)."""
        return await self.collective_rpc("k3_patch_report")

    async def shutdown(self) -> None:
        """End the engine's processes; running requests end with EngineDead. Safe to call again."""
        from vllm.v1.engine.exceptions import EngineDeadError

        llm, self._running = self._running, None
        if llm is None:
            return
        # Left alone, vLLM's output task would take the closed sockets for a crash and log it as one.
        llm.output_processor.propagate_error(EngineDeadError())
        if llm.output_handler is not None:
            llm.output_handler.cancel()
        await asyncio.to_thread(llm.shutdown, _SHUTDOWN_SECONDS)
        # Its finalizer shuts down once more, which fails when the interpreter is already being torn down.
        llm.shutdown = lambda timeout=None: None  # type: ignore[method-assign]

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

        outputs = cast(
            "AsyncGenerator[RequestOutput, None]",
            self._llm.generate(
                self._engine_input(prompt, resend),
                params,
                request_id,
                priority=sampling.priority,
                data_parallel_rank=sampling.data_parallel_rank,
            ),
        )
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    for completion in output.outputs:
                        if completion.finish_reason == "error":
                            raise self._failure(prompt, sampling, output)
                        yield _step(completion, sampling, output.num_cached_tokens)
        except EngineDeadError:
            raise EngineDead("the engine process has ended") from None
        except VLLMClientError as error:
            raise EngineRejected(str(error)) from error
        except EngineGenerateError as error:
            cause = error.__cause__
            if isinstance(cause, (ValueError, TypeError)):
                raise EngineRejected(str(cause)) from error
            raise EngineError(f"generation failed: {cause or error}") from error

    def _engine_input(self, prompt: EnginePrompt, resend: bool) -> Any:
        """Send by identity what the engine's media cache holds, as far as this end's mirror of it knows."""
        from engine.prompt import MODALITY, engine_input, kwargs_item

        items: list[Any] = [kwargs_item(placed.item) for placed in prompt.media]
        if items:
            hashes = [placed.item.identity for placed in prompt.media]
            if resend and (mirror := self._llm.renderer.mm_processor_cache) is not None:
                for identity in hashes:
                    mirror.invalidate(identity)
            # Replaces known items by None, in place. A picture that comes twice is sent once.
            self._llm.input_processor.inject_into_mm_cache({MODALITY: hashes}, {MODALITY: items})
        return engine_input(prompt, items)

    def _failure(self, prompt: EnginePrompt, sampling: Sampling, output: RequestOutput) -> Exception:
        """Why vLLM finished a request with the bare reason "error"."""
        mirror = self._llm.renderer.mm_processor_cache
        if mirror is not None and any(
            not mirror.is_cached_item(placed.item.identity) for placed in prompt.media
        ):
            return _MediaCacheMiss()
        if sampling.structural_tag is not None:
            return EngineRejected("the engine cannot compile or follow this request's grammar")
        return EngineError(f"the engine failed request {output.request_id}")

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
        for rank, registered in enumerate(await self.collective_rpc("k3_plugin_registered")):
            if not registered:
                raise EngineStartError(
                    f"the plugin did not load in engine worker {rank}",
                    "Start all workers from the environment that k3-gateway is installed in",
                )

    async def _warm_up(self) -> None:
        """The first request of a process is slow, and the first sign of a broken engine."""
        try:
            async for _ in self.generate(EnginePrompt(ids=[0] * 8), Sampling(max_tokens=1), "warm-up"):
                pass
        except EngineError as error:
            raise EngineStartError(f"the first request failed: {error}", "See the log above") from error


def _launch(profile: Profile, model: str, overrides: Mapping[str, Any], report: Progress) -> AsyncLLM:
    """Runs in a thread of its own: takes seconds on a CPU and many minutes on eight GPUs."""
    report("checking the model")
    folder = check_model(model)
    check_plugin_allowed(plugin.ENTRY_POINT)
    environment = {**COMMON_ENVIRONMENT, **profile.environment}
    if folder is not None:
        environment["HF_HUB_OFFLINE"] = "1"
    os.environ["K3_MODEL"] = model  # the engine patches look at the checkpoint's quantisation
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    if folder is not None and profile.host_memory:
        merged = profile.merged(overrides)
        bytes_per_weight = 4 if merged.get("dtype") == "float32" else 2
        check_memory(folder, merged.get("kv_cache_memory_bytes") or 0, profile.host_memory, bytes_per_weight)

    report("importing vLLM")
    from vllm.v1.engine.async_llm import AsyncLLM

    report("configuring the engine")
    arguments = profile.engine_args(str(folder) if folder is not None else model, overrides)
    if not plugin.is_registered():
        raise EngineStartError(
            "vLLM did not load this project's plugin",
            "See the log above for the error in engine/plugin.py; reinstall with: pip install --no-deps -e .",
        )
    try:
        config = arguments.create_engine_config()
    except (ValueError, TypeError, OSError, AssertionError, NotImplementedError) as error:
        raise EngineStartError(f"vLLM refuses this configuration: {error}", "Correct the override") from error
    report("starting the engine and loading weights")
    try:
        return AsyncLLM.from_vllm_config(config, disable_log_stats=arguments.disable_log_stats)
    except Exception as error:  # whatever the engine process died of, this one reports it
        raise EngineStartError(
            f"the engine process did not start: {error}",
            "Its own error is in the log above; VLLM_LOGGING_LEVEL=INFO shows more",
        ) from error


def _describe(llm: AsyncLLM, profile: str) -> EngineInfo:
    import vllm

    config = llm.vllm_config
    return EngineInfo(
        model=config.model_config.model,
        profile=profile,
        engine_version=vllm.__version__,
        max_model_len=config.model_config.max_model_len,
        n_data_parallel_ranks=config.parallel_config.data_parallel_size,
        prefix_unit=config.cache_config.prefix_match_unit or config.cache_config.block_size,
        speculative=config.speculative_config is not None,
    )


def _sampling_params(sampling: Sampling) -> Any:
    """vLLM's SamplingParams. Raises EngineRejected for values out of range."""
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    tag = sampling.structural_tag
    try:
        return SamplingParams(
            n=sampling.n,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            seed=sampling.seed,
            logprobs=sampling.logprobs,
            logit_bias=dict(sampling.logit_bias) or None,
            stop_token_ids=list(sampling.stop_token_ids),
            ignore_eos=sampling.ignore_eos,
            structured_outputs=StructuredOutputsParams(structural_tag=tag) if tag is not None else None,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
    except (VLLMClientError, ValueError, TypeError) as error:
        raise EngineRejected(str(error)) from error


def _step(completion: CompletionOutput, sampling: Sampling, n_cached: int | None) -> Step:
    ids = tuple(completion.token_ids)
    stop_token = None
    if completion.finish_reason == "stop":
        # vLLM names a stop token of the request, but not the model's own end token.
        reason = completion.stop_reason
        stop_token = reason if isinstance(reason, int) else (ids[-1] if ids else None)
    logprobs = None
    if sampling.logprobs is not None and completion.logprobs is not None:
        pairs = zip(ids, completion.logprobs, strict=True)
        logprobs = tuple(_token_logprob(token, position, sampling.logprobs) for token, position in pairs)
    return Step(
        index=completion.index,
        token_ids=ids,
        logprobs=logprobs,
        finish_reason=cast("FinishReason | None", completion.finish_reason),
        stop_token_id=stop_token,
        n_cached=n_cached,
    )


def _token_logprob(token: int, position: Mapping[int, Any], n_top: int) -> TokenLogprob:
    """`position` holds the sampled token and the `n_top` likeliest, each with its rank from 1."""
    best = sorted((entry.rank, candidate, entry.logprob) for candidate, entry in position.items())
    return TokenLogprob(
        token_id=token,
        logprob=position[token].logprob,
        top=tuple((candidate, logprob) for rank, candidate, logprob in best if rank <= n_top),
    )
