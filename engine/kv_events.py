"""vLLM's KV cache events: which blocks entered and left the prefix cache of each data-parallel rank.

Each rank's scheduler publishes over ZeroMQ. Between processes of one machine that is a Unix socket in a
folder that only this user can open, since the events carry token ids.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq
import zmq.asyncio

from engine.types import BlocksRemoved, BlocksStored, CacheCleared, CacheEvent, CacheEventsLost

if TYPE_CHECKING:
    from vllm.config.kv_events import KVEventsConfig

log = logging.getLogger(__name__)
Listener = Callable[[CacheEvent], None]
_FOLDER = "k3-events-"


class _Stored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[bytes | int]
    token_ids: list[int]
    parent_block_hash: bytes | int | None = None
    group_idx: int | None = None
    medium: str | None = None
    session_id: str | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[bytes | int]
    group_idx: int | None = None
    medium: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _Batch(msgspec.Struct, array_like=True):
    """The fields of vLLM's KVEventBatch that are read here; others are skipped."""

    ts: float
    events: list[_Stored | _Removed | _Cleared]


def local_config() -> KVEventsConfig:
    """Events on, published on a Unix socket of this user's. Imports vLLM."""
    from vllm.config.kv_events import KVEventsConfig

    folder = tempfile.mkdtemp(prefix=_FOLDER)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # where no reader came to close it
    # vLLM gives each rank an address of its own only if the address says "inproc" or "tcp".
    return KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=f"ipc://{folder}/inproc")


class KvEventReader:
    """Reads the events of all ranks and hands them to listeners, in the event loop's thread.

    sources: endpoint by data-parallel rank, e.g. of `AsyncLLM.get_kv_event_sources`
    """

    def __init__(self, sources: Mapping[int, str]) -> None:
        self.sources = dict(sources)
        self.listeners: list[Listener] = []
        self._context = zmq.asyncio.Context()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Connect; events published from now on are read."""
        for rank, endpoint in self.sources.items():
            socket = self._context.socket(zmq.SUB)
            socket.set_hwm(0)  # the reader keeps up; a lost event would hide an eviction
            socket.connect(endpoint.replace("*", "127.0.0.1"))
            socket.subscribe(b"")
            self._tasks.append(asyncio.create_task(self._read(rank, socket), name=f"kv-events-{rank}"))

    async def close(self) -> None:
        """Stop reading and remove the socket's folder."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.destroy(linger=0)
        for endpoint in self.sources.values():
            folder = Path(endpoint.removeprefix("ipc://")).parent
            if endpoint.startswith("ipc://") and folder.name.startswith(_FOLDER):
                shutil.rmtree(folder, ignore_errors=True)

    async def _read(self, rank: int, socket: zmq.asyncio.Socket) -> None:
        expected = None
        decoder = msgspec.msgpack.Decoder(_Batch)
        while True:
            _, sequence, payload = await socket.recv_multipart()
            number = int.from_bytes(sequence, "big")
            if expected is not None and number != expected:
                self.deliver(CacheEventsLost(rank))
            expected = number + 1
            try:
                batch = decoder.decode(payload)
            except msgspec.MsgspecError as error:
                log.warning("cannot read a KV event batch of rank %d: %s", rank, error)
                self.deliver(CacheEventsLost(rank))
                continue
            for event in to_cache_events(batch, rank):
                self.deliver(event)

    def deliver(self, event: CacheEvent) -> None:
        """Hand one event to all listeners."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on a KV event")


def to_cache_events(batch: _Batch, rank: int) -> Iterator[CacheEvent]:
    """Events of GPU memory (or of the CPU backend, which names its memory so too)."""
    for event in batch.events:
        if isinstance(event, _Cleared):
            yield CacheCleared(rank)
        elif event.medium not in (None, "GPU"):
            continue  # a copy in an offloading tier
        elif isinstance(event, _Removed):
            yield BlocksRemoved(rank, event.group_idx or 0, tuple(event.block_hashes))
        else:
            yield BlocksStored(
                rank,
                event.group_idx or 0,
                tuple(event.block_hashes),
                tuple(event.token_ids),
                event.parent_block_hash,
                event.session_id,
            )
