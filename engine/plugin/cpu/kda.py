"""Kimi Delta Attention in plain PyTorch, and the vLLM layer that runs it on CPU.

The recurrence of one head, with state S (V, K), decay a_t = exp(g_t) per key channel and write strength b_t:

    S_t = (S_{t-1} * a_t) + b_t * (v_t - (S_{t-1} * a_t) k_t) k_t^T        o_t = S_t q_t

with q, k of unit length and q scaled by K**-0.5 (docs/concepts/model.md#kda; vLLM's kimi_k3/amd kernels
define the details).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
from vllm.models.kimi_k3.amd.kda import KimiK3DeltaAttention
from vllm.v1.attention.backends.gdn_attn import (
    GDNAttentionBackend,
    GDNAttentionMetadata,
    GDNAttentionMetadataBuilder,
)

# Decays are compared pair by pair inside a chunk, (CHUNK, CHUNK, K) numbers per head: small keeps that cheap
# and the triangular solve short.
CHUNK = 16


def decay(
    raw_gate: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor, lower_bound: float | None
) -> Any:
    """Log decay per key channel, fp32, never positive.

    raw_gate: (n, H, K) before activation; a_log: (H,) fp32; dt_bias: (H * K,) fp32.
    """
    n_heads, head_dim = raw_gate.shape[-2:]
    gate = raw_gate.float() + dt_bias.view(n_heads, head_dim)
    rate = a_log.float().exp().view(n_heads, 1)
    if lower_bound is None:
        return -rate * F.softplus(gate)
    return lower_bound * torch.sigmoid(rate * gate)


def unit_length(x: torch.Tensor) -> torch.Tensor:
    """x / |x| over the last axis; the epsilon is the kernels'."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def delta_rule_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token of each of n sequences. All fp32.

    q, k, g: (n, H, K); v: (n, H, V); beta: (n, H); state: (n, H, V, K).

    Returns the output (n, H, V) and the new state.
    """
    state = state * g.exp().unsqueeze(-2)
    error = (v - torch.einsum("nhvk,nhk->nhv", state, k)) * beta.unsqueeze(-1)
    state = state + error.unsqueeze(-1) * k.unsqueeze(-2)
    return torch.einsum("nhvk,nhk->nhv", state, q), state


def delta_rule_chunked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """n tokens of one sequence. All fp32: q, k, g (n, H, K); v (n, H, V); beta (n, H); state (H, V, K).

    Inside a chunk the writes u of all tokens solve one unit-triangular system, since each corrects what the
    earlier ones of the chunk left in the state. Decays enter only as exp(G_i - G_j) with j <= i, which is at
    most 1: no overflow, whatever the gate. Returns the outputs (n, H, V) and the state after the last token.
    """
    q, k, v, g = (x.transpose(0, 1) for x in (q, k, v, g))  # (H, n, ...)
    beta = beta.t().unsqueeze(-1)  # (H, n, 1)
    out = torch.empty_like(v)
    for start in range(0, q.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        qc, kc, vc, bc = q[:, part], k[:, part], v[:, part], beta[:, part]
        total = g[:, part].cumsum(1)  # (H, c, K)
        pair = (total.unsqueeze(2) - total.unsqueeze(1)).clamp_(max=0.0).exp_()  # (H, i, j, K)
        k_pair = kc.unsqueeze(1) * pair
        reads = torch.einsum("hik,hijk->hij", kc, k_pair).tril(-1)
        answers = torch.einsum("hik,hijk->hij", qc, k_pair).tril()
        carried = total.exp()
        rhs = bc * (vc - torch.einsum("hvk,hik->hiv", state, kc * carried))
        writes = torch.linalg.solve_triangular(bc * reads, rhs, upper=False, unitriangular=True)  # (H, c, V)
        out[:, part] = torch.einsum("hvk,hik->hiv", state, qc * carried) + answers @ writes
        left = (total[:, -1:] - total).exp()
        state = state * carried[:, -1:] + writes.transpose(1, 2) @ (kc * left)
    return out.transpose(0, 1), state


def causal_conv(
    x: torch.Tensor, past: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Depthwise causal convolution, then SiLU, of one sequence.

    x: (n, dim); past: (dim, W - 1), the inputs before x; weight: (dim, W) fp32.
    Returns (n, dim) fp32 and the new past.
    """
    padded = torch.cat([past.t().float(), x.float()])  # (W - 1 + n, dim)
    n = x.shape[0]
    y = sum(padded[tap : tap + n] * weight[:, tap] for tap in range(weight.shape[1]))
    return F.silu(y), padded[n:].t()


class CPUKDAMetadataBuilder(GDNAttentionMetadataBuilder):
    """GDN metadata without chunk tables: the AMD builder launches a Triton kernel for them.

    See docs/concepts/engine.md#on-a-cpu.
    """

    def _build_chunk_metadata(self, *args: Any, **kwargs: Any) -> Any:
        return None, None


class CPUKDABackend(GDNAttentionBackend):
    @staticmethod
    def get_name() -> str:
        return "KIMI_K3_KDA_CPU"

    @staticmethod
    def get_builder_cls() -> type[CPUKDAMetadataBuilder]:
        return CPUKDAMetadataBuilder


