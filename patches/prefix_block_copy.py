"""KIMI_K3_PREFIX_BLOCK_COPY: a prefix hit inside a cache block gets all of that block.

See docs/decisions.md#c02.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from patches.patch import Finding, Part, Patch, wrap_everywhere
from patches.probes import replaced

SWITCH = "KIMI_K3_PREFIX_BLOCK_COPY"
FUNCTION = "copy_kv_cache_blocks_inplace"

N_BLOCKS, PAGE_BYTES, STATE_BYTES = 4, 32, 8


@contextmanager
def without_pinned_memory() -> Iterator[None]:
    """vLLM stages block ids in pinned memory, which would start CUDA in a front end that is yet to fork."""
    import torch
    from vllm.v1.worker import utils

    with replaced(utils, async_tensor_h2d=lambda data, **_: torch.from_numpy(data)):
        yield


def probe() -> Finding:
    import torch
    from vllm.v1.worker import utils

    if not hasattr(utils, FUNCTION):
        return Finding("absent", "this release copies no cache blocks: no prefix hit ends inside one")
    # Up to 0.28 an allocation holds the pages of one layer of each kind; since then it holds all pages.
    n_pages = 2 if hasattr(utils, "allocate_kv_cache") else 1
    cache = torch.arange(n_pages * N_BLOCKS * PAGE_BYTES, dtype=torch.uint8)
    pages = cache.view(n_pages, N_BLOCKS, 1, 1, PAGE_BYTES)
    expected = pages.clone()
    expected[:, 2] = expected[:, 1]
    with without_pinned_memory():
        getattr(utils, FUNCTION)([*pages[..., :STATE_BYTES], *pages], N_BLOCKS, [(1, 2)])
    n_copied = int((pages[:, 2] == expected[:, 2]).sum(-1).min())
    pages[:, 2] = expected[:, 2]
    if not torch.equal(pages, expected):
        raise ValueError("copying a cache block changes other blocks")
    if n_copied == PAGE_BYTES:
        return Finding("fixed", "a cache block that layers of two kinds share is copied whole")
    return Finding(
        "defect",
        f"of a cache block that layers of two kinds share, {n_copied} of {PAGE_BYTES} bytes are copied",
    )


def _narrowness(cache: Any) -> tuple[bool, int]:
    """Sorts the views of an allocation: the widest first, the allocation itself (one dimension) last.

    vLLM copies, of the views that begin at one address, the one it meets first. All have the same distance
    from block to block and are dense inside one, so the widest contains the others. Views that begin
    elsewhere are copied in any case; that some bytes are copied twice does no harm, since no block is both
    source and destination (the scheduler defers a hit on a block that is only being filled). Where vLLM can
    copy an allocation's blocks whole, it does so at the first view, and the order does not matter. Kinds of
    caches without views by layer are in the list as the allocation. It is the widest of all, but whether
    its n-th part is block n depends on the layout, so the layers' views must be met first.
    """
    return cache.dim() == 1, -cache.nbytes


def apply() -> None:
    from vllm.v1.worker import utils

    def make(original: Any) -> Any:
        def copy_kv_cache_blocks_inplace(kv_caches: Any, *args: Any, **kwargs: Any) -> None:
            original(sorted(kv_caches, key=_narrowness), *args, **kwargs)

        return copy_kv_cache_blocks_inplace

    wrap_everywhere(utils, FUNCTION, SWITCH, make)


PATCH = Patch(
    name="prefix-block-copy",
    switch=SWITCH,
    fixes="After a prefix hit that ends inside a cache block, MLA may read a block that was copied in part",
    fixed_since=None,
    parts=(Part("copy", probe, apply),),
    # Every K3 has KDA and MLA layers over the same bytes, however it is quantised.
    excuse=lambda facts: None,
)
