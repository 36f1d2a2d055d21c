"""What a launch profile is, and what all profiles have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import patches
from engine.errors import EngineStartError
from engine.plugin.tokenizer import TOKENIZER_MODE

if TYPE_CHECKING:
    from vllm.engine.arg_utils import AsyncEngineArgs


@dataclass(frozen=True, slots=True)
class Requirements:
    """What `k3 doctor` measures a machine against. Sizes are bytes; 0 and () mean: not needed.

    vllm:               version specifier (PEP 440)
    compute_capability: of each GPU, at least
    gpu_memory:         of each GPU
    driver:             branch of NVIDIA's driver, the number before the first dot
    disk:               for the weights, where they are not there yet
    host_memory:        of the whole service, on a machine whose GPUs hold weights and cache
    packages:           modules that must be importable beside this project's own
    """

    vllm: str
    gpus_per_node: int = 0
    n_nodes: int = 1
    compute_capability: tuple[int, int] = (0, 0)
    gpu_memory: int = 0
    driver: int = 0
    disk: int = 0
    host_memory: int = 0
    shared_memory: int = 0
    open_files: int = 0
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to run K3.

    arguments:   fields of vLLM's AsyncEngineArgs; any can be overridden at launch
    environment: set before vLLM is imported, where the user has not set it
    needs:       hardware and software, for people
    requires:    the same, for `k3 doctor`
    memory:      the arithmetic behind the sizes, for people
    source:      where the arguments come from
    host_memory: bytes of main memory for processes, beside weights and cache; 0 = not checked
    reasons:     argument (or "attention_config.NAME") -> why it has this value here, and who says so
    """

    name: str
    summary: str
    needs: str
    requires: Requirements
    memory: str
    source: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    host_memory: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)

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
    "worker_extension_cls": "engine.plugin.worker.WorkerExtension",
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
