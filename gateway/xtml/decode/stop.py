"""Incremental search for stop strings, with as little text held back as can be."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence


class StopMatcher:
    """Finds the first of several strings in text that arrives in pieces (Aho-Corasick, one step a character).

    The match that ends first wins; of those that end together, the longest. So the result does not depend
    on how the text was cut. Only the longest suffix that may still become a match is held back.
    `hit` is the string that was found; nothing may be fed after that.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        strings = [s for s in strings if s]
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self._depth = [0]
        self._found: list[str] = [""]
        for text in strings:
            node = 0
            for char in text:
                node = self._next[node].setdefault(char, len(self._fail))
                if node == len(self._fail):
                    self._next.append({})
                    self._fail.append(0)
                    self._depth.append(0)
                    self._found.append("")
            self._found[node] = text
        self._link()
        starts = "".join({re.escape(s[0]) for s in strings})
        self._may_start = re.compile(f"[{starts}]").search if starts else lambda text: None
        self._node = 0
        self._held: deque[str] = deque()  # in the pieces in which it came, never looked at again
        self._first_from = 0  # where what is held of the first piece begins
        self._n_held = 0
        self.hit: str | None = None

    def _link(self) -> None:
        queue = [0]
        for node in queue:
            for char, child in self._next[node].items():
                self._depth[child] = self._depth[node] + 1
                if node:
                    self._fail[child] = self._step(self._fail[node], char)
                    self._found[child] = self._found[child] or self._found[self._fail[child]]
                queue.append(child)

    def _step(self, node: int, char: str) -> int:
        while node and char not in self._next[node]:
            node = self._fail[node]
        return self._next[node].get(char, 0)

    def feed(self, text: str) -> str:
        """The text that is certain to stand before any stop string; sets `hit` when one is complete."""
        if not self._node and not self._may_start(text):
            return text
        node = self._node
        for end, char in enumerate(text, 1):
            node = self._step(node, char)
            if self._found[node]:
                self.hit = self._found[node]
                safe = self._release(text[:end], len(self.hit))
                self._held.clear()
                self._node = self._n_held = self._first_from = 0
                return safe
        self._node = node
        return self._release(text, self._depth[node])

    def flush(self) -> str:
        """The text held back, now that no more follows."""
        self._node = 0
        return self._release("", 0)

    def _release(self, text: str, n_keep: int) -> str:
        """Hold `text` too, and let go of all but the last `n_keep` characters."""
        if text:
            self._held.append(text)
        self._n_held += len(text)
        released = []
        while self._n_held > n_keep:
            piece, start = self._held[0], self._first_from
            n = min(len(piece) - start, self._n_held - n_keep)
            released.append(piece[start : start + n])
            self._n_held -= n
            self._first_from += n
            if self._first_from == len(piece):
                self._held.popleft()
                self._first_from = 0
        return "".join(released)
