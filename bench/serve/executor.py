"""What computes nothing: an executor for vLLM's real EngineCore that answers with tokens from a file.

Scheduler, cache manager, prefix cache, ZeroMQ and message formats are vLLM's own; only the model is missing.
vLLM imports this module by name in the engine's process (`distributed_executor_backend`).

Environment: BENCH_SCRIPT names the file of token ids (JSON: {"tokens": [...], "loop_from": n}),
BENCH_CONTROL a file of one byte (`p`: a step takes as long as `step_seconds` says; `u`: no time at all),
BENCH_LOG a file that gets a line for each request's first token (see `FirstToken` in bench.serve.core).
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from vllm.model_executor.layers.mamba.mamba_utils import MambaStateDtypeCalculator, MambaStateShapeCalculator
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import KVCacheSpec, MambaSpec, MLAAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

from bench.serve.core import step_seconds
from engine.plugin.worker import WorkerExtension

# Enough blocks for a million tokens of history; nothing is allocated.
CACHE_BYTES = 24 * 2**30
BLOCK_UNIT = 128


class Script:
    """Token ids of a reply; from the end on it goes round from `loop_from`."""

    def __init__(self, path: Path) -> None:
        data = json.loads(path.read_text())
        self.tokens: list[int] = data["tokens"]
        self.loop_from: int = data["loop_from"]

    def at(self, position: int) -> int:
        n = len(self.tokens)
        if position >= n:
            position = self.loop_from + (position - self.loop_from) % (n - self.loop_from)
        return self.tokens[position]


class Paced(Future[Any]):
    """The outcome of a step, which is not there before its time."""

    def __init__(self, value: Any, due: float) -> None:
        super().__init__()
        self._due = due
        self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        if (wait := self._due - time.monotonic()) > 0:
            time.sleep(wait)
        return super().result(timeout)


class ScriptedExecutor(Executor):
    """One "device" that has K3's cache groups and no weights."""

    def _init_executor(self) -> None:
        self._script = Script(Path(os.environ["BENCH_SCRIPT"]))
        control = os.open(os.environ["BENCH_CONTROL"], os.O_RDONLY)
        self._control = mmap.mmap(control, 1, prot=mmap.PROT_READ)
        self._log = os.open(os.environ["BENCH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        # Of each running request: prompt tokens, tokens given so far.
        self._requests: dict[str, list[int]] = {}
        self._extension = WorkerExtension()
        self._align_pages()

    def _align_pages(self) -> None:
        """The block size that vLLM would settle with real layers: a page of MLA holds a state of KDA."""
        cache = self.cache_config
        per_token = self._mla(1).page_size_bytes
        state = self._kda(1, None).page_size_bytes
        cache.block_size = -(-state // (per_token * BLOCK_UNIT)) * BLOCK_UNIT
        cache.mamba_block_size = cache.block_size
        cache.mamba_page_size_padded = per_token * cache.block_size

    def _mla(self, block_size: int) -> MLAAttentionSpec:
        return MLAAttentionSpec(
            block_size=block_size,
            num_kv_heads=1,
            max_tp_shards=1,
            head_size=self.model_config.get_head_size(),
            dtype=self.model_config.dtype,
            cache_dtype_str=self.cache_config.cache_dtype,
        )

    def _kda(self, block_size: int, padded: int | None) -> MambaSpec:
        linear = self.model_config.hf_text_config.linear_attn_config
        return MambaSpec(
            shapes=tuple(
                MambaStateShapeCalculator.kda_state_shape(
                    1,
                    linear["num_heads"],
                    linear["head_dim"],
                    conv_kernel_size=linear["short_conv_kernel_size"],
                    num_spec=0,
                )
            ),
            dtypes=MambaStateDtypeCalculator.kda_state_dtype(self.model_config.dtype, "auto", "auto"),
            block_size=block_size,
            page_size_padded=padded,
            mamba_type=MambaAttentionBackendEnum.GDN_ATTN,
            mamba_cache_mode=self.cache_config.mamba_cache_mode,
        )

    def get_kv_cache_specs(self) -> list[dict[str, KVCacheSpec]]:
        """Of every layer, as the model's own layers give them."""
        cache, linear = self.cache_config, self.model_config.hf_text_config.linear_attn_config
        mla = self._mla(cache.block_size)
        kda = self._kda(cache.mamba_block_size, cache.mamba_page_size_padded)
        name = "language_model.model.layers.{}.self_attn".format
        specs: dict[int, KVCacheSpec] = dict.fromkeys(linear["full_attn_layers"], mla)
        specs |= dict.fromkeys(linear["kda_layers"], kda)
        return [{name(layer - 1): specs[layer] for layer in sorted(specs)}]

    def determine_available_memory(self) -> list[int]:
        return [CACHE_BYTES]

    def collective_rpc(  # type: ignore[override]
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        answers: dict[str, Any] = {
            "get_supported_kv_cache_layouts": ["LBNHC"],
            "get_supported_tasks": ("generate",),
            "compile_or_warm_up_model": CompilationTimes(0.0, 0.0),
            "k3_plugin_registered": True,
        }
        if method == "k3_patch_report":
            return [self._extension.k3_patch_report()]
        return [answers.get(str(method))]

    def execute_model(  # type: ignore[override]
        self, scheduler_output: SchedulerOutput, non_block: bool = False
    ) -> Any:
        begun = time.monotonic()
        requests, scheduled = self._requests, scheduler_output.num_scheduled_tokens
        for request_id in scheduler_output.finished_req_ids:
            requests.pop(request_id, None)
        computed = {}
        for new in scheduler_output.scheduled_new_reqs:
            requests[new.req_id] = [new.prompt_len, 0]
            computed[new.req_id] = new.num_computed_tokens
        running = scheduler_output.scheduled_cached_reqs
        computed |= zip(running.req_ids, running.num_computed_tokens, strict=True)
        ids = list(scheduled)
        sampled: list[list[int]] = []
        first = []
        for request_id in ids:
            state = requests[request_id]
            if computed[request_id] + scheduled[request_id] < state[0] + state[1]:
                sampled.append([])
                continue
            sampled.append([self._script.at(state[1])])
            if not state[1]:
                first.append(f"{state[0]} {computed[request_id]}")
            state[1] += 1
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: n for n, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
        )
        due = begun
        if ids and self._control[:1] == b"p":
            due += step_seconds(len(ids))
        if first:
            given = max(due, time.monotonic())
            os.write(self._log, "".join(f"{begun} {given} {line}\n" for line in first).encode())
        if not non_block:
            return Paced(output, due).result()
        return Paced(output, due)

    def sample_tokens(  # type: ignore[override]
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> Any:
        raise NotImplementedError("execute_model gives its tokens at once")

    def check_health(self) -> None:
        return None

    def shutdown(self) -> None:
        return None

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return False
