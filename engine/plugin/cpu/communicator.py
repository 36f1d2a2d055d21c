"""vLLM's CPU communicator: what a mixture of experts needs between data-parallel ranks.

Ranks that share experts meet twice in each layer: every rank gathers the tokens of all (`all_gatherv`),
computes its slice of every expert for them, and gets back the sums for its own (`reduce_scatterv`). Both have
uneven sizes, since ranks serve different requests. Expert parallelism is not covered
(`engine.plugin.cpu.experts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


def gather_rows(rows: torch.Tensor, sizes: Sequence[int], group: dist.ProcessGroup) -> torch.Tensor:
    """The rows of all ranks, in the order of ranks.

    rows: (sizes[own rank], ...); the same dtype and trailing shape on every rank. Returns (sum(sizes), ...).
    gloo gathers even sizes only, so all are padded to the largest.
    """
    padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])


def sum_own_rows(
    rows: torch.Tensor, sizes: Sequence[int], rank: int, group: dist.ProcessGroup
) -> torch.Tensor:
    """This rank's rows of the sum over all ranks.

    rows: (sum(sizes), ...), one partial result for every rank's tokens. Returns (sizes[rank], ...). By an
    all-reduce, of which each rank keeps its part: gloo has no uneven reduce-scatter, and all ranks then add
    in one order.
    """
    summed = rows.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(summed, group=group)
    start = sum(sizes[:rank])
    return summed[start : start + sizes[rank]]


def exchange_tokens_between_ranks() -> None:
    """Give the CPU communicator `all_gatherv` and `reduce_scatterv`.

    Without it: NotImplementedError from the first mixture-of-experts layer with data_parallel_size > 1
    (docs/concepts/engine.md#on-a-cpu). Retired when `CpuCommunicator` has both itself: then they are left.
    """
    from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    def even(self: Any, n_rows: int) -> list[int]:
        return [n_rows] * self.world_size

    def all_gatherv(
        self: Any,
        input_: torch.Tensor | list[torch.Tensor],
        dim: int = 0,
        sizes: list[int] | None = None,
    ) -> torch.Tensor | list[torch.Tensor]:
        if dim != 0:
            raise NotImplementedError("all_gatherv on CPU gathers along the first dimension only")
        if isinstance(input_, list):
            return [gather_rows(one, sizes or even(self, len(one)), self.device_group) for one in input_]
        return gather_rows(input_, sizes or even(self, len(input_)), self.device_group)

    def reduce_scatterv(
        self: Any, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None
    ) -> torch.Tensor:
        if dim % input_.dim() != 0:
            raise NotImplementedError("reduce_scatterv on CPU scatters along the first dimension only")
        wanted = sizes or even(self, len(input_) // self.world_size)
        return sum_own_rows(input_, wanted, self.rank_in_group, self.device_group)

    for name, function in (("all_gatherv", all_gatherv), ("reduce_scatterv", reduce_scatterv)):
        if getattr(CpuCommunicator, name) is getattr(DeviceCommunicatorBase, name):
            setattr(CpuCommunicator, name, function)
