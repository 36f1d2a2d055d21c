"""Ids of prompt sections that were rendered before, so that a turn costs what is new in it."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from cachetools import LRUCache

_ENTRY_OVERHEAD = 400  # bytes of keys and objects around the ids, measured roughly


@dataclass(frozen=True, slots=True)
class RenderedSection:
    """The ids of a section and its media pads, as `Writer.pads` gives them.

    ids:    shared integers (`Vocab.shared`), so that a token takes the 8 bytes of a reference
    digest: of what was written (`Section.digest`)
    """

    ids: tuple[int, ...]
    pads: tuple[tuple[int, int, int, int], ...]
    digest: str = ""

    @property
    def n_bytes(self) -> int:
        return 8 * len(self.ids) + 80 * len(self.pads) + _ENTRY_OVERHEAD


class RenderCache:
    """Least recently used sections go first; safe to use from several threads.

    Keys are digests of what the client said and of the vocabulary: one cache may serve several.
    The default of 256 MiB holds about 30 million tokens of long messages.
    """

    def __init__(self, max_bytes: int = 256 << 20) -> None:
        self.max_bytes = max_bytes
        self.hits = 0
        self.misses = 0
        self._sections: LRUCache[str, RenderedSection] = LRUCache(max_bytes, lambda section: section.n_bytes)
        self._lock = Lock()

    @property
    def n_bytes(self) -> int:
        return int(self._sections.currsize)

    def __len__(self) -> int:
        return len(self._sections)

    def get(self, key: str) -> RenderedSection | None:
        """The section with this key, which becomes the most recently used."""
        with self._lock:
            section = self._sections.get(key)
            if section is None:
                self.misses += 1
                return None
            self.hits += 1
            return section

    def put(self, key: str, section: RenderedSection) -> None:
        """Keep a section; one that is larger than the whole cache is not kept."""
        if section.n_bytes > self.max_bytes:
            return
        with self._lock:
            self._sections[key] = section
