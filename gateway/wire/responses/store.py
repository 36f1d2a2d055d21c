"""Responses that clients may come back to: bounded in bytes and time, in memory, per tenant."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.errors import NotFound

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response with the items that led to it.

    earlier: items of the responses that it went on from, oldest first
    input:   the items of its own request
    n_bytes: of its own items and the response, as JSON
    """

    response: Json
    earlier: tuple[Any, ...]
    input: tuple[Any, ...]
    n_bytes: int

    @property
    def history(self) -> tuple[Any, ...]:
        """All items up to its end: what a request that goes on from it begins with."""
        return (*self.earlier, *self.input, *self.response["output"])


class ResponseStore:
    """At most `max_bytes` in all, a quarter of it per tenant; each for `ttl_seconds` since it was last used.

    The least recently used of the tenant goes first, then that of all. Not one of cachetools' caches: none of
    them renews the time on use and counts bytes per tenant.
    """

    def __init__(
        self, max_bytes: int, ttl_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes = max_bytes
        self.ttl_seconds = ttl_seconds
        self.n_bytes = 0
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[StoredResponse, float]] = OrderedDict()
        self._tenant_bytes: dict[str, int] = {}

    @property
    def is_on(self) -> bool:
        return self.max_bytes > 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, tenant: str, response: Json, earlier: tuple[Any, ...], items: tuple[Any, ...]) -> bool:
        """Keep a response; false where it alone is larger than a tenant's share."""
        n_bytes = len(msgspec.json.encode([response, items]))
        share = self.max_bytes // 4
        if n_bytes > share:
            return False
        self._drop_expired()
        while self._tenant_bytes.get(tenant, 0) + n_bytes > share:
            self._drop(next(key for key in self._entries if key[0] == tenant))
        while self.n_bytes + n_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))
        stored = StoredResponse(response, earlier, items, n_bytes)
        self._entries[tenant, response["id"]] = (stored, self._clock() + self.ttl_seconds)
        self.n_bytes += n_bytes
        self._tenant_bytes[tenant] = self._tenant_bytes.get(tenant, 0) + n_bytes
        return True

    def get(self, tenant: str, response_id: str, param: str = "response_id") -> StoredResponse:
        """Raises NotFound: never kept, of another tenant, deleted, or gone since."""
        self._drop_expired()
        key = (tenant, response_id)
        if key not in self._entries:
            raise NotFound(
                f"There is no response {response_id[:80]!r} (any more): responses are kept in memory for "
                f"{self.ttl_seconds:g} s after their last use, and not over a restart. Send the whole "
                "history as input instead.",
                param,
                "response_not_found",
            )
        stored, _ = self._entries.pop(key)
        self._entries[key] = (stored, self._clock() + self.ttl_seconds)
        return stored

    def delete(self, tenant: str, response_id: str) -> None:
        """Raises NotFound."""
        self.get(tenant, response_id)
        self._drop((tenant, response_id))

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._entries:
            key, (_, expires) = next(iter(self._entries.items()))
            if expires > now:
                return
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        stored, _ = self._entries.pop(key)
        self.n_bytes -= stored.n_bytes
        self._tenant_bytes[key[0]] -= stored.n_bytes
        if not self._tenant_bytes[key[0]]:
            del self._tenant_bytes[key[0]]
