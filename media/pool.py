"""Decoding in processes of its own: a file that hangs, crashes or swells ends its process, nothing else."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from media import channel
from media.packing import unpack
from media.types import Clip, MediaError, Picture
from media.worker import Job

_START_SECONDS = 60.0


class WorkerError(RuntimeError):
    """A decoding process did not start or has a bug: the server's fault, not the file's."""


class PixelBudget:
    """Bounds the pixels that are being decoded at a time, over all workers."""

    def __init__(self, n_pixels: int) -> None:
        self._total = n_pixels
        self._used = 0
        self._changed = threading.Condition()

    def take(self, n_pixels: int) -> None:
        """Wait until `n_pixels` fit; what is larger than the whole budget waits until it is alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + n_pixels <= self._total)
            self._used += n_pixels

    def give_back(self, n_pixels: int) -> None:
        with self._changed:
            self._used -= n_pixels
            self._changed.notify_all()


class DecoderPool:
    """Up to `n_workers` decoding processes, started when first needed and kept.

    memory_limit: bytes of address space of each process
    n_pixels:     of pictures being decoded at a time, over all processes
    """

    def __init__(self, n_workers: int, memory_limit: int, n_pixels: int) -> None:
        self._memory_limit = memory_limit
        self._budget = PixelBudget(n_pixels)
        self._threads = ThreadPoolExecutor(n_workers, thread_name_prefix="k3-decode")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    async def run(self, job: Job, data: bytes, seconds: float) -> Picture | Clip:
        """Run `job` on a file's bytes. Raises MediaError (also after `seconds`) and WorkerError."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, job, data, seconds)

    def close(self) -> None:
        """End all processes; jobs under way fail."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    @property
    def n_processes(self) -> int:
        return len(self._all)

    def _run(self, job: Job, data: bytes, seconds: float) -> Picture | Clip:
        worker = self._worker()
        try:
            return worker.run(job, data, seconds, self._budget)
        finally:
            with self._lock:
                if worker.is_alive and not self._closed:
                    self._idle.append(worker)
                else:
                    worker.kill()
                    self._all.discard(worker)

    def _worker(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise WorkerError("the decoder pool is closed")
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive:
                    return worker
                worker.kill()
                self._all.discard(worker)
            worker = _Worker(self._memory_limit)
            self._all.add(worker)
            return worker


class _Worker:
    """One decoding process, used by one thread at a time."""

    def __init__(self, memory_limit: int) -> None:
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        handle = theirs.fileno()
        command = [sys.executable, "-P", "-m", "media.worker", str(handle), str(memory_limit)]
        self._process = subprocess.Popen(
            command,
            pass_fds=(handle,),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._is_ready = False

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._sock.close()

    def run(self, job: Job, data: bytes, seconds: float, budget: PixelBudget) -> Picture | Clip:
        n_pixels = 0
        try:
            self._await_ready()
            deadline = time.monotonic() + seconds
            file = channel.shared_file([data])
            try:
                self._sock.settimeout(seconds)
                channel.send(self._sock, pickle.dumps(job), file)
            finally:
                os.close(file)
            while True:
                self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
                message, handle = channel.receive(self._sock)
                reply = json.loads(message)
                if "pixels" in reply:
                    asked = time.monotonic()
                    budget.take(int(reply["pixels"]))
                    n_pixels += int(reply["pixels"])
                    deadline += time.monotonic() - asked
                    channel.send(self._sock, b"go")
                elif "error" in reply:
                    raise MediaError(reply["error"])
                elif "bug" in reply:
                    raise WorkerError(f"preparing media failed: {reply['bug']}")
                else:
                    assert handle is not None
                    return unpack(reply["media"], _mapped(handle))
        except TimeoutError as error:
            self.kill()
            raise MediaError(f"the file takes more than {seconds:g} seconds to decode") from error
        except (EOFError, OSError) as error:
            self.kill()
            raise MediaError("the file made its decoder crash; it is damaged or hostile") from error
        finally:
            budget.give_back(n_pixels)

    def _await_ready(self) -> None:
        if self._is_ready:
            return
        self._sock.settimeout(_START_SECONDS)
        try:
            channel.receive(self._sock)
        except (EOFError, OSError) as error:
            self.kill()
            raise WorkerError("a decoding process did not start") from error
        self._is_ready = True


def _environment() -> dict[str, str]:
    """What a decoder needs and no more: no keys, no proxies."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "TMPDIR", "TZ") if name in os.environ}
    paths = [path or os.getcwd() for path in sys.path]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}


def _mapped(handle: int) -> mmap.mmap:
    try:
        return mmap.mmap(handle, os.fstat(handle).st_size, access=mmap.ACCESS_READ)
    finally:
        os.close(handle)
