"""Decoding in processes of its own: a file that hangs, crashes or swells ends its process, nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from media.packing import unpack
from media.process import channel
from media.process.clock import ProcessClock
from media.process.jobs import Job
from media.types import Clip, FileBytes, MediaError, Picture

_START_SECONDS = 60.0
# A file that takes longer gives its place to another; a screenshot takes 0.02 s.
_QUICK_SECONDS = 1.0
# How long a process may go on with a file that nobody waits for: ending it costs the next file 0.3 s.
_ABANDONED_SECONDS = 0.5
# Pictures below this share of the pixel budget do not wait for it.
_SMALL_SHARE = 64
# What a process dies of by itself; other signals come from outside, e.g. when the machine lacks memory.
_CRASHES = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS
}  # fmt: skip
_TRANSFER_SECONDS = 60.0  # for a message that has begun
_END_SECONDS = 5.0  # how long a process that is gone may take to be told why
_CRASHED = "the file made its decoder crash; it is damaged or hostile"

log = logging.getLogger(__name__)


class WorkerError(RuntimeError):
    """A decoding process did not start, or was lost twice: the server's fault, not the file's."""


class _WorkerLost(Exception):
    """A decoding process was ended from outside while it worked on a file."""


class PixelBudget:
    """Bounds the pixels that are being decoded at a time, over all workers.

    Small pictures do not wait, so that one huge picture holds up none of them; each process may exceed the
    bound by 1/64 with one.
    """

    def __init__(self, n_pixels: int) -> None:
        self._total = n_pixels
        self._used = 0
        self._changed = threading.Condition()

    def fits(self, n_pixels: int) -> bool:
        """Whether `take` would not wait now."""
        with self._changed:
            return self._fits(n_pixels)

    def take(self, n_pixels: int) -> None:
        """Wait until `n_pixels` fit; what is larger than the whole budget waits until it is alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(n_pixels))
            self._used += n_pixels

    def give_back(self, n_pixels: int) -> None:
        with self._changed:
            self._used -= n_pixels
            self._changed.notify_all()

    def _fits(self, n_pixels: int) -> bool:
        is_small = n_pixels * _SMALL_SHARE <= self._total
        return is_small or self._used == 0 or self._used + n_pixels <= self._total


