"""Which data-parallel rank a prompt goes to: the one that holds the longest prefix of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cachetools import LRUCache

from gateway.prefix.sections import Match


class Router:
    """n_ranks:  ranks to choose from
    unit:     tokens in whose multiples a prefix can be read from the cache: what is shorter draws nothing
    overload: a rank that has this many more requests than the idlest one is passed over
    """

    def __init__(self, n_ranks: int = 1, overload: int = 8, max_keys: int = 16_384, unit: int = 1) -> None:
        self.n_ranks = n_ranks
        self.overload = overload
        self.unit = unit
        self.running = [0] * n_ranks
        self._rank_of_key: LRUCache[str, int] = LRUCache(max_keys)

    def choose(self, match: Match, hint: str | None = None) -> int:
        """The rank with the longest known prefix among those that are not overloaded. Where several hold
        equally much, the one that `hint` (`prompt_cache_key`) went to before, else the idlest."""
        if self.n_ranks == 1:
            return 0
        idlest = min(self.running)
        free = [rank for rank in range(self.n_ranks) if self.running[rank] < idlest + self.overload]
        held = [n_tokens // self.unit for n_tokens in held_tokens(match, self.n_ranks)]
        hinted = self._rank_of_key.get(hint) if hint is not None else None
        rank = max(free, key=lambda rank: (held[rank], rank == hinted, -self.running[rank], -rank))
        if hint is not None:
            self._rank_of_key[hint] = rank
        return rank

    @contextmanager
    def load(self, rank: int) -> Iterator[None]:
        """Counts a request on `rank` for as long as it runs."""
        self.running[rank] += 1
        try:
            yield
        finally:
            self.running[rank] -= 1


def held_tokens(match: Match, n_ranks: int) -> list[int]:
    """Tokens of the longest prefix that each rank has seen."""
    held = [0] * n_ranks
    for node in match.known:
        for rank in range(n_ranks):
            if node.ranks >> rank & 1:
                held[rank] = node.end
    return held
