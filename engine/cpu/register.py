"""Everything that K3 needs on the CPU platform, applied once per process."""

from __future__ import annotations

import logging


def register() -> None:
    """Apply the overrides of `engine.cpu` and register the K3 classes. Safe to call again."""
    # It warns of every import without Triton, which no CPU installation has.
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)

    from engine.cpu.platform import find_kernels_despite_llvmlite, keep_prefix_caching

    find_kernels_despite_llvmlite()
    keep_prefix_caching()

    from engine.cpu.attention_residuals import use_torch_attention_residuals
    from engine.cpu.experts import offer_situ_experts
    from engine.cpu.kda import use_torch_kda
    from engine.cpu.mla import allow_larger_cache_blocks
    from engine.cpu.runner import rewind_seeded_generators, zero_whole_blocks

    allow_larger_cache_blocks()
    use_torch_kda()
    use_torch_attention_residuals()
    offer_situ_experts()
    zero_whole_blocks()
    rewind_seeded_generators()

    from vllm import ModelRegistry

    from engine.cpu.model import CPUKimiK3ForConditionalGeneration, CPUKimiLinearForCausalLM

    ModelRegistry.register_model("KimiLinearForCausalLM", CPUKimiLinearForCausalLM)
    ModelRegistry.register_model("KimiK3ForConditionalGeneration", CPUKimiK3ForConditionalGeneration)
