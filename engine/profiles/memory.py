"""Where the memory goes: weights, cache blocks, and how many sequences of which length they hold.

All sizes are bytes of one GPU (of one process on a CPU) unless said otherwise. The rules of the cache are
vLLM's for a model with two kinds of layers (docs/concepts/model.md#cache): MLA keeps a latent vector a token,
KDA a state of fixed size, and both are stored in blocks of the same size, drawn from one pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BLOCK_ALIGNMENT = 128
"""Tokens: a cache block is a multiple of it."""

_SHARED_EXPERTS = 2


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What of a K3 decides the size of its cache. Defaults are the real model's.

    See docs/concepts/model.md#text-config.
    """

    n_mla_layers: int = 24
    n_kda_layers: int = 69
    latent_dim: int = 512 + 64
    kda_heads: int = 96
    kda_head_dim: int = 128
    conv_size: int = 4

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> CacheShape:
        """The shape of the checkpoint with this config.json. Raises KeyError where it is not a K3's."""
        text = config["text_config"]
        linear = text["linear_attn_config"]
        return cls(
            n_mla_layers=len(linear["full_attn_layers"]),
            n_kda_layers=len(linear["kda_layers"]),
            latent_dim=text["kv_lora_rank"] + text["qk_rope_head_dim"],
            kda_heads=linear["num_heads"],
            kda_head_dim=linear["head_dim"],
            conv_size=linear["short_conv_kernel_size"],
        )


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """How an engine stores the cache: element sizes in bytes, and over how many GPUs it is spread.

    states_per_sequence: KDA states that a running sequence holds in each KDA group: the one it writes,
                         the one it started from, and one a speculative token unless those are recomputed
                         (`use_replayssm`)
    """

    latent_bytes: int = 1
    state_bytes: int = 4
    conv_bytes: int = 2
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    states_per_sequence: int = 2

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Any]) -> CacheLayout:
        """The layout that these engine arguments ask for."""
        dtype_bytes = 4 if arguments.get("dtype") == "float32" else 2
        is_fp8 = str(arguments.get("kv_cache_dtype", "auto")).startswith("fp8")
        state_dtype = arguments.get("mamba_ssm_cache_dtype", "auto")
        speculative = arguments.get("speculative_config") or {}
        n_speculative = 0 if arguments.get("use_replayssm") else speculative.get("num_speculative_tokens", 0)
        return cls(
            latent_bytes=1 if is_fp8 else dtype_bytes,
            state_bytes=2 if state_dtype in ("bfloat16", "float16") else 4,
            conv_bytes=dtype_bytes,
            tensor_parallel=arguments.get("tensor_parallel_size", 1),
            pipeline_parallel=arguments.get("pipeline_parallel_size", 1),
            context_parallel=arguments.get("decode_context_parallel_size", 1),
            states_per_sequence=2 + n_speculative,
        )


@dataclass(frozen=True, slots=True)
class Cache:
    """The blocks that `memory` bytes of one GPU hold."""

    shape: CacheShape
    layout: CacheLayout
    memory: int

    @property
    def state_size(self) -> int:
        """One layer's KDA state: a matrix a head, and the last inputs of three short convolutions."""
        shape, layout = self.shape, self.layout
        width = shape.kda_heads * shape.kda_head_dim // layout.tensor_parallel
        recurrent = width * shape.kda_head_dim * layout.state_bytes
        return recurrent + 3 * width * (shape.conv_size - 1) * layout.conv_bytes

    @property
    def latent_size(self) -> int:
        """One layer's MLA latent of one token; the same on every tensor-parallel rank."""
        return self.shape.latent_dim * self.layout.latent_bytes

    @property
    def tokens_per_page(self) -> int:
        """Tokens of one GPU's MLA page: the fewest, in steps of 128, whose latents are as big as a state."""
        return -(-self.state_size // (self.latent_size * BLOCK_ALIGNMENT)) * BLOCK_ALIGNMENT

    @property
    def tokens_per_block(self) -> int:
        """Tokens of a block; with decode context parallelism each GPU holds a part of them."""
        return self.tokens_per_page * self.layout.context_parallel

    @property
    def layers_per_group(self) -> int:
        """Layers that share a block: as many as the rarer kind has, so 24 of K3's 93."""
        return min(self.shape.n_mla_layers, self.shape.n_kda_layers)

    @property
    def n_state_groups(self) -> int:
        """Groups of KDA layers, each with blocks of its own."""
        return -(-self.shape.n_kda_layers // self.layers_per_group)

    @property
    def block_size(self) -> int:
        """Bytes of a block: a page in each layer of a group, shared out over the pipeline's stages."""
        layers = -(-self.layers_per_group // self.layout.pipeline_parallel)
        return layers * self.tokens_per_page * self.latent_size

    @property
    def n_blocks(self) -> int:
        return max(0, self.memory) // self.block_size

    def blocks_of(self, n_tokens: int) -> int:
        """Blocks of a running sequence of `n_tokens`, cached states of its past not counted."""
        return -(-n_tokens // self.tokens_per_block) + self.layout.states_per_sequence * self.n_state_groups

    def n_sequences(self, n_tokens: int) -> int:
        """Sequences of `n_tokens` that can run at once."""
        return self.n_blocks // self.blocks_of(n_tokens)

    def n_tokens(self, n_sequences: int) -> int:
        """The longest context that `n_sequences` can have at once; 0 when they do not fit at all."""
        blocks = self.n_blocks // n_sequences - self.layout.states_per_sequence * self.n_state_groups
        return max(0, blocks) * self.tokens_per_block


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of nvidia/Kimi-K3-NVFP4 by where they lie (docs/concepts/model.md#nvfp4)."""

    sharded: int
    replicated: int

    def per_gpu(self, tensor_parallel: int, pipeline_parallel: int = 1) -> int:
        """Of the GPU with the most; a replicated weight is whole on every rank of its pipeline stage."""
        return (self.sharded // tensor_parallel + self.replicated) // pipeline_parallel

    @property
    def total(self) -> int:
        """As stored in the checkpoint."""
        return self.sharded + self.replicated


def k3_nvfp4_weights() -> Weights:
    """Experts NVFP4 (half a byte, and a scale byte for 16), attention FP8, everything else BF16.

    vLLM replicates the latent projections, the router, MLA's down projections and the vision part.
    """
    hidden, latent, experts, inner = 7168, 3584, 896, 3072
    n_layers, n_kda, n_mla, moe = 93, 69, 24, 92
    kda = 5 * 12288 * hidden + 128 * (hidden + 12288) + 96 * hidden
    mla = 18432 * 1536 + 24576 * 512 + 2 * 12288 * hidden
    sharded = (
        moe * experts * 3 * inner * latent * 9 // 16
        + n_kda * kda
        + n_mla * mla
        + 2 * moe * 3 * hidden * (_SHARED_EXPERTS * inner)
        + 2 * 3 * hidden * 33792
        + 2 * 2 * 163840 * hidden
    )
    vision = 27 * (4608 * 1024 + 1024 * 1536 + 2 * 1024 * 4096) + 4096 * 4096 + 4096 * hidden
    replicated = (
        2 * moe * 2 * hidden * latent
        + 2 * moe * experts * hidden
        + n_mla * (1536 + 576) * hidden
        + 2 * n_layers * 6 * hidden
        + 2 * vision
    )
    return Weights(sharded, replicated)


def cache_memory(gpu_memory: int, utilization: float, weights: int, reserve: int) -> int:
    """What is left of a GPU for the cache; negative where the weights do not fit."""
    return int(gpu_memory * utilization) - weights - reserve
