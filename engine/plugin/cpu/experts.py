"""Routed experts with the SiTU activation (docs/concepts/model.md#situ), in plain PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as modular
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
from vllm.model_executor.layers.fused_moe.oracle import unquantized


def situ(gate_up: torch.Tensor, beta: float, linear_beta: float | None) -> torch.Tensor:
    """beta * tanh(gate / beta) * sigmoid(gate) * up, `up` softly clipped at linear_beta.

    (n, 2d) -> (n, d) fp32.
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    gate = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    if linear_beta is not None:
        up = linear_beta * torch.tanh(up / linear_beta)
    return gate * up


class SituExperts(CPUUnquantizedExperts):
    """Loops over the experts that got tokens; weights stay as loaded."""

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return activation == MoEActivation.SITU

    @staticmethod
    def is_supported_config(
        cls: Any, moe_config: Any, weight_key: Any, activation_key: Any, activation_format: Any
    ) -> Any:
        # No grouped-GEMM kernel here, so none of its size limits.
        return modular.FusedMoEExperts.is_supported_config(
            cls, moe_config, weight_key, activation_key, activation_format
        )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """The parent packs the weights for its kernel; a plain matmul wants them as they are."""

    def apply(
        self,
        output: torch.Tensor,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        activation: MoEActivation,
        global_num_experts: int,
        expert_map: torch.Tensor | None,
        a1q_scale: torch.Tensor | None,
        a2_scale: torch.Tensor | None,
        workspace13: torch.Tensor,
        workspace2: torch.Tensor,
        expert_tokens_meta: modular.ExpertTokensMetadata | None,
        apply_router_weight_on_input: bool,
    ) -> None:
        """w1: (E, 2N, hidden), gate rows before up rows; w2: (E, hidden, N); topk_*: (n, top_k)."""
        if expert_map is not None:
            raise NotImplementedError("expert parallelism is not supported with SiTU experts on CPU")
        config = self.moe_config
        total = torch.zeros(output.shape, dtype=torch.float32)
        for expert in topk_ids.unique().tolist():
            tokens, choice = torch.where(topk_ids == expert)
            inner = situ(
                hidden_states[tokens] @ w1[expert].t(),
                config.activation_situ_beta,
                config.activation_situ_linear_beta,
            )
            result = (inner.to(w2.dtype) @ w2[expert].t()).float()
            if not apply_router_weight_on_input:
                result = result * topk_weights[tokens, choice].float().unsqueeze(-1)
            total.index_add_(0, tokens, result)
        output.copy_(total)


def offer_situ_experts() -> None:
    """Append our experts to the CPU kernels that vLLM chooses from.

    Without it: "No Unquantized MoE backend supports the deployment configuration", since none of the CPU
    kernels has SiTU (docs/concepts/engine.md#on-a-cpu). Retired by SiTU in vLLM's CPU MoE.
    """
    stock = unquantized.backend_to_kernel_cls
    if getattr(stock, "_k3_gateway", False):
        return

    def backend_to_kernel_cls(backend: Any) -> Any:
        classes = stock(backend)
        return [*classes, SituExperts] if backend == unquantized.UnquantizedMoeBackend.CPU else classes

    backend_to_kernel_cls._k3_gateway = True  # type: ignore[attr-defined]
    unquantized.backend_to_kernel_cls = backend_to_kernel_cls
