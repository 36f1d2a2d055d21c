"""KIMI_K3_FP8_PB_GATE_GAP: the output gate's rows get their own block scales
(docs/concepts/patches.md#kimi_k3_fp8_pb_gate_gap).

vLLM packs `[q_a | kv_a | gate]` into one block-scaled FP8 weight. kv_a's 576 rows are 4.5 blocks, its
scales take 5 rows, and the gate's scales start at the row after; but the gate's weight rows follow kv_a
without a gap, so half of them meet the scale of the block before. The loaded scale is right for a weight
that starts every shard on a block boundary; the patch lays the weight out like that and drops the columns
of the filler rows from the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from patches.checkpoint import needs
from patches.patch import Finding, Part, Patch, wrap
from patches.probes import (
    BLOCK,
    BlockFp8Tensor,
    block_fp8_config,
    engine_stage,
    integers,
    load_shards,
    product,
)

SWITCH = "KIMI_K3_FP8_PB_GATE_GAP"


def shard_rows(widths: Sequence[int], n_scale_rows: int) -> list[tuple[int, int]] | None:
    """(first row, rows) of each shard in a weight that fits its block scales; None if nothing must move.

    The scale fits such a weight exactly where vLLM's loader put each shard's scales on the block row after
    those of the shards before it, which is what is checked here; no K3 size is named.
    """
    starts = [0, *accumulate(widths)][: len(widths)]
    blocks = [-(-width // BLOCK) for width in widths]
    block_starts = [0, *accumulate(blocks)][: len(widths)]
    misaligned = any(start % BLOCK for start in starts)
    placed = all(-(-start // BLOCK) == block for start, block in zip(starts, block_starts, strict=True))
    if not misaligned or not placed or sum(blocks) != n_scale_rows:
        return None
    return [(block * BLOCK, width) for block, width in zip(block_starts, widths, strict=True)]


def _spread(layer: Any) -> list[tuple[int, int]] | None:
    """Re-lay a loaded weight so that every shard starts on a block; its shards, or None if not the case."""
    import torch

    shards = shard_rows(layer.logical_widths, layer.weight_scale.shape[0])
    if shards is None:
        return None
    packed = layer.weight.data
    if packed.shape[0] != sum(layer.logical_widths):
        return shards  # post-processed a second time without a reload: it is laid out already
    spread = packed.new_zeros(layer.weight_scale.shape[0] * BLOCK, packed.shape[1])
    source = 0
    for start, rows in shards:
        spread[start : start + rows].copy_(packed[source : source + rows])
        source += rows
    layer.weight = torch.nn.Parameter(spread, requires_grad=False)
    return shards


def _gather(output: Any, shards: list[tuple[int, int]], bias: Any) -> Any:
    """The shards' columns of a product with a spread weight, contiguous, plus the bias."""
    import torch

    columns = torch.cat([output[..., start : start + rows] for start, rows in shards], dim=-1)
    return columns if bias is None else columns.add_(bias)


def probe() -> Finding:
    import torch
    from vllm.model_executor.layers import linear

    layer_class = getattr(linear, "KimiK3MergedQKVGateLinear", None)
    if layer_class is None:
        return Finding("absent", "this release does not pack the MLA output gate with the latent projections")
    tensors = [BlockFp8Tensor(rows, BLOCK, seed) for seed, rows in enumerate((128, 192, 256), start=1)]
    with engine_stage(), torch.no_grad():
        layer = layer_class(
            hidden_size=BLOCK,
            q_lora_rank=128,
            kv_lora_rank=128,
            qk_rope_head_dim=64,
            total_num_heads=2,
            v_head_dim=128,
            quant_config=block_fp8_config(),
            prefix="probe.fused_qkv_a_g_proj",
        )
        load_shards(layer, tensors)
        x = integers(2, BLOCK)
        out = product(layer, x)
    expected = x.float() @ torch.cat([tensor.dequantised() for tensor in tensors]).T
    if out.shape != expected.shape:
        raise ValueError(f"the packed projection gives {tuple(out.shape)}, expected {tuple(expected.shape)}")
    n_wrong = int((out != expected).any(0).sum())
    if n_wrong:
        return Finding("defect", f"{n_wrong} of 256 gate columns of a small packed projection are wrong")
    return Finding("fixed", "a small packed projection with a half block before its gate is exact")


def _apply_to_method(method_class: Any) -> None:
    """0.29: one method object per layer, which pads at the end only."""

    def make_post_load(original: Any) -> Any:
        def process_weights_after_loading(self: Any, layer: Any) -> None:
            self.k3_shards = _spread(layer)
            if self.k3_shards:
                self.output_padding = 0  # the spread weight ends on a block
            original(self, layer)

        return process_weights_after_loading

    def make_apply(original: Any) -> Any:
        def apply_and_gather(self: Any, layer: Any, x: Any, bias: Any = None) -> Any:
            shards = getattr(self, "k3_shards", None)
            if not shards:
                return original(self, layer, x, bias)
            return _gather(original(self, layer, x, None), shards, bias)

        return apply_and_gather

    wrap(method_class, "process_weights_after_loading", SWITCH, make_post_load)
    wrap(method_class, "apply", SWITCH, make_apply)


def _apply_to_format(format_class: Any) -> None:
    """0.30 and later: one format object for all layers, between loading and the kernel."""

    def make_post_process(original: Any) -> Any:
        def post_process(self: Any, layer: Any) -> None:
            layer.k3_shards = _spread(layer)
            if not layer.k3_shards:
                original(self, layer)

        return post_process

    def make_apply(original: Any) -> Any:
        def apply_and_gather(self: Any, layer: Any, x: Any, bias: Any, kernel_apply: Any) -> Any:
            shards = getattr(layer, "k3_shards", None)
            if not shards:
                return original(self, layer, x, bias, kernel_apply)
            return _gather(kernel_apply(layer, x, None), shards, bias)

        return apply_and_gather

    wrap(format_class, "post_process", SWITCH, make_post_process)
    wrap(format_class, "apply", SWITCH, make_apply)


def apply() -> None:
    from vllm.model_executor.layers.quantization import modelopt

    if method_class := getattr(modelopt, "ModelOptFp8PbWoLinearMethod", None):
        _apply_to_method(method_class)
    else:
        _apply_to_format(modelopt._Fp8PbWoPartialBlock)


PATCH = Patch(
    name="fp8-pb-gate-gap",
    switch=SWITCH,
    fixes="Half of the MLA output gate's rows are scaled with a neighbour block's scale, silently",
    fixed_since=None,
    parts=(Part("layout", probe, apply),),
    excuse=needs("FP8_PB_WO"),
)
