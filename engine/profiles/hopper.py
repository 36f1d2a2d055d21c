"""The profile for one Hopper GPU: random weights, real kernels. K3 itself does not fit there."""

from __future__ import annotations

from engine.profiles.profile import Profile, Requirements

_GIB = 2**30

H200_SMOKE = Profile(
    name="h200-smoke",
    summary="a small K3 of random weights on one GPU: does the whole service work with GPU kernels?",
    needs="1 GPU of compute capability 9.0 with 16 GB free, vLLM 0.32 or 0.33 for CUDA",
    requires=Requirements(
        vllm=">=0.32,<0.34",
        gpus_per_node=1,
        compute_capability=(9, 0),
        gpu_memory=16 * _GIB,
        driver=580,
        host_memory=8 * _GIB,
        shared_memory=64 * 2**20,
        open_files=4096,
    ),
    memory=(
        "Weights of the smoke checkpoint: some 0.3 GB, made up at start (load_format dummy), so a folder "
        "with config and tokenizer is enough. The cache gets 4 GiB: with 12 KDA heads of 128 in float32 "
        "and a bfloat16 latent of 576 a block is 768 tokens of two layers, 1.8 MB, so some 2,400 blocks."
    ),
    source="bench/h200_smoke.py; sizes that the GPU kernels accept are from vLLM 0.33's source",
    arguments={
        "load_format": "dummy",
        "max_model_len": 32768,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "max_cudagraph_capture_size": 32,
        "kv_cache_memory_bytes": 4 * _GIB,
        "prefix_match_unit": 128,
        "mm_encoder_tp_mode": "weights",
        # The biggest picture is for real sizes; here it would only cost start-up time.
        "skip_mm_profiling": True,
    },
)
