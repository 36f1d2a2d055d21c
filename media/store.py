"""Pictures and clips by URL, each prepared once: fetch, recognise by content, decode elsewhere, remember."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cachetools import TLRUCache

from media.cache import DiskCache, MemoryCache
from media.config import K3_MEDIA_CONFIG, MediaConfig
from media.fetch import Fetcher, Kind, is_data_url
from media.limits import MediaLimits
from media.picture import patch_limit_of, picture_identity
from media.process import ClipJob, DecoderPool, Job, PictureJob
from media.types import Clip, FileBytes, MediaError, Picture

_IN_LOOP_BYTES = 64 * 1024  # shorter texts are hashed in the event loop
_TEXT_PART = 1024 * 1024
_SLOW_PICTURES = 3  # for each worker: pictures that are slow beside the one that is not
_T = TypeVar("_T")


class MediaLibrary:
    """Prepared pictures and clips by URL. For use in one event loop.

    Identical requests at the same time share one fetch and one decode. Content is known by the sha256 of
    the file's bytes, so the same picture under two URLs is prepared once. Tenants with different `salt`
    share nothing, not even the time that a second request takes. Failures are not remembered.

    counts: how requests ended: "memory", "disk" (found prepared), "prepared", "failed"
    """

    def __init__(
        self,
        config: MediaConfig = K3_MEDIA_CONFIG,
        fetcher: Fetcher | None = None,
        limits: MediaLimits | None = None,
    ) -> None:
        self.config = config
        self.limits = limits or MediaLimits()
        self.counts: Counter[str] = Counter()
        self._fetcher = fetcher or Fetcher()
        self._memory = MemoryCache(self.limits.cache_bytes)
        folder = self.limits.cache_folder
        self._disk = DiskCache(folder, self.limits.disk_bytes) if folder is not None else None
        n, memory, n_pixels = (
            self.limits.n_workers,
            self.limits.worker_memory,
            self.limits.pixels_in_flight,
        )
        self._pools = {
            "image": DecoderPool(n, memory, n_pixels, n_extra=_SLOW_PICTURES * n),
            "video": DecoderPool(n, memory, n_pixels),
        }
        # Few threads at a time: each takes the interpreter in turn, and the event loop waits among them.
        self._hashing = asyncio.Semaphore(2)
        self._contents = _ContentMemo(self.limits.n_urls)
        self._under_way: dict[tuple[str, ...], _Shared] = {}

    async def picture(self, url: str, detail: str = "auto", salt: str = "") -> Picture:
        """The prepared picture behind an http(s), data or file URL. Raises MediaError."""
        patch_limit_of(detail, self.config)
        media = await self._resolve("image", url, detail, salt)
        assert isinstance(media, Picture)
        return media

    async def clip(self, url: str, salt: str = "") -> Clip:
        """The prepared clip behind a URL. Raises MediaError."""
        media = await self._resolve("video", url, "", salt)
        assert isinstance(media, Clip)
        return media

    async def fetch(self, url: str, kind: Kind) -> FileBytes:
        """The file behind a URL, for those who must look at it first. Raises MediaError."""
        return await self._fetcher.fetch(url, kind)

    async def picture_of(self, data: FileBytes, detail: str = "auto", salt: str = "") -> Picture:
        """The prepared picture of a file's bytes, for uploads. Raises MediaError."""
        patch_limit_of(detail, self.config)
        self._check_size("image", data)
        media = await self._prepare("image", data, await self._sha256(data), detail, salt)
        assert isinstance(media, Picture)
        return media

    async def clip_of(self, data: FileBytes, salt: str = "") -> Clip:
        """The prepared clip of a file's bytes. Raises MediaError."""
        self._check_size("video", data)
        media = await self._prepare("video", data, await self._sha256(data), "", salt)
        assert isinstance(media, Clip)
        return media

    async def _sha256(self, data: str | FileBytes, before: str = "") -> str:
        if len(data) <= _IN_LOOP_BYTES:
            return _hex_sha256(data, before)
        async with self._hashing:
            return await asyncio.to_thread(_hex_sha256, data, before)

    def _check_size(self, kind: Kind, data: FileBytes) -> None:
        limit = self._fetcher.policy.max_bytes(kind)
        if len(data) > limit:
            raise MediaError(f"the file has {len(data):,} bytes, more than the limit of {limit:,}")

    @property
    def n_bytes(self) -> int:
        """Memory that the cached media take."""
        return self._memory.n_bytes

    async def aclose(self) -> None:
        """End fetches and decoding processes."""
        tasks = [shared.task for shared in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(asyncio.to_thread(pool.close) for pool in self._pools.values()))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fetcher.aclose()

    async def _resolve(self, kind: Kind, url: str, detail: str, salt: str) -> Picture | Clip:
        url = url.strip()
        name = await self._sha256(url, f"{salt}\0")
        digest = self._contents.get(name)
        if digest is not None:
            media = self._memory.get(self._key(kind, digest, detail, salt))
            if media is not None:
                self.counts["memory"] += 1
                return media
        return await self._once(
            ("url", kind, name, detail), lambda: self._fetch_and_prepare(kind, url, name, detail, salt)
        )

    async def _fetch_and_prepare(
        self, kind: Kind, url: str, name: str, detail: str, salt: str
    ) -> Picture | Clip:
        try:
            data = await self._fetcher.fetch(url, kind)
        except Exception:
            self.counts["failed"] += 1
            raise
        digest = await self._sha256(data)
        if is_data_url(url):
            self._contents.put(name, digest, math.inf)
        elif url[:4].lower() == "http":
            self._contents.put(name, digest, self.limits.url_seconds)
        return await self._prepare(kind, data, digest, detail, salt)

    async def _prepare(
        self, kind: Kind, data: FileBytes, digest: str, detail: str, salt: str
    ) -> Picture | Clip:
        key = self._key(kind, digest, detail, salt)
        media = self._memory.get(key)
        if media is not None:
            self.counts["memory"] += 1
            return media
        return await self._once(
            ("content", key), lambda: self._from_disk_or_decoder(kind, data, digest, detail, salt, key)
        )

    async def _from_disk_or_decoder(
        self, kind: Kind, data: FileBytes, digest: str, detail: str, salt: str, key: str
    ) -> Picture | Clip:
        if self._disk is not None:
            found = await asyncio.to_thread(self._disk.get, key)
            if found is not None:
                self.counts["disk"] += 1
                self._memory.put(key, found)
                return found
        job: Job
        if kind == "image":
            job = PictureJob(self.config, detail, self.limits.pixel_limit)
            seconds = self.limits.picture_seconds
        else:
            job = ClipJob(self.config, self.limits.clip)
            seconds = self.limits.clip_seconds
        try:
            media = self._salted(await self._pools[kind].run(job, data, seconds), digest, detail, salt)
        except Exception:
            self.counts["failed"] += 1
            raise
        self.counts["prepared"] += 1
        self._memory.put(key, media)
        if self._disk is not None:
            await asyncio.to_thread(self._disk.put, key, media)
        return media

    def _key(self, kind: Kind, digest: str, detail: str, salt: str) -> str:
        if kind == "image":
            return picture_identity(digest, self.config, detail, salt)
        return hashlib.sha256(f"whole clip\0{digest}\0{self.config.version}\0{salt}".encode()).hexdigest()

    def _salted(self, media: Picture | Clip, digest: str, detail: str, salt: str) -> Picture | Clip:
        """`media` with identities that are this tenant's own."""
        if not salt:
            return media
        if isinstance(media, Picture):
            identity = picture_identity(digest, self.config, detail, salt)
            return replace(media, item=replace(media.item, identity=identity))
        from media.clip import chunk_identity  # PyAV is large; where no clip comes it is not loaded

        chunks = tuple(
            replace(chunk, item=replace(chunk.item, identity=chunk_identity(digest, self.config, i, salt)))
            for i, chunk in enumerate(media.chunks)
        )
        return replace(media, chunks=chunks)

    async def _once(self, key: tuple[str, ...], work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The result of `work`, shared by all who ask for `key` meanwhile.

        One that gives up stops nobody; when all have given up, the work is cancelled.
        """
        shared = self._under_way.get(key)
        if shared is None:
            shared = _Shared(asyncio.create_task(work()))
            self._under_way[key] = shared
            shared.task.add_done_callback(lambda _: self._forget(key, shared))
        shared.n_waiting += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.n_waiting -= 1
            if not shared.n_waiting and not shared.task.done():
                self._forget(key, shared)  # who asks from now on starts anew
                shared.task.cancel()

    def _forget(self, key: tuple[str, ...], shared: _Shared) -> None:
        if self._under_way.get(key) is shared:
            del self._under_way[key]
        if shared.task.done() and not shared.task.cancelled():
            shared.task.exception()  # seen, even if everybody who waited has gone


@dataclass(slots=True, eq=False)
class _Shared:
    """Work under way, and how many wait for it."""

    task: asyncio.Task[Any]
    n_waiting: int = 0


class _ContentMemo:
    """Which content a URL was last seen to have: sha256 of the URL -> sha256 of the file."""

    def __init__(self, max_entries: int) -> None:
        self._entries: TLRUCache[str, tuple[str, float]] = TLRUCache(
            max_entries, ttu=lambda _name, entry, now: now + entry[1], timer=time.monotonic
        )

    def get(self, name: str) -> str | None:
        entry = self._entries.get(name)
        return None if entry is None else entry[0]

    def put(self, name: str, digest: str, seconds: float) -> None:
        """Remember `digest` for `seconds`, `math.inf` for as long as there is room."""
        self._entries[name] = (digest, seconds)


def _hex_sha256(data: str | FileBytes, before: str) -> str:
    """Of the text `before` and then `data`. A long text is encoded by parts: each holds up the event loop."""
    digest = hashlib.sha256(before.encode())
    if isinstance(data, str):
        for start in range(0, len(data), _TEXT_PART):
            digest.update(data[start : start + _TEXT_PART].encode("utf-8", "surrogatepass"))
    else:
        digest.update(data)
    return digest.hexdigest()