class DecoderPool:
    """Decoding processes, started when first needed and kept.

    n_workers:    files that are decoded at a time
    n_extra:      further files; one takes the place of a file that is slow or waits for memory, so that slow
                  files do not hold up quick ones
    memory_limit: bytes of address space of each process
    n_pixels:     of pictures being decoded at a time, over all processes
    """

    def __init__(self, n_workers: int, memory_limit: int, n_pixels: int, n_extra: int = 0) -> None:
        self._memory_limit = memory_limit
        self._budget = PixelBudget(n_pixels)
        self._n_workers = n_workers
        self._may_be_slow = n_extra > 0
        self._places = threading.Semaphore(n_workers)
        self._threads = ThreadPoolExecutor(n_workers + n_extra, thread_name_prefix="k3-decode")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    async def run(self, job: Job, data: FileBytes, seconds: float) -> Picture | Clip:
        """Run `job` on a file's bytes. Raises MediaError and WorkerError.

        seconds: of processor time that decoding may take; what it waits for a processor does not count

        A process that is ended from outside meanwhile is replaced once.
        If it is cancelled and its process is not done soon, the process is ended.
        """
        loop = asyncio.get_running_loop()
        task = _Task(job, data, seconds)
        try:
            return await loop.run_in_executor(self._threads, self._run, task)
        except asyncio.CancelledError:
            loop.call_later(_ABANDONED_SECONDS, task.abandon)
            raise

    def close(self) -> None:
        """End all processes; jobs under way fail."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.end_process()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.kill()

    @property
    def n_processes(self) -> int:
        return len(self._all)

    def _run(self, task: _Task) -> Picture | Clip:
        place = _Place(self._places)
        try:
            try:
                return self._run_once(task, place)
            except _WorkerLost as lost:
                log.warning("%s; its file is tried once again", lost)
            try:
                return self._run_once(task, place)
            except _WorkerLost as lost:
                raise WorkerError(f"{lost}, twice for the same file") from lost
        finally:
            place.leave()

    def _run_once(self, task: _Task, place: _Place) -> Picture | Clip:
        """Raises _WorkerLost too."""
        worker = self._worker()
        try:
            if not task.begin(worker):
                raise MediaError("nobody waits for the file any more")
            return worker.run(task, self._budget, place.leave if self._may_be_slow else _stay)
        finally:
            task.end()
            self._put_back(worker)

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

    def _put_back(self, worker: _Worker) -> None:
        with self._lock:
            if worker.is_alive and not self._closed and len(self._idle) < self._n_workers:
                self._idle.append(worker)
            else:
                worker.kill()
                self._all.discard(worker)


class _Place:
    """One of the places of files that are decoded; waits for it."""

    def __init__(self, places: threading.Semaphore) -> None:
        self._places: threading.Semaphore | None = places
        places.acquire()

    def leave(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.release()


class _Task:
    """A file to decode, and the process that does it, which may be ended from another thread."""

    def __init__(self, job: Job, data: FileBytes, seconds: float) -> None:
        self.job = job
        self.data = data
        self.seconds = seconds
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._worker: _Worker | None = None

    def begin(self, worker: _Worker) -> bool:
        """False if nobody waits for it any more."""
        with self._lock:
            self._worker = worker
            return not self._is_abandoned

    def end(self) -> None:
        with self._lock:
            self._worker = None

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            if self._worker is not None:
                self._worker.end_process()


class _Worker:
    """One decoding process, used by one thread at a time."""

    def __init__(self, memory_limit: int) -> None:
        """Raises WorkerError."""
        try:
            self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise WorkerError(f"no decoding process can be started: {error.strerror}") from error
        handle = theirs.fileno()
        command = [sys.executable, "-P", "-m", "media.process.worker", str(handle), str(memory_limit)]
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(handle,),
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._sock.close()
            raise WorkerError(f"no decoding process can be started: {error.strerror}") from error
        finally:
            theirs.close()
        self._is_ready = False

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._sock.close()

    def _end_of_process(self) -> int:
        """The exit status of a process that has closed its end: what it died of as a negative number."""
        try:
            return self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            return 0
        finally:
            self.kill()

    def end_process(self) -> None:
        """From any thread; who uses the worker sees the process gone."""
        self._process.kill()

    def run(self, task: _Task, budget: PixelBudget, on_slow: Callable[[], None]) -> Picture | Clip:
        """on_slow: called once the file turns out slow, or has to wait for memory. May be called again."""
        n_pixels = 0
        self._await_ready()
        file = _handed_over(task.data)
        try:
            clock = ProcessClock(self._process.pid, task.seconds)
            self._sock.settimeout(_TRANSFER_SECONDS)
            channel.send(self._sock, pickle.dumps(task.job), file)
            while True:
                started = time.monotonic()
                while not _readable(self._sock, clock.next_look()):
                    clock.check()
                    if time.monotonic() - started > _QUICK_SECONDS:
                        on_slow()
                message, handle = channel.receive(self._sock)
                reply = json.loads(message)
                if "pixels" in reply:
                    if not budget.fits(int(reply["pixels"])):
                        on_slow()
                    budget.take(int(reply["pixels"]))
                    n_pixels += int(reply["pixels"])
                    clock.resume()
                    channel.send(self._sock, b"go")
                elif "error" in reply:
                    if "trace" in reply:
                        log.error("a decoder raised what it should not:\n%s", reply["trace"])
                    raise MediaError(reply["error"])
                elif "no_room" in reply:
                    raise WorkerError(f"no room for a decoder's results: {reply['no_room']}")
                else:
                    if handle is None:
                        raise ValueError("patches are missing")
                    return unpack(reply["media"], _mapped(handle))
        except TimeoutError as error:
            self.kill()
            words = f"the file takes more than {task.seconds:g} seconds of processor time to decode"
            raise MediaError(f"{words}, or makes its decoder hang") from error
        except (EOFError, ConnectionError) as error:
            ended_by = self._end_of_process()
            if ended_by >= 0 or -ended_by in _CRASHES:
                raise MediaError(_CRASHED) from error
            raise _WorkerLost(f"a decoding process was ended from outside by signal {-ended_by}") from error
        except MediaError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:  # it was taken over, and talks nonsense
            self.kill()
            raise MediaError(_CRASHED) from error
        finally:
            os.close(file)
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


def _stay() -> None:
    """Slow files keep their place."""


def _environment() -> dict[str, str]:
    """What a decoder needs and no more: no keys, no proxies.

    It finds modules as this process was started to find them. What was put on `sys.path` since, like the
    folder of a script, is left out: a `types.py` there would come before Python's own.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "TMPDIR", "TZ") if name in os.environ}
    home = Path(__file__).resolve().parents[2]
    paths = [] if home == Path(sysconfig.get_path("purelib")) else [str(home)]
    paths += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}


def _readable(sock: socket.socket, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _handed_over(data: FileBytes) -> int:
    """A handle on `data` for a decoding process. Raises WorkerError where there is no room."""
    try:
        return channel.shared_file([data])
    except OSError as error:
        raise WorkerError(f"no room to hand a file to a decoder: {error.strerror}") from error


def _mapped(handle: int) -> mmap.mmap:
    """Raises WorkerError where the results do not fit this process."""
    try:
        return mmap.mmap(handle, os.fstat(handle).st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise WorkerError(f"prepared media cannot be mapped: {error.strerror}") from error
    finally:
        os.close(handle)
