"""The K3 classes that vLLM's model registry is given on CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.models.kimi_k3.amd.linear import KimiLinearForCausalLM
from vllm.models.kimi_k3.amd.model import KimiK3ForConditionalGeneration
from vllm.models.kimi_k3.common.mm_preprocess import (
    KimiK3DummyInputsBuilder,
    KimiK3MultiModalProcessor,
    KimiK3ProcessingInfo,
    navit_resize_image,
)
from vllm.multimodal import MULTIMODAL_REGISTRY

from engine.plugin.cpu.attention_residuals import keep_score_weights


class CPUKimiLinearForCausalLM(KimiLinearForCausalLM):
    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        keep_score_weights(self)


class ComputedMediaLimits(KimiK3ProcessingInfo):
    """Computes the size of the largest picture; the stock class prepares one, in two processes, at start-up
    (3584 x 3584 pixels, several seconds and hundreds of megabytes)."""

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        config = self.image_processor.media_proc_cfg
        keys = (
            "patch_size",
            "merge_kernel_size",
            "in_patch_limit",
            "patch_limit_on_one_side",
            "fixed_output_tokens",
        )
        limits = [config[key] for key in keys]
        size = self.get_max_image_size(*limits)
        return {"image": navit_resize_image(size.width, size.height, *limits)["num_tokens"]}


@MULTIMODAL_REGISTRY.register_processor(
    KimiK3MultiModalProcessor, info=ComputedMediaLimits, dummy_inputs=KimiK3DummyInputsBuilder
)
class CPUKimiK3ForConditionalGeneration(KimiK3ForConditionalGeneration):
    """vLLM's AMD variant, the one without CUDA-only layers; it looks the text model up in the registry."""
