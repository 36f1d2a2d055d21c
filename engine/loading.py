"""How far loading the weights is: counted where they are read, told where people look.

In every process that loads weights the plugin wraps vLLM's loader, which then writes the bytes it has handed
to the model into a file of a folder that the service made ($K3_LOADING_FOLDER). The count is taken behind the
loader's iterator, so it is right for every `load_format` that reads a checkpoint (mapped, prefetched,
fastsafetensors); with `dummy` nothing is read and nothing is said. Workers on other nodes have no such folder
and are not counted; they read the same files at the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "K3_LOADING_FOLDER"
WRITE_SECONDS = 0.5
REPORT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Loading:
    """Weights read so far. `shard_sizes`: bytes of each file of the checkpoint, in the order of reading."""

    n_bytes: int
    shard_sizes: tuple[int, ...]
    seconds: float
    finished: bool = False

    @property
    def total(self) -> int:
        return sum(self.shard_sizes)

    @property
    def n_shards_done(self) -> int:
        """Files that the bytes read would fill from the first on."""
        if self.finished:
            return len(self.shard_sizes)
        return sum(end <= self.n_bytes for end in accumulate(self.shard_sizes))

    @property
    def seconds_left(self) -> float | None:
        """At the mean speed so far; None before anything can be said."""
        if self.n_bytes <= 0 or self.seconds <= 0 or self.n_bytes >= self.total:
            return None
        return (self.total - self.n_bytes) * self.seconds / self.n_bytes

    def __str__(self) -> str:
        unit, name = (10**9, "GB") if self.total >= 10**9 else (10**6, "MB")
        n_shards = len(self.shard_sizes)
        text = (
            f"loading weights: {self.n_shards_done} of {n_shards} shards, "
            f"{min(self.n_bytes, self.total) / unit:.1f} of {self.total / unit:.1f} {name}"
        )
        if self.finished:
            return text + "; preparing kernels, graphs and the cache"
        if (left := self.seconds_left) is None:
            return text
        return text + (f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left")


# In the processes that load


class _Meter:
    """Writes one process's count for the service; a count that cannot be written is not a reason to stop."""

    def __init__(self, folder: Path, shard_sizes: tuple[int, ...]) -> None:
        self._file = folder / f"{os.getpid()}.json"
        self._shard_sizes = shard_sizes
        self._began = self._written = time.monotonic()
        self.n_bytes = 0

    def add(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if time.monotonic() - self._written >= WRITE_SECONDS:
            self.write()

    def write(self, finished: bool = False) -> None:
        self._written = time.monotonic()
        now = Loading(self.n_bytes, self._shard_sizes, self._written - self._began, finished)
        aside = self._file.with_suffix(".new")
        with contextlib.suppress(OSError):
            aside.write_text(json.dumps(asdict(now)))
            aside.replace(self._file)


def count_loaded_bytes() -> None:
    """Wrap vLLM's loader in this process, if the service asked for a count. Idempotent; imports vLLM."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    prepare, weights = DefaultModelLoader._prepare_weights, DefaultModelLoader.get_all_weights
    if getattr(weights, "k3_counts_bytes", False):
        return

    def prepare_and_note_sizes(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepared = prepare(self, *args, **kwargs)
        with contextlib.suppress(OSError):
            self.k3_shard_sizes = tuple(os.stat(path).st_size for path in prepared[1])
        return prepared

    def counted_weights(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        meter = None
        for name, tensor in weights(self, *args, **kwargs):
            if meter is None:
                meter = _Meter(Path(folder), getattr(self, "k3_shard_sizes", ()))
                meter.write()
            meter.add(tensor.numel() * tensor.element_size())
            yield name, tensor
        if meter is not None:
            meter.write(finished=True)

    counted_weights.k3_counts_bytes = True  # type: ignore[attr-defined]
    DefaultModelLoader._prepare_weights = prepare_and_note_sizes
    DefaultModelLoader.get_all_weights = counted_weights


# In the service


def slowest(folder: Path) -> Loading | None:
    """The count of the process that is furthest behind; None where none has begun."""
    counts = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            values = json.loads(path.read_text())
            counts.append(Loading(**{**values, "shard_sizes": tuple(values["shard_sizes"])}))
    return min(counts, key=lambda count: (count.finished, count.n_bytes), default=None)


@contextlib.contextmanager
def reported(report: Callable[[str], None], every_seconds: float = REPORT_SECONDS) -> Iterator[None]:
    """While the block runs, say how far loading is; the engine's processes must be started inside."""
    folder = Path(tempfile.mkdtemp(prefix="k3-loading-"))
    os.environ[FOLDER_VARIABLE] = str(folder)
    done = threading.Event()

    def watch() -> None:
        said, next_look = "", WRITE_SECONDS
        while not done.wait(next_look):
            if (count := slowest(folder)) is not None and (text := str(count)) != said:
                with contextlib.suppress(RuntimeError):  # the service is being stopped: its loop is closed
                    report(text)
                said, next_look = text, every_seconds
            if count is not None and count.finished:
                return

    watcher = threading.Thread(target=watch, name="loading-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        os.environ.pop(FOLDER_VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)
