"""vLLM's CPU model runner: bugs that K3's cache layout and seeded requests meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def zero_whole_blocks() -> None:
    """Clear the cache block that was asked for, not another one.

    A cache block of 128 tokens is kept as 8 kernel blocks of 16; the stock method clears kernel block
    `block_id`, which belongs to another cache block and may hold a live KDA state, since layers share memory.
    Symptom without it: logprobs wrong by nats from the third chunk of a prompt on, for some block layouts
    (docs/concepts/engine.md#on-a-cpu). Retired by a fix of `CPUModelRunner._zero_block_ids`.
    """
    from vllm.v1.kv_cache_interface import FullAttentionSpec
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    def _zero_block_ids(self: Any, block_ids: list[int]) -> None:
        layers = self.compilation_config.static_forward_context
        for group in self.kv_cache_config.kv_cache_groups:
            if not isinstance(group.kv_cache_spec, FullAttentionSpec):
                continue
            for name in group.layer_names:
                cache = getattr(layers.get(name), "kv_cache", None)
                if not isinstance(cache, torch.Tensor):
                    continue
                split = cache.shape[0] // self.kv_cache_config.num_blocks
                for block_id in block_ids:
                    cache[block_id * split : (block_id + 1) * split].zero_()

    CPUModelRunner._zero_block_ids = _zero_block_ids


def rewind_seeded_generators() -> None:
    """Make seeded requests with chunked prompts work, and give the same tokens however the prompt is chunked.

    The runner samples for every request of a step and throws away the samples of unfinished prompts; it then
    winds the request's generator back by an offset, which CPU generators lack. Symptom without it: the engine
    dies with "CPU Generator does not use offset" (docs/concepts/engine.md#on-a-cpu). Here the generators'
    states are kept before sampling and put back instead. Retired when the runner does so on CPU.
    """
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    stock_sample, stock_bookkeeping = CPUModelRunner._sample, CPUModelRunner._bookkeeping_sync
    if getattr(stock_sample, "_k3_gateway", False):
        return

    def _sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        unfinished = np.nonzero(self.discard_request_mask.np[: self.input_batch.num_reqs])[0]
        generators = (self.input_batch.generators.get(int(row)) for row in unfinished)
        self._k3_rewind = [(gen, gen.get_state()) for gen in generators if gen is not None]
        return stock_sample(self, *args, **kwargs)

    def _bookkeeping_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        generators = self.input_batch.generators
        self.input_batch.generators = {}
        try:
            return stock_bookkeeping(self, *args, **kwargs)
        finally:
            self.input_batch.generators = generators
            for generator, state in self._k3_rewind:
                generator.set_state(state)

    _sample._k3_gateway = True  # type: ignore[attr-defined]
    CPUModelRunner._sample = _sample
    CPUModelRunner._bookkeeping_sync = _bookkeeping_sync
