"""KIMI_K3_FP8_PB: block-scaled FP8 attention on vLLM 0.27 and 0.28 (docs/concepts/patches.md#kimi_k3_fp8_pb).

Six defects between a checkpoint's FP8_PB_WO layers and right numbers; 0.29 has all six fixed. Each part
has its own probe, so a release that fixed some keeps its own code for those.
"""

from __future__ import annotations

from typing import Any

from patches.checkpoint import needs
from patches.patch import Finding, Part, Patch, wrap, wrap_everywhere
from patches.probes import (
    BLOCK,
    BlockFp8Tensor,
    ExactKernel,
    block_fp8_config,
    block_fp8_method,
    dequantised,
    engine_stage,
    integers,
    is_fp8,
    kv_b_input_dtype,
    load_shards,
    loaded_layer,
    mixed_config,
    product,
)

SWITCH = "KIMI_K3_FP8_PB"
_ALGORITHM = "FP8_PB_WO"


def _method_class() -> Any:
    from vllm.model_executor.layers.quantization.modelopt import ModelOptFp8PbWoLinearMethod

    return ModelOptFp8PbWoLinearMethod


# 1. Dispatch


def probe_dispatch() -> Finding:
    from vllm.model_executor.layers.linear import ReplicatedLinear, UnquantizedLinearMethod

    with engine_stage():
        layer = ReplicatedLinear.__new__(ReplicatedLinear)
        method = mixed_config(q_proj=_ALGORITHM).get_quant_method(layer, "probe.q_proj")
    name = type(method).__name__
    if isinstance(method, UnquantizedLinearMethod):
        return Finding("defect", f"a mixed checkpoint's {_ALGORITHM} layer is given {name}")
    return Finding("fixed", f"a mixed checkpoint's {_ALGORITHM} layer is given {name}")


def apply_dispatch() -> None:
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.quantization.modelopt import ModelOptMixedPrecisionConfig

    def make(original: Any) -> Any:
        def get_quant_method(self: Any, layer: Any, prefix: Any) -> Any:
            if (
                isinstance(layer, LinearBase)
                and not self.is_layer_excluded(prefix)
                and self._resolve_quant_algo(prefix) == _ALGORITHM
            ):
                return _method_class()(self.fp8_config)
            return original(self, layer, prefix)

        return get_quant_method

    wrap(ModelOptMixedPrecisionConfig, "get_quant_method", SWITCH, make)


# 2. The dtype in which a cached FP8 latent reaches kv_b_proj


def probe_kv_b_input() -> Finding:
    with engine_stage() as kernel:
        method = block_fp8_method()
        layer = loaded_layer(method, BlockFp8Tensor(BLOCK, BLOCK, seed=1))
        layer.input_size_per_partition = BLOCK
        dtype = kv_b_input_dtype(method, layer, kernel)
    if is_fp8(dtype):
        return Finding("defect", "an FP8 latent reaches a block-scaled kv_b_proj as FP8, without a scale")
    return Finding("fixed", f"an FP8 latent reaches a block-scaled kv_b_proj as {dtype}")


def apply_kv_b_input() -> None:
    def make(original: Any) -> Any:
        def apply_with_cast(self: Any, layer: Any, x: Any, bias: Any = None) -> Any:
            return original(self, layer, x.to(self.input_dtype) if is_fp8(x.dtype) else x, bias)

        return apply_with_cast

    wrap(_method_class(), "apply", f"{SWITCH}/kv-b-input", make)


# 3. The kernel's post-load hook


def probe_post_load() -> Finding:
    with engine_stage() as kernel:
        loaded_layer(block_fp8_method(), BlockFp8Tensor(BLOCK, BLOCK, seed=1))
    if kernel.n_post_loads:
        return Finding("fixed", "the block-scaled kernel's post-load hook runs")
    return Finding("defect", "the block-scaled kernel's post-load hook never runs (DeepGEMM's scale layout)")


def apply_post_load() -> None:
    def make(original: Any) -> Any:
        def process_weights_after_loading(self: Any, layer: Any) -> None:
            original(self, layer)
            self.w8a8_block_fp8_linear.process_weights_after_loading(layer)

        return process_weights_after_loading

    wrap(_method_class(), "process_weights_after_loading", f"{SWITCH}/post-load", make)


# 4. Rows that are not a multiple of 128


