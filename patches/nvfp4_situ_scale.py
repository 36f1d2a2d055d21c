"""KIMI_K3_NVFP4_SITU_G1_SCALE: SiTU experts must not apply gemm 1's scale twice.

See docs/concepts/patches.md#kimi_k3_nvfp4_situ_g1_scale.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from patches.checkpoint import needs
from patches.patch import Finding, Part, Patch, wrap

SWITCH = "KIMI_K3_NVFP4_SITU_G1_SCALE"


def _experts_class() -> Any:
    from vllm.model_executor.layers.fused_moe.experts.trtllm_nvfp4_moe import TrtLlmNvFp4ExpertsBase

    return TrtLlmNvFp4ExpertsBase


def situ_experts(gemm1_alpha: float, output_scale: float) -> tuple[Any, Any]:
    """SiTU experts as they are between loading and post-processing, and their layer; one expert."""
    import torch

    experts = _experts_class().__new__(_experts_class())
    layer = torch.nn.Module()
    for name in ("w13_weight_scale_2", "w2_weight_scale_2", "w13_input_scale", "w2_input_scale"):
        layer.register_parameter(name, torch.nn.Parameter(torch.ones(1), requires_grad=False))
    experts.quant_config = SimpleNamespace(
        g1_alphas=torch.tensor([gemm1_alpha]), a2_gscale=torch.tensor([output_scale])
    )
    experts.moe_config = SimpleNamespace(is_act_and_mul=True)
    experts.is_situ = True
    experts.gemm1_clamp_limit = experts.gemm1_alpha = experts.gemm1_beta = None
    return experts, layer


def probe() -> Finding:
    experts, layer = situ_experts(gemm1_alpha=3.0, output_scale=2.0)
    if hasattr(experts, "_compute_g1_scale_c"):
        scale = experts._compute_g1_scale_c()
    else:
        experts.process_weights_after_loading(layer)
        scale = layer.g1_scale_c
    if float(scale) == 2.0:
        return Finding("fixed", "SiTU experts with alpha 3 and output scale 2 use 2")
    return Finding(
        "defect", f"SiTU experts with alpha 3 and output scale 2 use output scale {float(scale):g}"
    )


def apply() -> None:
    import torch

    def make_init(original: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if self.is_situ:
                self.g1_scale_c = self.quant_config.a2_gscale.clone()

        return init

    def make_post_load(original: Any) -> Any:
        def process_weights_after_loading(self: Any, layer: Any) -> None:
            original(self, layer)
            if self.is_situ:
                # Still the layer's registered parameter: expert load balancing moves it with the weights.
                scale = self.quant_config.a2_gscale.clone()
                layer.register_parameter("g1_scale_c", torch.nn.Parameter(scale, requires_grad=False))
                self.g1_scale_c = layer.g1_scale_c

        return process_weights_after_loading

    wrap(_experts_class(), "__init__", SWITCH, make_init)
    wrap(_experts_class(), "process_weights_after_loading", SWITCH, make_post_load)


PATCH = Patch(
    name="nvfp4-situ-scale",
    switch=SWITCH,
    fixes="NVFP4 experts with K3's SiTU activation apply the first product's scale twice: wrong numbers",
    fixed_since="0.29.0",
    parts=(Part("scale", probe, apply),),
    excuse=needs("NVFP4"),
)
