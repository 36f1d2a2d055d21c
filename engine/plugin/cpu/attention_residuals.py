"""Attention residuals in plain PyTorch (docs/concepts/model.md#attention-residuals)."""

from __future__ import annotations

import torch


def attention_residual(
    prefix: torch.Tensor,
    delta: torch.Tensor | None,
    blocks: torch.Tensor,
    norm_weight: torch.Tensor,
    qk_weight: torch.Tensor,
    output_norm_weight: torch.Tensor | None,
    num_blocks: int,
    block_write_idx: int,
    eps: float,
    output_norm_eps: float,
    *,
    quant_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Mix the running sum and the stored block outputs into a sub-layer's input.

    prefix: (n, hidden), the running sum; `delta`, when given, is added to it in place (the caller keeps
    using it). blocks: (n, n_blocks, hidden), of which the first `num_blocks` are valid; the updated sum is
    written to `block_write_idx` when that is not negative. Signature and effects are those of vLLM's
    `attn_res` kernel. Returns (n, hidden), normalised with `output_norm_weight` when given.
    """
    if quant_dtype is not None:
        raise NotImplementedError("quantised attention residuals are not supported on CPU")
    if delta is not None:
        prefix.copy_(prefix.float() + delta.float())
    if block_write_idx >= 0:
        blocks[:, block_write_idx] = prefix
    current = prefix.float()
    if num_blocks == 0:
        mixed = current
    else:
        sources = torch.cat([blocks[:, :num_blocks].float(), current.unsqueeze(1)], dim=1)
        scale = torch.rsqrt(sources.square().mean(-1) + eps)
        scores = (sources @ (norm_weight.float() * qk_weight.float())) * scale
        mixed = torch.einsum("nb,nbh->nh", scores.softmax(-1), sources)
    if output_norm_weight is not None:
        scale = torch.rsqrt(mixed.square().mean(-1, keepdim=True) + output_norm_eps)
        mixed = mixed * scale * output_norm_weight.float()
    return mixed.to(prefix.dtype)


def use_torch_attention_residuals() -> None:
    """Replace the Triton kernel that K3's layers call by name.

    Without it the first forward fails, since there is no Triton on CPU (docs/concepts/engine.md#on-a-cpu).
    Retired by a CPU path in vLLM's kimi_k3.
    """
    from vllm.models.kimi_k3.amd import linear

    linear.attn_res = attention_residual


def keep_score_weights(model: torch.nn.Module) -> None:
    """Keep the weights of the scoring projections readable after loading.

    CPU linear layers pack and delete `.weight`; attention residuals read it directly. Symptom without it:
    "size of tensor a (256) must match ... (0)" (docs/concepts/engine.md#on-a-cpu). Retired by vLLM marking
    these layers itself.
    """
    for name, module in model.named_modules():
        if name.endswith("_res_proj"):
            module._cpu_skip_gemm_dispatch = True
