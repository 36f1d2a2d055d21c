"""Small real layers for the probes: vLLM's own classes and loaders around an exact block-scaled product.

Everything here imports vLLM; call it only where vLLM is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

BLOCK = 128


@contextmanager
def replaced(module: Any, **values: Any) -> Iterator[None]:
    """Module globals set to `values` for the length of the block (those that the module has)."""
    present = {name: getattr(module, name) for name in values if hasattr(module, name)}
    try:
        for name in present:
            setattr(module, name, values[name])
        yield
    finally:
        for name, value in present.items():
            setattr(module, name, value)


class ExactKernel:
    """A block-scaled FP8 linear kernel that computes x W^T in fp32 from the weight and scale as laid out.

    Like every real kernel it applies scale row `r // 128` to weight row `r` and wants whole blocks.
    `n_post_loads` counts its post-load hook; `seen` is the dtype of the last input. Post-load moves the
    scale into the kernel's own layout (here: a power of two, like UE8M0), where `requantises` is set.
    """

    def __init__(self, requantises: bool = False) -> None:
        self.n_post_loads = 0
        self.seen: Any = None
        self.requantises = requantises
        self._scale: Any = None

    def input_quant_key(self) -> None:
        return None

    def process_weights_after_loading(self, layer: Any) -> None:
        self.n_post_loads += 1
        if self.requantises:
            self._scale = layer.weight_scale.data.log2().ceil().exp2()

    def apply_weights(self, layer: Any, x: Any, bias: Any = None, **_: Any) -> Any:
        import torch

        self.seen = x.dtype
        if layer.weight.shape[0] % BLOCK:
            raise ValueError(f"{layer.weight.shape[0]} rows are not whole blocks")
        scale = layer.weight_scale
        if self.requantises:
            scale = torch.zeros_like(scale) if self._scale is None else self._scale
        out = x.float() @ dequantised(layer.weight, scale).T
        return out if bias is None else out + bias


def dequantised(weight: Any, scale: Any) -> Any:
    """(rows, columns) fp8 weight and (ceil(rows/128), columns/128) scale to (rows, columns) fp32."""
    import torch

    rows, columns = weight.shape
    if tuple(scale.shape) != (-(-rows // BLOCK), columns // BLOCK):
        raise ValueError(f"weight {tuple(weight.shape)} does not fit scale {tuple(scale.shape)}")
    blocks = scale.float().repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)
    return weight.to(torch.float32) * blocks


class BlockFp8Tensor:
    """A projection as ModelOpt stores it: (rows, columns) fp8 weight, (blocks, 1, blocks, 1) fp32 scale.

    Scales are odd numbers that differ from block to block, so that a wrong one always shows.
    """

    def __init__(self, rows: int, columns: int, seed: int) -> None:
        import torch

        generator = torch.Generator().manual_seed(seed)
        n_blocks = -(-rows // BLOCK)
        # Whole numbers up to 8 are exact in e4m3, so products below can be compared exactly.
        values = torch.randint(-8, 9, (rows, columns), generator=generator).float()
        self.weight = values.to(torch.float8_e4m3fn)
        first = 3 + 100 * seed
        count = n_blocks * (columns // BLOCK)
        self.scale = torch.arange(first, first + 2 * count, 2, dtype=torch.float32)
        self.scale = self.scale.view(n_blocks, 1, columns // BLOCK, 1)

    def dequantised(self) -> Any:
        """(rows, columns) fp32."""
        return dequantised(self.weight, self.scale.squeeze(1).squeeze(-1))


@contextmanager
def tensor_parallel_place(size: int, rank: int) -> Iterator[None]:
    """vLLM's linear layers built inside believe to be `rank` of `size`; no process group is needed."""
    from vllm.model_executor import parameter
    from vllm.model_executor.layers import linear

    place = {
        "get_tensor_model_parallel_rank": lambda: rank,
        "get_tensor_model_parallel_world_size": lambda: size,
    }
    with replaced(linear, **place), replaced(parameter, **place):
        yield


@contextmanager
def engine_stage(
    kernel: Any = None, tensor_parallel_size: int = 1, tensor_parallel_rank: int = 0
) -> Iterator[Any]:
    """Lets vLLM's linear layers be built outside an engine, with one kernel for all of them, which it yields.

    vLLM's functions that it stands in for are put back at the end.
    """
    import torch
    from vllm.model_executor.layers.quantization import modelopt

    kernel = kernel or ExactKernel()
    config = SimpleNamespace(model_config=SimpleNamespace(dtype=torch.bfloat16))
    stand_ins = {
        "init_fp8_linear_kernel": lambda **_: kernel,
        "get_current_vllm_config": lambda: config,
    }
    with tensor_parallel_place(tensor_parallel_size, tensor_parallel_rank), replaced(modelopt, **stand_ins):
        yield kernel


