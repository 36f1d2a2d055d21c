"""Bringing vLLM up, off the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine import plugin
from engine.checks import check_memory, check_model, check_plugin_allowed, check_weights
from engine.errors import EngineStartError
from engine.kv_events import local_config
from engine.loading import reported
from engine.profiles import COMMON_ENVIRONMENT, Profile
from engine.types import EngineInfo

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

Progress = Callable[[str], None]


async def launch_in_thread(
    profile: Profile, model: str, overrides: Mapping[str, Any], progress: Progress
) -> AsyncLLM:
    """`launch` in a thread that does not keep the process alive.

    So a service that is stopped while 1.5 TB of weights are being loaded ends at once, and vLLM's processes,
    being daemons, with it. When the caller is cancelled and the process goes on, the engine is shut down as
    soon as it is up.
    """
    loop = asyncio.get_running_loop()
    launched: asyncio.Future[AsyncLLM] = loop.create_future()

    def report(phase: str) -> None:
        loop.call_soon_threadsafe(progress, phase)

    def deliver(llm: AsyncLLM | None, error: Exception | None) -> None:
        if launched.cancelled():
            if llm is not None:
                threading.Thread(target=llm.shutdown, daemon=True).start()
        elif error is not None:
            launched.set_exception(error)
        elif llm is not None:
            launched.set_result(llm)

    def work() -> None:
        llm, error = None, None
        try:
            llm = launch(profile, model, overrides, report)
        except Exception as caught:
            error = caught
        loop.call_soon_threadsafe(deliver, llm, error)

    threading.Thread(target=work, name="engine-launch", daemon=True).start()
    return await launched


def launch(profile: Profile, model: str, overrides: Mapping[str, Any], report: Progress) -> AsyncLLM:
    """Check, set the environment, import vLLM, start its processes and load the model.

    Blocks: for seconds on a CPU, many minutes on eight GPUs. Raises EngineStartError.
    """
    report("checking the model")
    folder = check_model(model)
    merged = profile.merged(overrides)
    if folder is not None and merged.get("load_format") != "dummy":
        check_weights(folder)
    check_plugin_allowed(plugin.ENTRY_POINT)
    environment = {**COMMON_ENVIRONMENT, **profile.environment}
    if folder is not None:
        environment["HF_HUB_OFFLINE"] = "1"
    os.environ["K3_MODEL"] = model  # the engine patches look at the checkpoint's quantisation
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    if folder is not None and profile.host_memory:
        bytes_per_weight = 4 if merged.get("dtype") == "float32" else 2
        check_memory(folder, merged.get("kv_cache_memory_bytes") or 0, profile.host_memory, bytes_per_weight)

    report("importing vLLM")
    from vllm.v1.engine.async_llm import AsyncLLM

    report("configuring the engine")
    arguments = profile.engine_args(str(folder) if folder is not None else model, overrides)
    if arguments.kv_events_config is None:
        arguments.kv_events_config = local_config()
    if not plugin.is_registered():
        raise EngineStartError(
            "vLLM did not load this project's plugin",
            "See the log above for the error in engine/plugin; reinstall with: pip install --no-deps -e .",
        )
    try:
        config = arguments.create_engine_config()
    except (ValueError, TypeError, OSError, AssertionError, NotImplementedError) as error:
        raise EngineStartError(f"vLLM refuses this configuration: {error}", "Correct the override") from error
    report("starting the engine and loading weights")
    try:
        with reported(report):
            return AsyncLLM.from_vllm_config(config, disable_log_stats=arguments.disable_log_stats)
    except Exception as error:  # whatever the engine process died of, this one reports it
        raise EngineStartError(
            f"the engine process did not start: {error}",
            "Its own error is in the log above; VLLM_LOGGING_LEVEL=INFO shows more",
        ) from error


def describe(llm: AsyncLLM, profile: str) -> EngineInfo:
    """What the front end must know of a running engine."""
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
        # vLLM adds up the blocks of all ranks, but not their tokens.
        n_cache_blocks=(config.cache_config.num_gpu_blocks or 0) // config.parallel_config.data_parallel_size,
        n_cache_tokens=config.cache_config.kv_cache_size_tokens or 0,
        has_cache_events=bool(llm.get_kv_event_sources()),
    )
