"""Named ways to launch the engine: vLLM's arguments and environment, their source and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import patches
from engine.errors import EngineStartError
from engine.tokenizer import TOKENIZER_MODE

if TYPE_CHECKING:
    from vllm.engine.arg_utils import AsyncEngineArgs

_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to run K3.

    arguments:   fields of vLLM's AsyncEngineArgs; any can be overridden at launch
    environment: set before vLLM is imported, where the user has not set it
    needs:       hardware, for people
    memory:      the arithmetic behind the sizes, for people
    source:      where the arguments come from
    host_memory: bytes of main memory for processes, beside weights and cache; 0 = not checked
    """

    name: str
    summary: str
    needs: str
    memory: str
    source: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    host_memory: int = 0

    def merged(self, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """All arguments of vLLM but the model: common ones, the profile's, then the user's."""
        return {**COMMON_ARGUMENTS, **self.arguments, **(overrides or {})}

    def engine_args(self, model: str, overrides: Mapping[str, Any] | None = None) -> AsyncEngineArgs:
        """Raises EngineStartError for an argument that vLLM does not know or refuses. Imports vLLM."""
        from vllm.engine.arg_utils import AsyncEngineArgs

        arguments = {**patches.engine_arguments(), **self.merged(overrides)}
        # Part of vLLM's config hash: a graph compiled without a patch must not serve a run with it.
        additional = {**(arguments.get("additional_config") or {}), "k3_patches": patches.cache_key()}
        arguments["additional_config"] = additional
        if unknown := sorted(set(arguments) - {f.name for f in fields(AsyncEngineArgs)}):
            raise EngineStartError(
                f"vLLM has no engine argument {', '.join(unknown)}",
                "See AsyncEngineArgs of the installed vLLM",
            )
        try:
            return AsyncEngineArgs(model=model, **arguments)
        except (TypeError, ValueError) as error:
            raise EngineStartError(
                f"vLLM refuses the engine arguments: {error}", "Correct the override"
            ) from error


COMMON_ARGUMENTS: Mapping[str, Any] = {
    "tokenizer_mode": TOKENIZER_MODE,
    "trust_remote_code": False,
    "worker_extension_cls": "engine.worker.WorkerExtension",
    "structured_outputs_config": {"backend": "xgrammar"},
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "enable_log_requests": False,
    "disable_log_stats": True,
}

COMMON_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
    # The front end has threads by the time the engine starts; a forked child could inherit a held lock.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}

CPU_MINI = Profile(
    name="cpu-mini",
    summary="the mini K3 on a CPU: for trying out, tests and development",
    needs="2 cores, 3 GiB of memory, no GPU",
    memory=(
        "A cache block is 128 tokens of two layers (the 6 layers form 3 groups of 2): an MLA layer keeps "
        "128 x 576 x 4 B = 288 KiB per block, and a KDA layer's state (4 heads x 64 x 64 x 4 B = 64 KiB, "
        "plus 9 KiB of convolution) is padded to the same, so a block is 576 KiB and 320 MiB hold 568 of "
        "them. A prompt of 32768 tokens takes 256 blocks of MLA; each step of prefill also leaves a state "
        "per KDA group, which stays until the room is needed."
    ),
    source="spec cpu-k3.md, settings",
    arguments={
        # float32: "auto" would make it bfloat16, whose rounding flips experts of a small model.
        "dtype": "float32",
        "max_model_len": 32768,
        "max_num_seqs": 32,
        # A step of at most two blocks: prefills are chunked like on a GPU, and a KDA state is saved where a
        # step ends.
        "max_num_batched_tokens": 256,
        "kv_cache_memory_bytes": 320 * _MIB,
        # None keeps every state that a step saved; 0 would keep the prompt's last one only (cpu-k3.md).
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

B300X8 = Profile(
    name="b300x8",
    summary="nvidia/Kimi-K3-NVFP4 on one node of eight B300",
    needs="8 x B300 (288 GB), 1.6 TB of disk for the weights, vLLM 0.33, the package fastsafetensors",
    memory=(
        "Weights: about 1.5 TB over 8 GPUs. Cache: at TP 8 a block is 1536 tokens, since a KDA state of "
        "12 heads x 128 x 128 x 4 B + convolution = 814,080 B must fit an MLA page of 576 B per token (fp8)."
    ),
    source="issue 10: the published flags; spec patches-and-engine.md 3, 4",
    arguments={
        "tensor_parallel_size": 8,
        "quantization": "modelopt_mixed",
        "moe_backend": "flashinfer_trtllm",
        "kv_cache_dtype": "fp8",
        "attention_config": {"mla_prefill_backend": "TRTLLM_RAGGED", "use_prefill_query_quantization": True},
        "load_format": "fastsafetensors",
        "max_model_len": 196608,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 8192,
        "gpu_memory_utilization": 0.90,
        # Without it every hit is floored to the block of 1536 tokens.
        "prefix_match_unit": 128,
        # "data" slices a video chunk's output wrongly (patches-and-engine.md 5).
        "mm_encoder_tp_mode": "weights",
    },
    environment={"VLLM_ENGINE_READY_TIMEOUT_S": "3600"},
)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (CPU_MINI, B300X8)}


def get_profile(name: str) -> Profile:
    """Raises EngineStartError for a name that is not known."""
    if name not in PROFILES:
        raise EngineStartError(f"there is no profile {name!r}", f"Known profiles: {', '.join(PROFILES)}")
    return PROFILES[name]
