"""A cache policy for vLLM's CPU offloading tier that does not evict pinned prefixes.

vLLM loads it by name (no patch, no fork), with the native offloading connector:

    kv_transfer_config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "cpu_bytes_to_use": 2**36,
            "eviction_policy": "PinnedLRUPolicy",
            "cache_policy_module_path": "engine.plugin.offload_policy",
        },
    }

A request says by `kv_transfer_params` (`Sampling.pin`) that its blocks belong to a pin. The tier needs a GPU,
so the policy is tested by itself here; it has not run under load. Signatures differ between vLLM releases
(0.32 and 0.33), so further positional arguments are taken and passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from engine.sampling import PIN_MARK

PINNED_SHARE = 0.5
"""Of the tier may be pinned; beyond it the pins that were used the longest time ago become ordinary."""


class PinnedLRUPolicy(LRUCachePolicy):
    """Least recently used first, but never what a pinned request used, up to a share of the capacity."""

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self.max_pinned = int(cache_capacity * PINNED_SHARE)
        self._pinned: dict[Any, None] = {}  # in order of use

    @property
    def n_pinned(self) -> int:
        return len(self._pinned)

    def touch(self, keys: Iterable[Any], req_context: Any, *more: Any) -> None:
        keys = list(keys)
        super().touch(keys, req_context, *more)
        self._pin(keys, req_context)

    def on_store_miss(self, keys: Iterable[Any], req_context: Any, *more: Any) -> None:
        """Keys that are about to be inserted."""
        keys = list(keys)
        super().on_store_miss(keys, req_context, *more)
        self._pin(keys, req_context)

    def on_request_finished(self, key_groups: Sequence[Sequence[Any]], *more: Any, **named: Any) -> None:
        super().on_request_finished(key_groups, *more, **named)
        context = named.get("req_context", more[-1] if more else None)
        self._pin([key for group in key_groups for key in group], context)

    def remove(self, key: Any) -> None:
        super().remove(key)
        self._pinned.pop(key, None)

    def clear(self) -> None:
        super().clear()
        self._pinned.clear()

    def evict(self, n: int, protected: set[Any]) -> list[tuple[Any, Any]] | None:
        """None where what is not pinned does not suffice: the store is skipped, the pin stays."""
        return super().evict(n, protected | self._pinned.keys())

    def _pin(self, keys: list[Any], req_context: Any) -> None:
        parameters = getattr(req_context, "kv_transfer_params", None) or {}
        if not parameters.get(PIN_MARK):
            return
        for key in keys:
            self._pinned.pop(key, None)
            self._pinned[key] = None
        while len(self._pinned) > self.max_pinned:
            del self._pinned[next(iter(self._pinned))]
