"""Processes that make batches, and a thread that puts them on the device."""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from engine.mini.batch import Batch, Packer
from engine.mini.samples import samples
from engine.mini.skills.base import Source
from gateway.xtml import Vocab

_BATCHES_AHEAD = 3


def batches(
    folder: Path, seed: str, n_rows: int, row_length: int, held_out: bool = False, n_early: int = 0
) -> Iterator[Batch]:
    """Endless batches of the mix; `folder` has the vocabulary, `n_early` as in `samples.tasks`."""
    vocab = Vocab.load(folder)
    pad_id = vocab.special_ids["[PAD]"]
    packer = Packer(n_rows, row_length, pad_id)
    for sample in samples(Source(seed, held_out), vocab, row_length, n_early):
        if batch := packer.add(sample):
            yield batch


def _work(out: Any, folder: Path, seed: str, n_rows: int, row_length: int, n_early: int) -> None:
    torch.set_num_threads(1)
    for batch in batches(folder, seed, n_rows, row_length, n_early=n_early):
        buffer = io.BytesIO()
        torch.save(batch, buffer)
        out.put(buffer.getvalue())


class Feeder:
    """Batches from `n_workers` processes; without workers they are made in place.

    The first `n_early` tasks of all workers together have more echoes. Plain bytes go through a pipe, so
    shared memory need not be large.
    """

    def __init__(
        self,
        folder: Path,
        seed: str,
        n_rows: int,
        row_length: int,
        n_workers: int,
        device: torch.device,
        n_early: int = 0,
    ) -> None:
        self._device = device
        self._local: Iterator[Batch] | None = None
        self._workers: list[Any] = []
        if n_workers == 0:
            self._local = batches(folder, seed, n_rows, row_length, n_early=n_early)
            return
        context = get_context("spawn")
        made = context.Queue(n_workers)
        for worker in range(n_workers):
            arguments = (made, folder, f"{seed}-{worker}", n_rows, row_length, n_early // n_workers)
            self._workers.append(context.Process(target=_work, args=arguments, daemon=True))
            self._workers[-1].start()
        self._ready: queue.Queue[Batch] = queue.Queue(_BATCHES_AHEAD)
        threading.Thread(target=self._load, args=(made,), daemon=True).start()

    def _load(self, made: Any) -> None:
        while True:
            batch = torch.load(io.BytesIO(made.get()), weights_only=False)
            self._ready.put(batch.to(self._device))

    def next(self) -> Batch:
        """The next batch, on the device. Raises RuntimeError when a worker died."""
        if self._local is not None:
            return next(self._local).to(self._device)
        while True:
            try:
                return self._ready.get(timeout=20)
            except queue.Empty:
                if not all(worker.is_alive() for worker in self._workers):
                    raise RuntimeError("a process that makes batches has died; its error is above") from None

    def close(self) -> None:
        for worker in self._workers:
            worker.terminate()