def block_fp8_method() -> Any:
    """The linear method this release has for ModelOpt's FP8_PB_WO (inside an `engine_stage`)."""
    from vllm.model_executor.layers.quantization import modelopt

    if hasattr(modelopt, "ModelOptFp8PbWoLinearMethod"):
        return modelopt.ModelOptFp8PbWoLinearMethod(SimpleNamespace(is_checkpoint_fp8_serialized=True))
    return modelopt.build_linear_method(None, "FP8_PB_WO", "probe")


def mixed_config(**layers: str) -> Any:
    """A ModelOpt mixed-precision config; `layers` maps the last part of `probe.NAME` to its quant_algo."""
    from vllm.model_executor.layers.quantization.modelopt import ModelOptMixedPrecisionConfig

    return ModelOptMixedPrecisionConfig.from_config(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {
                f"probe.{name}": {"quant_algo": algorithm, "group_size": BLOCK}
                for name, algorithm in layers.items()
            },
        }
    )


def block_fp8_config() -> Any:
    """A config that gives every layer the block-scaled FP8 method, also where dispatch does not work yet."""
    config = mixed_config(any="FP8_PB_WO")
    config.get_quant_method = lambda layer, prefix: block_fp8_method()
    return config


def bare_layer(method: Any, rows: int, columns: int, prefix: str = "probe.kv_b_proj") -> Any:
    """A module with `method`'s weights for one unsharded projection; nothing is loaded yet."""
    import torch

    layer = torch.nn.Module()
    layer.prefix = prefix
    layer.quant_method = method
    layer.params_dtype = torch.bfloat16
    method.create_weights(
        layer,
        columns,
        [rows],
        columns,
        rows,
        torch.bfloat16,
        weight_loader=lambda param, loaded: param.data.copy_(loaded),
    )
    return layer


def loaded_layer(method: Any, tensor: BlockFp8Tensor, prefix: str = "probe.kv_b_proj") -> Any:
    """`bare_layer` with `tensor` in it, post-processed."""
    rows, columns = tensor.weight.shape
    layer = bare_layer(method, rows, columns, prefix)
    load_tensor(layer, tensor)
    return layer


def load_tensor(layer: Any, tensor: BlockFp8Tensor) -> None:
    """Load an unsharded layer's one projection and post-process it."""
    layer.weight.weight_loader(layer.weight, tensor.weight)
    layer.weight_scale.weight_loader(layer.weight_scale, tensor.scale)
    layer.quant_method.process_weights_after_loading(layer)


def load_shards(layer: Any, tensors: Sequence[BlockFp8Tensor]) -> None:
    """Load a merged layer's shards by its own loader, as a checkpoint would, and post-process it."""
    for shard, tensor in enumerate(tensors):
        layer.weight.weight_loader(layer.weight, tensor.weight, shard)
        layer.weight_scale.weight_loader(layer.weight_scale, tensor.scale, shard)
    layer.quant_method.process_weights_after_loading(layer)


def product(layer: Any, x: Any) -> Any:
    """What the layer computes for x, (n, columns) to (n, rows)."""
    return layer.quant_method.apply(layer, x, None).float()


def integers(n: int, columns: int) -> Any:
    """(n, columns) bf16 of small whole numbers: sums of their products are exact in fp32."""
    import torch

    return torch.randint(-4, 5, (n, columns), generator=torch.Generator().manual_seed(7)).bfloat16()


def is_fp8(dtype: Any) -> bool:
    import torch

    return dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def kv_b_input_dtype(method: Any, layer: Any, kernel: Any) -> Any:
    """The dtype in which an FP8 latent of the chunked-context path reaches kv_b_proj's kernel.

    From 0.28 a helper names the dtype that the latent is cast to first; before that the latent stays FP8.
    """
    import torch
    from vllm.model_executor.layers.attention import mla_attention

    # The values do not matter, only what dtype arrives.
    latent = torch.zeros(1, layer.input_size_per_partition).to(torch.float8_e4m3fn)
    if helper := getattr(mla_attention, "_get_kv_b_proj_input_dtype", None):
        dtype = helper(layer, True)
        latent = latent if dtype is None else latent.to(dtype)
    method.apply(layer, latent, None)
    return kernel.seen
