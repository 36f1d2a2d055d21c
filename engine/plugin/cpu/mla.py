"""Multi-head latent attention on CPU: vLLM's own backend, allowed to live in a hybrid cache."""

from __future__ import annotations

from typing import Any

# What vLLM's CPU decode kernel is compiled for; larger cache blocks are split into these by the runner.
KERNEL_BLOCK = 16


def allow_larger_cache_blocks() -> None:
    """Let the MLA backend accept cache blocks that are multiples of its kernel's block of 16 tokens.

    A hybrid model raises the block to a multiple of 128 so that KDA and MLA pages match. Symptom without it:
    "Aligned KV cache block size 128 is not supported by attention backend(s): CPU_MLA"
    (docs/concepts/engine.md#on-a-cpu). Retired when CPU_MLA declares multiples itself.
    """
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend

    def supports_block_size(cls: Any, block_size: int | None) -> bool:
        return block_size is None or block_size % KERNEL_BLOCK == 0

    CPUMLABackend.supports_block_size = classmethod(supports_block_size)
