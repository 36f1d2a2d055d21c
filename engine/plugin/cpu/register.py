"""Everything that K3 needs on the CPU platform, applied once per process."""

from __future__ import annotations

import logging


def register() -> None:
    """Apply the overrides of `engine.plugin.cpu` and register the K3 classes. Safe to call again."""
    # It warns of every import without Triton, which no CPU installation has.
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)

    from engine.plugin.cpu.platform import find_kernels_despite_llvmlite, keep_prefix_caching

    find_kernels_despite_llvmlite()
    keep_prefix_caching()

    from engine.plugin.cpu.attention_residuals import use_torch_attention_residuals
    from engine.plugin.cpu.communicator import exchange_tokens_between_ranks
    from engine.plugin.cpu.experts import offer_situ_experts
    from engine.plugin.cpu.kda import use_torch_kda
    from engine.plugin.cpu.mla import allow_larger_cache_blocks
    from engine.plugin.cpu.runner import rewind_seeded_generators, zero_whole_blocks

    allow_larger_cache_blocks()
    use_torch_kda()
    use_torch_attention_residuals()
    offer_situ_experts()
    zero_whole_blocks()
    exchange_tokens_between_ranks()
    rewind_seeded_generators()

    from vllm import ModelRegistry

    from engine.plugin.cpu.model import CPUKimiK3ForConditionalGeneration, CPUKimiLinearForCausalLM

    ModelRegistry.register_model("KimiLinearForCausalLM", CPUKimiLinearForCausalLM)
    ModelRegistry.register_model("KimiK3ForConditionalGeneration", CPUKimiK3ForConditionalGeneration)