def probe_partial_block() -> Finding:
    import torch

    tensor = BlockFp8Tensor(BLOCK + BLOCK // 2, BLOCK, seed=1)
    with engine_stage(), torch.no_grad():
        method = block_fp8_method()
        try:
            layer = loaded_layer(method, tensor)
        except ValueError as error:
            return Finding("defect", f"192 output rows are refused ({error})")
        x = integers(2, BLOCK)
        out = product(layer, x)
    if torch.equal(out, x.float() @ tensor.dequantised().T):
        return Finding("fixed", "192 output rows, a block and a half, are exact")
    raise ValueError("192 output rows load, but their product is wrong")


def apply_partial_block() -> None:
    import torch
    from vllm.model_executor.parameter import ModelWeightParameter

    def make_create(original: Any) -> Any:
        def create_weights(
            self: Any,
            layer: Any,
            input_size_per_partition: Any,
            output_partition_sizes: Any,
            input_size: Any,
            output_size: Any,
            params_dtype: Any,
            **attributes: Any,
        ) -> None:
            rows = sum(output_partition_sizes)
            self.k3_rows = rows if rows % BLOCK else None
            whole = [*output_partition_sizes[:-1], output_partition_sizes[-1] + -rows % BLOCK]
            original(
                self, layer, input_size_per_partition, whole, input_size, output_size, params_dtype,
                **attributes,
            )  # fmt: skip
            if self.k3_rows:
                # Kernel and scale know whole blocks; the weight is loaded (and sharded) as it is stored.
                layer.logical_widths = output_partition_sizes
                layer.output_size_per_partition = rows
                layer.weight = ModelWeightParameter(
                    data=layer.weight.data[:rows].clone(),
                    input_dim=1,
                    output_dim=0,
                    weight_loader=attributes.get("weight_loader"),
                )

        return create_weights

    def make_post_load(original: Any) -> Any:
        def process_weights_after_loading(self: Any, layer: Any) -> None:
            if layer.weight.shape[0] == self.k3_rows:
                padded = layer.weight.data.new_zeros(
                    self.k3_rows + -self.k3_rows % BLOCK, layer.weight.shape[1]
                )
                padded[: self.k3_rows].copy_(layer.weight.data)
                layer.weight = torch.nn.Parameter(padded, requires_grad=False)
            original(self, layer)

        return process_weights_after_loading

    def make_apply(original: Any) -> Any:
        def apply_and_trim(self: Any, layer: Any, x: Any, bias: Any = None) -> Any:
            if not self.k3_rows:
                return original(self, layer, x, bias)
            out = original(self, layer, x, None)[..., : self.k3_rows].contiguous()
            return out if bias is None else out.add_(bias)

        return apply_and_trim

    tag = f"{SWITCH}/partial-block"
    wrap(_method_class(), "create_weights", tag, make_create)
    wrap(_method_class(), "process_weights_after_loading", tag, make_post_load)
    wrap(_method_class(), "apply", tag, make_apply)


# 5. A block scale that several tensor-parallel ranks share


def _kda_projection_class() -> Any:
    from vllm.models.kimi_k3.nvidia.kda import _KimiGDNMergedColumnParallelLinear

    return _KimiGDNMergedColumnParallelLinear


def probe_shared_scale() -> Finding:
    import torch

    # Two ranks: q 256, f_a 128 (replicated), b 64 (one scale row for both ranks), filler to whole blocks.
    tensors = [BlockFp8Tensor(rows, BLOCK, seed) for seed, rows in enumerate((256, 128, 64), start=1)]
    with engine_stage(tensor_parallel_size=2, tensor_parallel_rank=1), torch.no_grad():
        layer = _kda_projection_class()(
            BLOCK, [256, 128, 64, 192], 1, 2, bias=False, quant_config=block_fp8_config(), prefix="probe.in"
        )
        layer.weight.data.zero_()
        try:
            load_shards(layer, tensors)
        except (RuntimeError, IndexError) as error:
            reason = str(error).splitlines()[0]
            return Finding("defect", f"rank 1 of 2 cannot load b_proj's one scale row ({reason})")
        x = integers(2, BLOCK)
        out = product(layer, x)[:, 256:288]
    if torch.equal(out, x.float() @ tensors[2].dequantised()[32:].T):
        return Finding("fixed", "rank 1 of 2 shares b_proj's one scale row")
    raise ValueError("rank 1 of 2 loads b_proj, but its product is wrong")


def apply_shared_scale() -> None:
    from vllm.model_executor.parameter import BlockQuantScaleParameter

    def make(original: Any) -> Any:
        def load(self: Any, param: Any, loaded_weight: Any, loaded_shard_id: Any = None) -> Any:
            if (
                not isinstance(param, BlockQuantScaleParameter)
                or not isinstance(loaded_shard_id, int)
                or loaded_shard_id == self.replicated_shard_id
            ):
                return original(self, param, loaded_weight, loaded_shard_id)
            rows = self.output_sizes[loaded_shard_id] // self.tp_size
            if rows % BLOCK == 0:
                return original(self, param, loaded_weight, loaded_shard_id)
            # This rank's rows lie inside blocks that begin on other ranks; take the scales of those blocks.
            first, n_blocks = self.tp_rank * rows, -(-rows // BLOCK)
            if first % BLOCK + rows > n_blocks * BLOCK:
                raise ValueError(
                    f"{self.prefix} shard {loaded_shard_id}: rows {first} to {first + rows} of rank "
                    f"{self.tp_rank} straddle a 128-row scale block; use a smaller tensor-parallel size"
                )
            scale = loaded_weight.narrow(param.output_dim, first // BLOCK, n_blocks)
            ranks = self.tp_rank, param.tp_rank
            self.tp_rank = param.tp_rank = 0  # the base loader narrows by rank
            try:
                return original(self, param, scale, loaded_shard_id)
            finally:
                self.tp_rank, param.tp_rank = ranks

        return load

    for loader in ("weight_loader", "weight_loader_v2"):
        wrap(_kda_projection_class(), loader, f"{SWITCH}/shared-scale", make)


# 6. The weights that MLA absorbs


def probe_absorbed_weights() -> Finding:
    import torch
    from vllm.model_executor.layers.quantization.utils import quant_utils

    tensor = BlockFp8Tensor(2 * BLOCK, BLOCK, seed=1)
    with engine_stage(ExactKernel(requantises=True)), torch.no_grad():
        method = block_fp8_method()
        layer = loaded_layer(method, tensor)
        absorbed = quant_utils.get_and_maybe_dequant_weights(layer, out_dtype=torch.float32).float()
    if torch.equal(absorbed, tensor.dequantised()):
        return Finding("fixed", "MLA absorbs kv_b_proj's own weights")
    if absorbed.count_nonzero() == 0:
        return Finding("defect", "MLA absorbs kv_b_proj through a kernel whose scales were never laid out")
    return Finding("fixed", "MLA absorbs kv_b_proj as its kernel computes it")


def apply_absorbed_weights() -> None:
    from vllm.model_executor.layers.quantization.utils import quant_utils
    from vllm.models.kimi_k3.nvidia import mla  # noqa: F401  imports the function by name

    tag = f"{SWITCH}/absorbed-weights"

    def make_post_load(original: Any) -> Any:
        def process_weights_after_loading(self: Any, layer: Any) -> None:
            # Before the kernel moves weight and scale into its own layout; MLA reads this once, soon.
            if getattr(layer, "prefix", "").endswith("kv_b_proj"):
                scale = layer.weight_scale.data
                scale = scale.squeeze(1).squeeze(-1) if scale.dim() == 4 else scale
                layer.k3_stored = layer.weight.data.clone(), scale.clone()
            original(self, layer)

        return process_weights_after_loading

    def make_read(original: Any) -> Any:
        import torch

        def get_and_maybe_dequant_weights(layer: Any, out_dtype: Any = torch.float32) -> Any:
            inner = layer
            while hasattr(inner, "base_layer") and hasattr(inner.base_layer, "quant_method"):
                inner = inner.base_layer
            stored = inner.__dict__.pop("k3_stored", None)
            return original(layer, out_dtype) if stored is None else dequantised(*stored).to(out_dtype)

        return get_and_maybe_dequant_weights

    wrap(_method_class(), "process_weights_after_loading", tag, make_post_load)
    wrap_everywhere(quant_utils, "get_and_maybe_dequant_weights", tag, make_read)


PATCH = Patch(
    name="fp8-pb",
    switch=SWITCH,
    fixes="Block-scaled FP8 attention does not load, or computes garbage (dispatch, casts, blocks, scales)",
    fixed_since="0.29.0",
    parts=(
        Part("dispatch", probe_dispatch, apply_dispatch),
        Part("kv-b-input", probe_kv_b_input, apply_kv_b_input),
        Part("post-load", probe_post_load, apply_post_load),
        Part("partial-block", probe_partial_block, apply_partial_block),
        Part("shared-scale", probe_shared_scale, apply_shared_scale),
        Part("absorbed-weights", probe_absorbed_weights, apply_absorbed_weights),
    ),
    excuse=needs(_ALGORITHM),
)
