"""nvidia/Kimi-K3-NVFP4 on Blackwell: one node of eight B300, and two.

The flags of B300X8 are those that NVIDIA's model card publishes for eight B300, with what this service adds.
The others change what their names say, or follow vLLM's published recipe for K3 of autumn 2026; each says
why, flag by flag, in `reasons`. None has been run by this project: it has no such machine. Nothing depends on
a checkpoint's name: moonshotai/Kimi-K3.1-Pro and nvidia/Kimi-K3.1-Pro-NVFP4 have the same architecture and
sizes and take the same profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.profiles.memory import Cache, CacheLayout, CacheShape, cache_memory, k3_nvfp4_weights
from engine.profiles.profile import Profile, Requirements

_GIB = 2**30
B300_MEMORY = 288 * 10**9
RESERVE = 10 * _GIB
"""Assumed for a step's activations (8192 tokens, 8 saved residual blocks, experts), CUDA graphs, NCCL and
the vision tower. vLLM measures it at start and logs "Available KV cache memory"."""

ACTIVATIONS = 4 * _GIB
"""Assumed for each further 8192 tokens of a step."""

DRAFT_MEMORY = 5 * 10**9
"""Assumed for the DSpark draft's weights and its own cache, a GPU."""

_COMMON: Mapping[str, Any] = {
    "tensor_parallel_size": 8,
    "quantization": "modelopt_mixed",
    "moe_backend": "flashinfer_trtllm",
    "kv_cache_dtype": "fp8",
    "attention_backend": "FLASHINFER_MLA",
    # fp8 in the cache asks for fp8 queries in prefill.
    "attention_config": {"mla_prefill_backend": "TRTLLM_RAGGED", "use_prefill_query_quantization": True},
    "load_format": "fastsafetensors",
    "max_model_len": 196608,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 8192,
    "max_cudagraph_capture_size": 32,
    "gpu_memory_utilization": 0.90,
    # Without it every hit is floored to the block of 1536 tokens.
    "prefix_match_unit": 128,
    # "data" slices a video chunk's output wrongly (docs/concepts/engine.md#prompts-and-pictures).
    "mm_encoder_tp_mode": "weights",
}

_REASONS: Mapping[str, str] = {
    "tensor_parallel_size": "the weights fill eight GPUs (model card)",
    "quantization": "the checkpoint mixes FP8 blocks and NVFP4 experts (model card)",
    "moe_backend": "the kernel with SiTU for NVFP4 experts on Blackwell (model card)",
    "kv_cache_dtype": "half the cache of bfloat16; the checkpoint was calibrated for it (model card)",
    "attention_backend": "the decode kernel for K3's MLA sizes on Blackwell (model card)",
    "attention_config": "queries of prefill in fp8 like the cache, faster from 4k tokens on (model card, and "
    "vLLM itself advises it)",
    "load_format": "reads shards straight to the GPUs: minutes instead of tens of them (model card)",
    "max_num_batched_tokens": "model card",
    "max_cudagraph_capture_size": "graphs for as many streams as may run: beyond that a step is launched "
    "kernel by kernel",
    "gpu_memory_utilization": "model card",
    "prefix_match_unit": "hits end at multiples of 128 tokens, not of a block of 1536 (vLLM's source)",
    "mm_encoder_tp_mode": "with `data` a video chunk's output is sliced wrongly (docs/concepts/engine.md)",
}

_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    # Serving this checkpoint with a patch that failed means wrong numbers, not an error.
    "K3_PATCHES": "strict",
}

_REQUIRES = Requirements(
    vllm="==0.33.*",
    gpus_per_node=8,
    compute_capability=(10, 0),
    gpu_memory=270 * 10**9,
    driver=580,
    disk=16 * 10**11,
    # Nine processes that import torch and CUDA, pinned buffers, prepared pictures and clips.
    host_memory=96 * _GIB,
    shared_memory=16 * _GIB,
    open_files=65536,
    packages=("fastsafetensors", "flashinfer"),
)
_NEEDS = "8 x B300 (288 GB each), 1.6 TB of disk, driver 580 or newer, vLLM 0.33, fastsafetensors, flashinfer"


def _reserve(arguments: Mapping[str, Any]) -> int:
    n_tokens: int = arguments["max_num_batched_tokens"]
    return RESERVE + ACTIVATIONS * max(0, n_tokens - 8192) // 8192


def cache_of(arguments: Mapping[str, Any], gpu_memory: int = B300_MEMORY) -> Cache:
    """The cache of one GPU under these engine arguments, by arithmetic."""
    layout = CacheLayout.of_arguments(arguments)
    weights = k3_nvfp4_weights().per_gpu(layout.tensor_parallel, layout.pipeline_parallel)
    if arguments.get("speculative_config"):
        weights += DRAFT_MEMORY
    memory = cache_memory(gpu_memory, arguments["gpu_memory_utilization"], weights, _reserve(arguments))
    return Cache(CacheShape(), layout, memory)


