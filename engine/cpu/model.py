"""The K3 classes that vLLM's model registry is given on CPU."""

from __future__ import annotations

from typing import Any

from vllm.models.kimi_k3.amd.linear import KimiLinearForCausalLM
from vllm.models.kimi_k3.amd.model import KimiK3ForConditionalGeneration

from engine.cpu.attention_residuals import keep_score_weights


class CPUKimiLinearForCausalLM(KimiLinearForCausalLM):
    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        keep_score_weights(self)


class CPUKimiK3ForConditionalGeneration(KimiK3ForConditionalGeneration):
    """vLLM's AMD variant, the one without CUDA-only layers; it looks the text model up in the registry."""
