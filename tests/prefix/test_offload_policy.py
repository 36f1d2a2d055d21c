"""The CPU tier's policy by itself, and in vLLM's own manager. The tier itself needs a GPU."""

from __future__ import annotations

from typing import Any

from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from engine.sampling import PIN_MARK


def manager(n_chunks: int) -> CPUOffloadingManager:
    return CPUOffloadingManager(
        n_chunks, cache_policy="PinnedLRUPolicy", cache_policy_module_path="engine.plugin.offload_policy"
    )


def keys(*numbers: int) -> list[Any]:
    return [make_offload_key(number.to_bytes(32, "big"), 0) for number in numbers]


def context(name: str, pinned: bool = False) -> ReqContext:
    return ReqContext(name, kv_transfer_params={PIN_MARK: name} if pinned else None)


def store(tier: CPUOffloadingManager, name: str, *numbers: int, pinned: bool = False) -> bool:
    """Whether there was room."""
    request = context(name, pinned)
    tier.on_new_request(request)
    output = tier.prepare_store(keys(*numbers), request)
    if output is None:
        return False
    tier.complete_store(output.keys_to_store, request)
    tier.on_request_finished(request)
    return True


def held(tier: CPUOffloadingManager, *numbers: int) -> list[bool]:
    return [tier._policy.get(key) is not None for key in keys(*numbers)]


def test_pinned_blocks_outlive_a_flood() -> None:
    tier = manager(10)
    assert store(tier, "pin", 1, 2, 3, pinned=True)
    for number in range(100, 200):
        assert store(tier, f"r{number}", number)
    assert held(tier, 1, 2, 3) == [True] * 3
    assert sum(held(tier, *range(100, 200))) == 7


def test_without_a_pin_the_oldest_goes() -> None:
    tier = manager(10)
    store(tier, "r", 1, 2, 3)
    for number in range(100, 120):
        store(tier, f"r{number}", number)
    assert held(tier, 1, 2, 3) == [False] * 3


def test_blocks_that_others_stored_are_pinned_when_a_pin_uses_them() -> None:
    tier = manager(10)
    store(tier, "first", 1, 2)
    store(tier, "pin", 1, 2, pinned=True)
    for number in range(100, 150):
        store(tier, f"r{number}", number)
    assert held(tier, 1, 2) == [True, True]


def test_pins_never_take_more_than_their_share() -> None:
    tier = manager(10)
    for number in range(20):
        assert store(tier, f"pin{number}", number, pinned=True)
    assert tier._policy.n_pinned == 5
    assert store(tier, "big", 101, 102, 103, 104, 105)
    assert held(tier, *range(15, 20)) == [True] * 5


def test_a_store_that_only_pins_stand_in_the_way_of_is_skipped() -> None:
    tier = manager(4)
    store(tier, "pin", 1, 2, pinned=True)
    store(tier, "r", 3, 4)
    assert not store(tier, "big", 11, 12, 13)
    assert held(tier, 1, 2) == [True, True]