class CPUKimiDeltaAttention(KimiK3DeltaAttention):
    """vLLM's KDA layer with its projections, state shapes and loaders; only the recurrence is ours."""

    def get_attn_backend(self) -> type[CPUKDABackend]:
        return CPUKDABackend

    def _forward(
        self,
        mixed_qkv: torch.Tensor,
        g1: torch.Tensor,
        g2: torch.Tensor,
        beta: torch.Tensor,
        core_attn_out: torch.Tensor,
    ) -> None:
        """mixed_qkv: (n, 3 * H * D); g1: (1, n, H, D) raw decay; g2: (n, H, D) raw output gate;
        beta: (1, n, H) raw; core_attn_out: (1, n, H, D), written."""
        metadata = get_forward_context().attn_metadata
        layer = metadata.get(self.prefix) if isinstance(metadata, dict) else None
        if layer is None:  # a profiling run has no requests
            core_attn_out.zero_()
            return
        assert isinstance(layer, GDNAttentionMetadata)
        n = layer.num_actual_tokens
        n_steps = layer.num_decode_tokens
        gate = decay(g1[0, :n], self.A_log, self.dt_bias, self.gate_lower_bound)
        strength = torch.sigmoid(beta[0, :n].float())
        out = core_attn_out[0]
        if n_steps:
            self._decode(mixed_qkv, gate, strength, layer, out)
        if layer.num_prefills:
            self._prefill(mixed_qkv, gate, strength, layer, out)
        core_attn_out.copy_(self.o_norm.forward_native(core_attn_out, g2.unsqueeze(0)))

    def _states(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The paged states as (blocks, dim, W - 1) and (blocks, H, V, K) fp32."""
        conv, recurrent = self.kv_cache
        return (conv if is_conv_state_dim_first() else conv.transpose(-1, -2)), recurrent

    def _conv_weight(self) -> torch.Tensor:
        return self.conv1d.weight.squeeze(1)

    def _heads(self, qkv: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        """(n, 3 * H * D) fp32 -> q, k, v of (n, H, D) fp32, rounded to the model's type as kernels do."""
        qkv = qkv.to(dtype).float().view(len(qkv), 3, self.local_num_heads, self.head_dim)
        q, k, v = qkv.unbind(1)
        return unit_length(q) * self.head_dim**-0.5, unit_length(k), v

    def _decode(
        self, mixed_qkv: Any, gate: Any, strength: Any, layer: GDNAttentionMetadata, out: Any
    ) -> None:
        n = layer.num_decode_tokens
        blocks = layer.non_spec_state_indices_tensor[:n].long()
        conv, recurrent = self._states()
        window = torch.cat([conv[blocks].float(), mixed_qkv[:n].float().unsqueeze(-1)], dim=-1)  # (n, dim, W)
        conv[blocks] = window[..., 1:].to(conv.dtype)
        mixed = F.silu((window * self._conv_weight()).sum(-1))
        q, k, v = self._heads(mixed, mixed_qkv.dtype)
        read, state = delta_rule_step(q, k, v, gate[:n], strength[:n], recurrent[blocks].float())
        recurrent[blocks] = state.to(recurrent.dtype)
        out[:n] = read.to(out.dtype)

    def _prefill(
        self, mixed_qkv: Any, gate: Any, strength: Any, layer: GDNAttentionMetadata, out: Any
    ) -> None:
        conv, recurrent = self._states()
        bounds = layer.non_spec_query_start_loc.tolist()
        blocks = layer.non_spec_state_indices_tensor.tolist()
        resumed = layer.has_initial_state.tolist()
        first = layer.num_decodes
        for row in range(first, first + layer.num_prefills):
            part, block = slice(bounds[row], bounds[row + 1]), blocks[row]
            past, state = conv[block], recurrent[block].float()
            if not resumed[row]:  # the block may hold a finished request's state
                past, state = torch.zeros_like(past), torch.zeros_like(state)
            mixed, past = causal_conv(mixed_qkv[part], past, self._conv_weight())
            q, k, v = self._heads(mixed, mixed_qkv.dtype)
            read, state = delta_rule_chunked(q, k, v, gate[part], strength[part], state)
            conv[block] = past.to(conv.dtype)
            recurrent[block] = state.to(recurrent.dtype)
            out[part] = read.to(out.dtype)


def use_torch_kda() -> None:
    """Let K3's decoder layer build our KDA layer.

    Without it the layer launches Triton kernels, and its constructor asks vllm.platforms.rocm for the GPU
    model, which raises "Torch not compiled with CUDA enabled" (docs/concepts/engine.md#on-a-cpu). Retired by
    a CPU path in vLLM's kimi_k3.
    """
    from vllm.models.kimi_k3.amd import kda, linear

    linear.KimiK3DeltaAttention = CPUKimiDeltaAttention
    kda.is_fused_kda_decode_supported = lambda *args, **kwargs: False
    kda.is_fused_kda_chunk_supported = lambda: False
