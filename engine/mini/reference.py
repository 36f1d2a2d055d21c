"""K3 in plain PyTorch, as a definition to test against: the whole sequence at once, no cache, no tricks.

Kimi Delta Attention is a loop over tokens, multi-head latent attention a dense softmax, the experts a loop.
The arithmetic is that of docs/concepts/model.md. Shapes in comments: n tokens, h heads, d head width, H
hidden size.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

PlacedPatches = tuple[int, "NDArray[np.uint8] | Tensor", tuple[int, int, int]]
"""(offset of the first placeholder, patches (t*h*w, 3, 14, 14) uint8, grid (t, h, w))"""


class MiniK3:
    """A K3 checkpoint of any (small) size. `logits` is the one thing it does."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.text = config["text_config"]
        self.vision = config["vision_config"]
        self.tensors = tensors

    @classmethod
    def load(cls, folder: Path | str, dtype: torch.dtype = torch.float32) -> MiniK3:
        """Reads config.json and model.safetensors; every tensor is cast to `dtype`."""
        folder = Path(folder)
        tensors = load_file(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        return cls(config, {name: tensor.to(dtype) for name, tensor in tensors.items()})

    @torch.inference_mode()
    def logits(self, ids: Sequence[int] | Tensor, media: Sequence[PlacedPatches] = ()) -> Tensor:
        """(n, vocabulary) logits after each of the n tokens, in the dtype of the weights."""
        x = self.tensors["language_model.model.embed_tokens.weight"][torch.as_tensor(ids)]
        for offset, patches, grid in media:
            features = self.media_features(patches, grid)
            x[offset : offset + len(features)] = features
        x = self._text_model(x)
        return x @ self.tensors["language_model.lm_head.weight"].T

    # The text model.

    def _text_model(self, x: Tensor) -> Tensor:
        """Layers with attention residuals: each sub-layer reads a learned mix of earlier blocks
        (docs/concepts/model.md#attention-residuals).

        `stream` is what the current block has summed up so far. A layer that opens a block files the stream
        of the last one and starts anew from its own attention output.
        """
        blocks: list[Tensor] = []
        stream = x
        model = "language_model.model."
        for index in range(self.text["num_hidden_layers"]):
            layer = f"{model}layers.{index}."
            opens_block = index % self.text["attn_res_block_size"] == 0
            mixed = self._mix(layer + "self_attention_res", [*blocks, stream])
            attended = self._attention(index, self._norm(layer + "input_layernorm", mixed))
            if opens_block:
                blocks.append(stream)
                stream = attended
            else:
                stream = stream + attended
            mixed = self._mix(layer + "mlp_res", [*blocks, stream])
            stream = stream + self._mlp(index, self._norm(layer + "post_attention_layernorm", mixed))
        return self._norm(model + "norm", self._mix(model + "output_attn_res", [*blocks, stream]))

    def _mix(self, name: str, sources: list[Tensor]) -> Tensor:
        """Softmax-weighted mean of the sources, each scored by a norm and a projection to one number."""
        stacked = torch.stack(sources)  # (sources, n, H)
        scores = self._linear(name + "_proj", self._norm(name + "_norm", stacked))
        return (scores.softmax(0) * stacked).sum(0)

    def _attention(self, index: int, x: Tensor) -> Tensor:
        is_kda = index + 1 in self.text["linear_attn_config"]["kda_layers"]
        return (self._kda if is_kda else self._mla)(f"language_model.model.layers.{index}.self_attn.", x)

    def _kda(self, layer: str, x: Tensor) -> Tensor:
        """Kimi Delta Attention: a matrix per head, decaying by channel, corrected by the delta rule."""
        config = self.text["linear_attn_config"]
        heads, width = config["num_heads"], config["head_dim"]
        q, k, v = (
            F.silu(self._causal_conv(layer + name, x)).unflatten(-1, (heads, width))
            for name in ("q", "k", "v")
        )  # each (n, h, d)
        q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        raw = self._linear(layer + "f_b_proj", self._linear(layer + "f_a_proj", x))
        raw = (raw + self.tensors[layer + "dt_bias"]).unflatten(-1, (heads, width))
        rate = self.tensors[layer + "A_log"][:heads, None].exp()
        decay = (config["gate_lower_bound"] * torch.sigmoid(rate * raw)).exp()  # (n, h, d)
        beta = torch.sigmoid(self._linear(layer + "b_proj", x))[..., None]  # (n, h, 1)

        state = x.new_zeros(heads, width, width)  # (h, key channel, value channel)
        outputs = []
        for t in range(len(x)):
            state = state * decay[t, :, :, None]
            recalled = torch.einsum("hk,hkv->hv", k[t], state)
            state = state + torch.einsum("hk,hv->hkv", k[t], beta[t] * (v[t] - recalled))
            outputs.append(torch.einsum("hk,hkv->hv", q[t] * width**-0.5, state))
        gate = torch.sigmoid(self._linear(layer + "g_proj", x)).unflatten(-1, (heads, width))
        out = self._norm(layer + "o_norm", torch.stack(outputs), eps=1e-5) * gate
        return self._linear(layer + "o_proj", out.flatten(1))

    def _causal_conv(self, name: str, x: Tensor) -> Tensor:
        """Each channel of the projection mixed with its own last three values."""
        weight = self.tensors[name + "_conv1d.weight"]  # (channels, 1, taps)
        channels, _, taps = weight.shape
        padded = F.pad(self._linear(name + "_proj", x).T, (taps - 1, 0))
        return F.conv1d(padded[None], weight, groups=channels)[0].T

    def _mla(self, layer: str, x: Tensor) -> Tensor:
        """Multi-head latent attention without positions, its output gated by the input.

        See docs/concepts/model.md#mla.
        """
        c = self.text
        heads, nope, rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        q = self._linear(
            layer + "q_b_proj", self._norm(layer + "q_a_layernorm", self._linear(layer + "q_a_proj", x))
        )
        q = q.unflatten(-1, (heads, nope + rope))
        latent, k_shared = self._linear(layer + "kv_a_proj_with_mqa", x).split([c["kv_lora_rank"], rope], -1)
        kv = self._linear(layer + "kv_b_proj", self._norm(layer + "kv_a_layernorm", latent))
        k, v = kv.unflatten(-1, (heads, nope + c["v_head_dim"])).split([nope, c["v_head_dim"]], -1)
        k = torch.cat([k, k_shared[:, None].expand(-1, heads, -1)], -1)  # (n, h, nope + rope)
        scores = torch.einsum("qhd,khd->hqk", q, k) * (nope + rope) ** -0.5
        future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", weights, v).flatten(1)
        return self._linear(layer + "o_proj", out * torch.sigmoid(self._linear(layer + "g_proj", x)))

    def _mlp(self, index: int, x: Tensor) -> Tensor:
        layer = f"language_model.model.layers.{index}."
        if index < self.text["first_k_dense_replace"]:
            return self._gated_mlp(layer + "mlp.", x)
        return self._moe(layer + "block_sparse_moe.", x)

    def _gated_mlp(self, name: str, x: Tensor) -> Tensor:
        inner = self._situ(self._linear(name + "gate_proj", x), self._linear(name + "up_proj", x))
        return self._linear(name + "down_proj", inner)

    def _situ(self, gate: Tensor, up: Tensor) -> Tensor:
        """The SiTU activation: a gate and a value, both bounded by tanh (docs/concepts/model.md#situ)."""
        beta, linear_beta = self.text["activation_situ_beta"], self.text["activation_situ_linear_beta"]
        gate = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
        return gate * linear_beta * torch.tanh(up / linear_beta)

    def _moe(self, name: str, x: Tensor) -> Tensor:
        """Experts work in a narrower latent space; their sum is normed before it is projected back.

        See docs/concepts/model.md#latent-experts.
        """
        affinity = torch.sigmoid(self._linear(name + "gate", x).float())  # (n, experts)
        preferred = affinity + self.tensors[name + "gate.e_score_correction_bias"].float()
        chosen = preferred.topk(self.text["num_experts_per_token"], dim=-1).indices
        weights = affinity.gather(1, chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        latent = self._linear(name + "routed_expert_down_proj", x)
        total = torch.zeros_like(latent)
        for expert in range(self.text["num_experts"]):
            rows, slot = (chosen == expert).nonzero(as_tuple=True)
            part, prefix = latent[rows], f"{name}experts.{expert}."
            inner = self._situ(self._linear(prefix + "w1", part), self._linear(prefix + "w3", part))
            total.index_add_(0, rows, self._linear(prefix + "w2", inner) * weights[rows, slot, None])
        routed = self._linear(name + "routed_expert_up_proj", self._norm(name + "routed_expert_norm", total))
        return routed + self._gated_mlp(name + "shared_experts.", x)

    # The vision tower (MoonViT-3d) and its projector.

    @torch.inference_mode()
    def media_features(self, patches: NDArray[np.uint8] | Tensor, grid: tuple[int, int, int]) -> Tensor:
        """(h*w/4, H): what stands in the prompt for one picture, or for a chunk of up to four frames."""
        t, height, width = grid
        embed = self.tensors["vision_tower.patch_embed.proj.weight"]  # (width, 3, 14, 14)
        pixels = torch.as_tensor(patches).to(embed.dtype) / 127.5 - 1.0
        x = pixels.flatten(1) @ embed.flatten(1).T + self._positions(grid)
        rotation = self._rotation(grid)
        for block in range(self.vision["vt_num_hidden_layers"]):
            name = f"vision_tower.encoder.blocks.{block}."
            x = x + self._vision_attention(name, self._vision_norm(name + "norm0", x), rotation)
            inner = self._linear(name + "mlp.fc0", self._vision_norm(name + "norm1", x))
            x = x + self._linear(name + "mlp.fc1", F.gelu(inner, approximate="tanh"))
        x = self._vision_norm("vision_tower.encoder.final_layernorm", x)
        # Mean over time, then each 2x2 square of patches side by side.
        x = x.view(t, height // 2, 2, width // 2, 2, -1).mean(0).transpose(1, 2).flatten(2).flatten(0, 1)
        x = self._linear("mm_projector.proj.2", F.gelu(self._linear("mm_projector.proj.0", x)))
        return self._norm("mm_projector.post_norm", x, eps=self.vision["projector_ln_eps"])

    def _positions(self, grid: tuple[int, int, int]) -> Tensor:
        """Learned table interpolated to the grid; frames of a chunk also get a sine code of their time."""
        t, height, width = grid
        table = self.tensors["vision_tower.patch_embed.pos_emb.weight"].permute(2, 0, 1)[None]
        mode = self.vision["pos_emb_interpolation_mode"]
        if table.shape[2:] != (height, width):
            table = F.interpolate(table, size=(height, width), mode=mode)
        plane = table[0].flatten(1).T  # (h*w, width)
        if t == 1:
            return plane
        half = plane.shape[1] // 2
        angle = torch.outer(torch.arange(t), 10000.0 ** (-torch.arange(half) / half))
        time = torch.cat([angle.sin(), angle.cos()], -1).to(plane.dtype)
        return (plane + time[:, None]).flatten(0, 1)

    def _rotation(self, grid: tuple[int, int, int]) -> Tensor:
        """(t*h*w, d/2) complex: column and row angles take turns (2-D rotary positions)."""
        t, height, width = grid
        head = self.vision["qkv_hidden_size"] // self.vision["vt_num_attention_heads"]
        frequencies = 10000.0 ** (-torch.arange(0, head, 4) / head)
        row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        angles = torch.stack([column[..., None] * frequencies, row[..., None] * frequencies], -1)
        angles = angles.flatten(2).flatten(0, 1).repeat(t, 1)
        return torch.polar(torch.ones_like(angles), angles)

    def _vision_attention(self, name: str, x: Tensor, rotation: Tensor) -> Tensor:
        qkv = self._linear(name + "wqkv", x).unflatten(-1, (3, self.vision["vt_num_attention_heads"], -1))
        q, k, v = qkv.unbind(1)  # (n, h, d)
        q, k = (_rotate(y, rotation) for y in (q, k))
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
        return self._linear(name + "wo", out.flatten(1))

    def _vision_norm(self, name: str, x: Tensor) -> Tensor:
        """PyTorch's default epsilon, that of the dtype, as vLLM has it."""
        return F.rms_norm(x, x.shape[-1:], self.tensors[name + ".weight"])

    # What both parts use.

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.tensors[name + ".weight"].T

    def _norm(self, name: str, x: Tensor, eps: float | None = None) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.tensors[name + ".weight"], eps or self.text["rms_norm_eps"])


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Neighbouring channels as the parts of a complex number, turned by their angle."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation[:, None]).flatten(-2).to(x.dtype)
