"""What `engine.plugin.cpu.communicator` adds, between two real processes over gloo."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from engine.plugin.cpu.communicator import gather_rows, sum_own_rows

SIZES = ([3, 1], [0, 2], [2, 0], [5, 5])
DTYPES = (torch.float32, torch.bfloat16, torch.int32)


def rows_of(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(size * 4).reshape(size, 4) + 100 * rank).to(dtype)


def work(rank: int, store: str, answers: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    group = dist.group.WORLD
    assert group is not None
    found = []
    for sizes in SIZES:
        for dtype in DTYPES:
            gathered = gather_rows(rows_of(rank, sizes[rank], dtype), sizes, group)
            # Each rank's partial result for the rows of both.
            own = sum_own_rows(gathered * (rank + 1), sizes, rank, group)
            found.append((gathered.float().tolist(), own.float().tolist(), str(gathered.dtype)))
    answers.put((rank, found))
    dist.destroy_process_group()


def test_rows_are_gathered_in_order_and_summed_for_their_owner(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    workers = [context.Process(target=work, args=(rank, str(tmp_path / "store"), answers)) for rank in (0, 1)]
    for worker in workers:
        worker.start()
    found = dict(answers.get(timeout=100) for _ in workers)
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    cases = [(sizes, dtype) for sizes in SIZES for dtype in DTYPES]
    for number, (sizes, dtype) in enumerate(cases):
        parts = [rows_of(rank, sizes[rank], dtype) for rank in (0, 1)]
        for rank in (0, 1):
            gathered, own, name = found[rank][number]
            assert gathered == torch.cat(parts).float().tolist() and name == str(dtype)
            assert own == (parts[rank] * 3).float().tolist()
