"""The mini K3 as a trainable model over packed batches; the same arithmetic as `reference`, made fast.

Rows hold several conversations, each starting at a multiple of 16 tokens (`batch.Batch`). Experts are one
wide MLP whose inner units are weighted by the router, so all tokens pass through all experts in one product.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.mini.batch import Batch
from engine.mini.checkpoint import initial_tensors
from engine.mini.chunked_kda import chunked_kda
from engine.mini.config import MiniConfig
from engine.mini.places import interpolation

_EPS = 1e-5


def _norm(x: Tensor, weight: Tensor, eps: float = _EPS) -> Tensor:
    return F.rms_norm(x.float(), x.shape[-1:], weight, eps)


def _situ(gate: Tensor, up: Tensor) -> Tensor:
    return 4.0 * torch.tanh(gate / 4.0) * torch.sigmoid(gate) * 25.0 * torch.tanh(up / 25.0)


def _mixed(sources: list[Tensor], weight: Tensor) -> Tensor:
    """Softmax-weighted mean of (rows, T, H) sources."""
    stacked = torch.stack([s.float() for s in sources])
    scores = (stacked * weight).sum(-1) * torch.rsqrt(stacked.square().mean(-1) + _EPS)
    return (scores.softmax(0)[..., None] * stacked).sum(0)


def _taps(y: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    """Each channel of y (rows, T, channels) mixed with its last values in the same conversation."""
    n_taps = taps.shape[1]
    out = y * taps[:, -1]
    for back in range(1, n_taps):
        own = (positions >= back)[..., None]
        shifted = F.pad(y, (0, 0, back, 0))[:, : y.shape[1]]
        out = out + torch.where(own, shifted, 0.0) * taps[:, n_taps - 1 - back]
    return out


def _log_decay(raw: Tensor, rate: Tensor, lower_bound: float) -> Tensor:
    return lower_bound * torch.sigmoid(rate * raw)


class TrainableK3(nn.Module):
    """`tensors()` gives the checkpoint's tensors; parameters have the same names with `/` for dots.

    Experts are stacked: `experts/w1` and `w3` (experts, inner, latent), `w2` (experts, latent, inner).
    """

    def __init__(self, config: MiniConfig, tensors: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.config = config
        self.weights = nn.ParameterDict()
        for name, tensor in _stack_experts(config, tensors or initial_tensors(config)).items():
            trained = not name.endswith("e_score_correction_bias")
            self.weights[name.replace(".", "/")] = nn.Parameter(tensor.float().clone(), requires_grad=trained)
        self.register_buffer("interpolation", interpolation(config.vit_pos_emb_side), persistent=False)
        half = config.vit_hidden_size // 2
        angle = torch.outer(torch.arange(4.0), 10000.0 ** (-torch.arange(half) / half))
        times = torch.cat([torch.zeros(1, 2 * half), torch.cat([angle.sin(), angle.cos()], -1)])
        self.register_buffer("times", times, persistent=False)  # (0 = a still picture, then the four frames)

    def tensors(self) -> dict[str, Tensor]:
        """float32 tensors under the checkpoint's names."""
        stacked = {name.replace("/", "."): w.detach() for name, w in self.weights.items()}
        return _unstack_experts(stacked)

    def __getitem__(self, name: str) -> Tensor:
        return self.weights[name.replace(".", "/")]

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, list[Tensor]]:
        """(rows, T, H) normed hidden states, (media items, vit hidden) pooled features, expert loads."""
        x = F.embedding(batch.ids, self["language_model.model.embed_tokens.weight"])
        pooled = x.new_zeros(0, self.config.vit_hidden_size)
        if len(batch.media_positions):
            features, pooled = self._vision(batch)
            x = x.flatten(0, 1).index_copy(0, batch.media_positions, features.to(x.dtype)).view_as(x)
        loads: list[Tensor] = []
        return self._text(x, batch, loads), pooled, loads

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self["language_model.lm_head.weight"])

    def _text(self, x: Tensor, batch: Batch, loads: list[Tensor]) -> Tensor:
        blocks: list[Tensor] = []
        stream = x
        model = "language_model.model."
        for index in range(self.config.n_layers):
            layer = f"{model}layers.{index}."
            mixed = self._mix(layer + "self_attention_res", [*blocks, stream])
            normed = _norm(mixed, self[layer + "input_layernorm.weight"])
            attend = self._mla if index + 1 in self.config.full_attn_layers else self._kda
            attended = attend(layer + "self_attn.", normed, batch)
            if index % self.config.attn_res_block_size == 0:
                blocks.append(stream)
                stream = attended.float()
            else:
                stream = stream + attended
            mixed = self._mix(layer + "mlp_res", [*blocks, stream])
            normed = _norm(mixed, self[layer + "post_attention_layernorm.weight"])
            if index == 0:
                stream = stream + self._mlp(layer + "mlp.", normed)
            else:
                stream = stream + self._moe(layer + "block_sparse_moe.", normed, batch, loads)
        mixed = self._mix(model + "output_attn_res", [*blocks, stream])
        return _norm(mixed, self[model + "norm.weight"])

    def _mix(self, name: str, sources: list[Tensor]) -> Tensor:
        if len(sources) == 1:
            return sources[0]
        return _mixed(sources, self[name + "_norm.weight"] * self[name + "_proj.weight"][0])

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self[name + ".weight"])

    def _kda(self, layer: str, x: Tensor, batch: Batch) -> Tensor:
        heads, width = self.config.kda_heads, self.config.kda_head_dim
        q, k, v = (self._conv(layer + name, x, batch).unflatten(-1, (heads, width)) for name in "qkv")
        q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        raw = self._linear(layer + "f_b_proj", self._linear(layer + "f_a_proj", x)).float()
        raw = (raw + self[layer + "dt_bias"]).unflatten(-1, (heads, width))
        rate = self[layer + "A_log"][:heads, None].exp()
        log_decay = _log_decay(raw, rate, self.config.gate_lower_bound)
        beta = torch.sigmoid(self._linear(layer + "b_proj", x).float())
        with torch.autocast(x.device.type, enabled=False):
            out = chunked_kda(q * width**-0.5, k, v, log_decay, beta, batch.chunk_starts)
        gate = torch.sigmoid(self._linear(layer + "g_proj", x)).unflatten(-1, (heads, width))
        out = _norm(out, self[layer + "o_norm.weight"]) * gate
        return self._linear(layer + "o_proj", out.flatten(2))

    def _conv(self, name: str, x: Tensor, batch: Batch) -> Tensor:
        """A projection, four taps over the conversation's own tokens, SiLU."""
        y = self._linear(name + "_proj", x).float()
        return F.silu(_taps(y, self[name + "_conv1d.weight"][:, 0], batch.positions))

    def _mla(self, layer: str, x: Tensor, batch: Batch) -> Tensor:
        c = self.config
        heads, qk = c.mla_heads, c.qk_nope_head_dim + c.qk_rope_head_dim
        q = _norm(self._linear(layer + "q_a_proj", x), self[layer + "q_a_layernorm.weight"])
        q = self._linear(layer + "q_b_proj", q).unflatten(-1, (heads, qk))
        latent, k_shared = self._linear(layer + "kv_a_proj_with_mqa", x).split(
            [c.kv_lora_rank, c.qk_rope_head_dim], -1
        )
        kv = self._linear(layer + "kv_b_proj", _norm(latent, self[layer + "kv_a_layernorm.weight"]))
        k, v = kv.unflatten(-1, (heads, -1)).split([c.qk_nope_head_dim, c.v_head_dim], -1)
        k = torch.cat([k, k_shared[:, :, None].expand(-1, -1, heads, -1)], -1)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=batch.attention_bias.to(q.dtype))
        out = out.transpose(1, 2).flatten(2) * torch.sigmoid(self._linear(layer + "g_proj", x))
        return self._linear(layer + "o_proj", out)

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        inner = _situ(self._linear(name + "gate_proj", x), self._linear(name + "up_proj", x))
        return self._linear(name + "down_proj", inner)

    def _moe(self, name: str, x: Tensor, batch: Batch, loads: list[Tensor]) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self[name + "gate.weight"])
        preferred = torch.sigmoid(scores.detach()) + self[name + "gate.e_score_correction_bias"]
        chosen = preferred.topk(self.config.n_active_experts, dim=-1).indices
        mask = torch.zeros_like(scores).scatter_(-1, chosen, 1.0)
        loads.append((mask * batch.is_token[..., None]).sum((0, 1)))
        # sigmoid(s) / sum of sigmoid(s) over the chosen, by logarithms: where all scores are far below zero
        # the plain quotient overflows in the backward pass, and one such token ruins all weights.
        weights = F.logsigmoid(scores).masked_fill(mask == 0, float("-inf")).softmax(-1)
        latent = self._linear(name + "routed_expert_down_proj", x)
        w1, w2, w3 = (self[f"{name}experts.{w}"] for w in ("w1", "w2", "w3"))
        inner = _situ(F.linear(latent, w1.flatten(0, 1)), F.linear(latent, w3.flatten(0, 1)))
        inner = (inner.unflatten(-1, w1.shape[:2]) * weights[..., None].to(inner.dtype)).flatten(-2)
        routed = F.linear(inner, w2.transpose(0, 1).flatten(1))
        routed = _norm(routed, self[name + "routed_expert_norm.weight"])
        return self._linear(name + "routed_expert_up_proj", routed) + self._mlp(name + "shared_experts.", x)

    def _vision(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Features for every placeholder, and each item's mean feature, item buckets one after another."""
        places = self.interpolation @ self["vision_tower.patch_embed.pos_emb.weight"].flatten(0, 1)
        embed = self["vision_tower.patch_embed.proj.weight"].flatten(1)
        merged, pooled = [], []
        for items in batch.media:
            x = F.linear(items.patches.float() / 127.5 - 1.0, embed)
            x = x + F.embedding(items.places, places) + self.times[items.times]
            for block in range(self.config.vit_layers):
                name = f"vision_tower.encoder.blocks.{block}."
                y = F.rms_norm(x.float(), x.shape[-1:], self[name + "norm0.weight"])
                x = x + self._vision_attention(name, y, items.rotation(self._head_dim), items.bias)
                y = F.rms_norm(x.float(), x.shape[-1:], self[name + "norm1.weight"])
                inner = F.gelu(self._linear(name + "mlp.fc0", y), approximate="tanh")
                x = x + self._linear(name + "mlp.fc1", inner)
            weight = self["vision_tower.encoder.final_layernorm.weight"]
            x = F.rms_norm(x.float(), x.shape[-1:], weight)
            pooled.append((x * items.real[..., None]).sum(1) / items.real.sum(1, keepdim=True))
            # (tokens, 4 neighbours, 4 frames) -> mean over the frames that exist, neighbours side by side
            parts = x.flatten(0, 1).index_select(0, items.merge.flatten()).view(*items.merge.shape, -1)
            merged.append(torch.einsum("nsfc,nf->nsc", parts, items.frame_weights).flatten(1))
        x = torch.cat(merged)
        x = self._linear("mm_projector.proj.2", F.gelu(self._linear("mm_projector.proj.0", x)))
        return _norm(x, self["mm_projector.post_norm.weight"]), torch.cat(pooled)

    @property
    def _head_dim(self) -> int:
        return self.config.vit_qkv_size // self.config.vit_heads

    def _vision_attention(
        self, name: str, x: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor
    ) -> Tensor:
        qkv = self._linear(name + "wqkv", x).unflatten(-1, (3, self.config.vit_heads, self._head_dim))
        q, k, v = qkv.unbind(2)  # (items, patches, h, d)
        q, k = (_rotate(y, *rotation) for y in (q, k))
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=bias.to(q.dtype)
        )
        return self._linear(name + "wo", out.transpose(1, 2).flatten(2))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, :, None], sin[:, :, None]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)


def _stack_experts(config: MiniConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    stacked = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for index in range(1, config.n_layers):
        experts = f"language_model.model.layers.{index}.block_sparse_moe.experts."
        for w in ("w1", "w2", "w3"):
            stacked[experts + w] = torch.stack(
                [tensors[f"{experts}{e}.{w}.weight"] for e in range(config.n_experts)]
            )
    return stacked


def _unstack_experts(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, tensor in stacked.items():
        if ".experts." in name:
            prefix, w = name.rsplit(".", 1)
            tensors |= {f"{prefix}.{e}.{w}.weight": part for e, part in enumerate(tensor)}
        else:
            tensors[name] = tensor
    return tensors


def compile_elementwise() -> None:
    """Fuses the element-wise parts with torch.compile; the results stay the same but for rounding."""
    for name in ("_situ", "_mixed", "_taps", "_log_decay"):
        globals()[name] = torch.compile(globals()[name], dynamic=False)