def _explain(arguments: Mapping[str, Any]) -> str:
    cache = cache_of(arguments)
    tp, pp = cache.layout.tensor_parallel, cache.layout.pipeline_parallel
    weights = k3_nvfp4_weights().per_gpu(tp, pp)
    draft = f", the draft {DRAFT_MEMORY / 1e9:.0f} GB" if arguments.get("speculative_config") else ""
    spread = f" x {cache.layout.context_parallel} GPUs" if cache.layout.context_parallel > 1 else ""
    context, n_sequences = arguments["max_model_len"], arguments["max_num_seqs"]
    return (
        f"A GPU: {B300_MEMORY / 1e9:.0f} GB x {arguments['gpu_memory_utilization']:.2f}, of which weights "
        f"take {weights / 1e9:.0f} GB (experts and attention over {tp * pp} GPUs, latent projections and "
        f"routers on each){draft}, activations and graphs about {_reserve(arguments) / 1e9:.0f} GB: "
        f"{cache.memory / 1e9:.0f} GB of cache. A KDA state is {cache.state_size:,} B and must fit a page of "
        f"MLA at {cache.latent_size} B a token, so a block is {cache.tokens_per_page} tokens{spread}, "
        f"{cache.layers_per_group} layers, {cache.block_size / 1e6:.1f} MB a GPU: {cache.n_blocks:,} blocks. "
        f"A sequence of {context:,} tokens takes {cache.blocks_of(context)} of them, so "
        f"{cache.n_sequences(context)} such run at once, or {n_sequences} of "
        f"{cache.n_tokens(n_sequences):,} tokens."
    )


def _profile(
    name: str,
    summary: str,
    source: str,
    changes: Mapping[str, Any] | None = None,
    needs: str = _NEEDS,
    requires: Requirements = _REQUIRES,
    without: tuple[str, ...] = (),
    reasons: Mapping[str, str] | None = None,
) -> Profile:
    arguments = {**_COMMON, **(changes or {})}
    for argument in without:
        del arguments[argument]
    return Profile(
        name=name,
        summary=summary,
        needs=needs,
        requires=requires,
        memory=_explain(arguments),
        source=source,
        arguments=arguments,
        environment=_ENVIRONMENT,
        reasons={**{name: why for name, why in _REASONS.items() if name in arguments}, **(reasons or {})},
    )


_CARD = "the model card of nvidia/Kimi-K3-NVFP4 (validated there on 8 x B300)"

B300X8 = _profile(
    "b300x8",
    "nvidia/Kimi-K3-NVFP4 on one node of eight B300",
    f"{_CARD}; prefix_match_unit and mm_encoder_tp_mode from vLLM 0.33's source",
)

B300X8_DSPARK = _profile(
    "b300x8-dspark",
    "as b300x8, with DSpark speculative decoding: faster single replies, no logit_bias and no min_p",
    f"{_CARD} for the draft and its block of 7 (given there for SGLang); the rest: vLLM 0.33's source",
    {
        "speculative_config": {
            "method": "dspark",
            "model": "RadixArk/Kimi-K3-DSpark",
            "num_speculative_tokens": 7,
        },
        # Rejected tokens' KDA states are recomputed; else each sequence holds 9 states a group instead of 2.
        "use_replayssm": True,
    },
    needs=_NEEDS + ", the draft RadixArk/Kimi-K3-DSpark",
)

B300X8_EP = _profile(
    "b300x8-ep",
    "as b300x8, experts whole on one GPU each (expert parallel): for many sequences at once",
    f"{_CARD}; vLLM's expert parallelism: each GPU holds 112 of 896 experts of each layer",
    {"enable_expert_parallel": True, "max_num_seqs": 64, "max_cudagraph_capture_size": 64},
)

B300X8_DCP = _profile(
    "b300x8-dcp",
    "as b300x8, the MLA cache spread over the GPUs (decode context parallel): for long contexts",
    f"{_CARD}; the same checkpoint is published with dcp 8 for SGLang; vLLM's hits are whole blocks then",
    {"decode_context_parallel_size": 8, "max_model_len": 1048576, "max_num_seqs": 16},
    # Finer hits than a block exist without context parallelism only.
    without=("prefix_match_unit",),
)

_RECIPE = "vLLM's recipe for K3 on eight B300 (autumn 2026)"

# A step is padded to the next size; each size costs memory and start-up.
_GRAPHS_OF_64 = (1, 2, 4, *range(8, 65, 8))

