"""KIMI_K3_MXFP8_KV_B_INPUT_CAST: an MXFP8 kv_b_proj must get a 16-bit latent.

See docs/concepts/patches.md#kimi_k3_mxfp8_kv_b_input_cast.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from patches.checkpoint import CheckpointFacts
from patches.patch import Finding, Part, Patch, wrap
from patches.probes import ExactKernel, is_fp8, kv_b_input_dtype

SWITCH = "KIMI_K3_MXFP8_KV_B_INPUT_CAST"


def _method_class() -> Any:
    from vllm.model_executor.layers.quantization import modelopt

    return getattr(modelopt, "ModelOptMxFp8LinearMethod", None) or modelopt.ModelOptLinearMethod


class _RecordingKernel(ExactKernel):
    def apply_weights(self, layer: Any, x: Any, bias: Any = None, **_: Any) -> Any:
        self.seen = x.dtype
        return x


def _mxfp8_layer(kernel: Any) -> Any:
    """A stand-in kv_b_proj whose quant_method is this release's MXFP8 one, with `kernel`."""
    import torch
    from vllm.model_executor.layers.quantization import modelopt
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp8Static

    method = _method_class().__new__(_method_class())
    method.kernel = kernel
    if hasattr(modelopt, "ModelOptLinearMethod"):
        method.spec = SimpleNamespace(weight=kMxfp8Static, activation=None)
        method.fmt = modelopt.FormatScheme()
        method.input_dtype = torch.bfloat16
    return SimpleNamespace(
        prefix="model.layers.3.self_attn.kv_b_proj",
        quant_method=method,
        weight=torch.empty(1, dtype=torch.float8_e4m3fn),
        params_dtype=torch.bfloat16,
        input_size_per_partition=128,
    )


def probe() -> Finding:
    kernel = _RecordingKernel()
    layer = _mxfp8_layer(kernel)
    dtype = kv_b_input_dtype(layer.quant_method, layer, kernel)
    if is_fp8(dtype):
        return Finding("defect", "an FP8 latent reaches an MXFP8 kv_b_proj as FP8, its kernels take 16 bits")
    return Finding("fixed", f"an FP8 latent reaches an MXFP8 kv_b_proj as {dtype}")


def apply() -> None:
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp8Static

    def make(original: Any) -> Any:
        def apply_with_cast(self: Any, layer: Any, x: Any, bias: Any = None) -> Any:
            # From 0.30 one class serves every format; before, the class is MXFP8's own.
            spec = getattr(self, "spec", None)
            if (
                (spec is None or spec.weight == kMxfp8Static)
                and is_fp8(getattr(x, "dtype", None))
                and getattr(layer, "prefix", "").endswith("kv_b_proj")
            ):
                x = x.to(getattr(self, "input_dtype", None) or layer.params_dtype)
            return original(self, layer, x, bias)

        return apply_with_cast

    wrap(_method_class(), "apply", SWITCH, make)


def excuse(facts: CheckpointFacts | None) -> str | None:
    if facts is None:
        return "the checkpoint is unknown ($K3_MODEL), and few have an MXFP8 kv_b_proj"
    if "MXFP8" in facts.kv_b_algorithms:
        return None
    found = ", ".join(sorted(facts.kv_b_algorithms)) or facts.quantization or "no quantisation"
    return f"the checkpoint's kv_b_proj is not MXFP8 ({found})"


PATCH = Patch(
    name="mxfp8-kv-b-input",
    switch=SWITCH,
    fixes="With an FP8 KV cache the cached latent reaches an MXFP8 kv_b_proj as FP8: an error or garbage",
    fixed_since=None,
    parts=(Part("cast", probe, apply),),
    excuse=excuse,
)
