"""Where prepared media are kept: in memory, least recently used go first, and if wanted in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
from cachetools import LRUCache

from media.packing import n_bytes, pack, unpack
from media.types import Clip, Picture


class MemoryCache:
    """Prepared media by key, at most `max_bytes` of patches; the least recently used go first.

    For use in one event loop.
    """

    def __init__(self, max_bytes: int) -> None:
        self._entries: LRUCache[str, Picture | Clip] = LRUCache(max_bytes, getsizeof=n_bytes)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def n_bytes(self) -> int:
        return int(self._entries.currsize)

    def get(self, key: str) -> Picture | Clip | None:
        return self._entries.get(key)

    def put(self, key: str, media: Picture | Clip) -> None:
        """Keep `media`, unless it alone is larger than the cache."""
        if key not in self._entries:
            with contextlib.suppress(ValueError):  # it is larger than the cache
                self._entries[key] = media


class DiskCache:
    """Prepared media by key in a folder, at most `max_bytes`; the least recently used files go first.

    A file is one line of JSON (header, checksum) and the patches. Files that do not fit their checksum are
    treated as absent. Several processes may share a folder. Blocking; safe to use from several threads.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Raises OSError where the folder cannot be made."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, key: str) -> Picture | Clip | None:
        path = self._path(key)
        try:
            with path.open("rb") as file:
                header = json.loads(file.readline(64 * 1024 * 1024))
                values = np.fromfile(file, np.uint8)
            if zlib.crc32(values.data) != header["crc32"]:
                raise ValueError("checksum")
            values.flags.writeable = False
            media = unpack(header["media"], values)
            os.utime(path)
            return media
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def put(self, key: str, media: Picture | Clip) -> None:
        """Write `media`; a full disk or the like is not an error, the cache just stays as it was."""
        header, arrays = pack(media)
        checksum = 0
        for values in arrays:
            checksum = zlib.crc32(values.data, checksum)
        path = self._path(key)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
                try:
                    file.write(json.dumps({"crc32": checksum, "media": header}).encode() + b"\n")
                    for values in arrays:
                        file.write(values.data.cast("B"))
                    os.replace(file.name, path)
                except BaseException:
                    os.unlink(file.name)
                    raise
            self._trim()
        except OSError:
            return

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.k3media"

    def _trim(self) -> None:
        with self._lock:
            files = []
            for path in self._folder.glob("*/*"):
                try:
                    status = path.stat()
                except FileNotFoundError:  # another process has trimmed it
                    continue
                files.append((status.st_mtime, status.st_size, path))
            excess = sum(size for _, size, _ in files) - self._max_bytes
            for _, size, path in sorted(files):
                if excess <= 0:
                    return
                path.unlink(missing_ok=True)
                excess -= size