_RECIPE_CHANGES: Mapping[str, Any] = {
    "max_num_batched_tokens": 16384,
    "max_num_seqs": 64,
    "cudagraph_capture_sizes": list(_GRAPHS_OF_64),
    "prefix_cache_retention_interval": 0,
}
_RECIPE_REASONS: Mapping[str, str] = {
    "max_num_batched_tokens": "a long prompt takes half as many steps; its activations need more memory "
    f"({_RECIPE})",
    "max_num_seqs": f"as many streams as there are graphs for ({_RECIPE})",
    "cudagraph_capture_sizes": f"sizes by streams: few streams are padded little ({_RECIPE})",
    "prefix_cache_retention_interval": "keeps a prompt's last KDA state and those where prompts part; None "
    f"would keep one for each step, which fills the cache ({_RECIPE})",
}

B300X8_THROUGHPUT = _profile(
    "b300x8-throughput",
    "as b300x8 by vLLM's newer recipe: steps of 16,384 tokens, 64 streams, no drafts; also for long contexts",
    f"{_CARD}; {_RECIPE}",
    _RECIPE_CHANGES,
    without=("max_cudagraph_capture_size",),
    reasons={
        **_RECIPE_REASONS,
        "speculative_config": "left out: beyond about 100k tokens of context few drafted tokens are "
        f"accepted, and drafting costs more than it gives ({_RECIPE})",
    },
)

B300X8_DSPARK_BY_STREAMS = _profile(
    "b300x8-dspark-by-streams",
    "drafts by load: 7 tokens up to 8 streams, 3 up to 16, none above; for contexts below about 100k",
    f"{_CARD} for the draft; {_RECIPE} for the schedule",
    {
        **_RECIPE_CHANGES,
        "speculative_config": {
            "method": "dspark",
            "model": "RadixArk/Kimi-K3-DSpark",
            "num_speculative_tokens": 7,
            "num_speculative_tokens_per_batch_size": [[1, 8, 7], [9, 16, 3], [17, 64, 0]],
        },
        "use_replayssm": True,
    },
    needs=_NEEDS + ", the draft RadixArk/Kimi-K3-DSpark",
    without=("max_cudagraph_capture_size",),
    reasons={
        **_RECIPE_REASONS,
        "speculative_config": "a draft that is refused costs a place in the step: worth it while few streams "
        f"run ({_RECIPE}). Needs the V2 model runner; vLLM drops the schedule with data parallelism",
        "use_replayssm": "refused tokens' KDA states are recomputed; else a sequence holds 9 states a group, "
        "not 2 (vLLM's source)",
    },
)

B300X8_DCP_A2A = _profile(
    "b300x8-dcp-a2a",
    "as b300x8-dcp with the newer kernels: all-to-all between GPUs, TOKENSPEED_MLA; for contexts up to 1M",
    f"{_CARD}; {_RECIPE}",
    {
        **_RECIPE_CHANGES,
        "decode_context_parallel_size": 8,
        "dcp_comm_backend": "a2a",
        "attention_backend": "TOKENSPEED_MLA",
        "max_model_len": 1048576,
        "max_num_seqs": 16,
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
    },
    needs=_NEEDS + ", tokenspeed-mla",
    requires=replace(_REQUIRES, packages=(*_REQUIRES.packages, "tokenspeed_mla")),
    without=("max_cudagraph_capture_size", "prefix_match_unit"),
    reasons={
        **_RECIPE_REASONS,
        "decode_context_parallel_size": f"the MLA cache is spread over eight GPUs ({_RECIPE})",
        "dcp_comm_backend": "two exchanges a layer instead of three (vLLM's source); K3's default is ag_rs",
        "attention_backend": f"decodes under context parallelism with several tokens a step ({_RECIPE}); "
        "takes MLA of 128 + 64 and values of 128, which K3 has",
        "prefix_match_unit": "left out: with context parallelism a hit is whole blocks",
    },
)

B300X16_RAY = _profile(
    "b300x16-ray",
    "two nodes of eight B300 on Ray: half of the layers each, eight times the cache",
    f"{_CARD}; vLLM's recipe for two nodes: tensor parallel 8 inside, pipeline parallel 2 across",
    {
        "distributed_executor_backend": "ray",
        "pipeline_parallel_size": 2,
        "max_model_len": 1048576,
        "max_num_seqs": 64,
        "max_cudagraph_capture_size": 64,
    },
    needs="2 nodes of 8 x B300 in one Ray cluster, 1.6 TB of disk on each (or shared), the rest as b300x8",
    requires=replace(_REQUIRES, n_nodes=2, packages=(*_REQUIRES.packages, "ray")),
)
