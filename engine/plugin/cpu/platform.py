"""vLLM's CPU platform: keep the settings that K3 needs."""

from __future__ import annotations

from typing import Any

K3_MODEL_TYPES = ("kimi_k3", "kimi_linear")


def keep_prefix_caching() -> None:
    """Keep chunked prefill, prefix caching, the token budget and the block size for K3.

    Without AMX the platform hook turns the first two off for every MLA model, though the CPU MLA code handles
    both; K3's "align" state cache then fails an assert. The hook runs again in the engine process and resets
    the block size of 128 to 16; symptom: prefills are cut at multiples of 16 and a prefix never hits on its
    first reuse, with no message (docs/concepts/engine.md#on-a-cpu). Retired when the hook leaves hybrid
    models alone.
    """
    from vllm.platforms.cpu import CpuPlatform

    stock = CpuPlatform.check_and_update_config.__func__
    if getattr(stock, "_k3_gateway", False):
        return

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        model = vllm_config.model_config
        cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
        wanted = (
            scheduler.enable_chunked_prefill,
            cache.enable_prefix_caching,
            scheduler.max_num_batched_tokens,
            cache.block_size,
        )
        stock(cls, vllm_config)
        if model is not None and model.hf_config.model_type in K3_MODEL_TYPES:
            (
                scheduler.enable_chunked_prefill,
                cache.enable_prefix_caching,
                scheduler.max_num_batched_tokens,
                block_size,
            ) = wanted
            cache.block_size = block_size or cache.block_size

    check_and_update_config._k3_gateway = True  # type: ignore[attr-defined]
    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


def find_kernels_despite_llvmlite() -> None:
    """Let vLLM's scan for Triton kernels pass objects whose `__dict__` is not a dict.

    The scan looks at every attribute of every loaded module; llvmlite (loaded by numba, which K3's image
    processor needs) has one that breaks it: AttributeError "... object has no attribute 'get'" at start-up
    whenever image processor and engine share a process (docs/concepts/engine.md#on-a-cpu). Retired when the
    scan checks types.
    """
    from vllm.triton_utils import dispatcher

    def vars_of(value: object) -> dict[str, Any]:
        namespace = vars(value)
        return namespace if isinstance(namespace, dict) else {}

    dispatcher.vars = vars_of
