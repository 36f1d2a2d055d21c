"""Writes a mini K3 checkpoint: real file names, tensor names, shapes and dtypes.

See docs/concepts/model.md#tensors.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.mini.config import MiniConfig, generation_json, preprocessor_json
from engine.mini.vocabulary import RANKS_FILE, tokenizer_json

_FLOAT32 = ("_conv1d.weight", ".A_log", ".dt_bias", ".o_norm.weight", ".e_score_correction_bias")
"""Tensors that the real checkpoint keeps in F32; all others are BF16."""


def tensor_shapes(config: MiniConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor, in a fixed order."""
    c = config
    shapes: dict[str, tuple[int, ...]] = {
        "language_model.model.embed_tokens.weight": (c.vocab_size, c.hidden_size)
    }
    for index in range(c.n_layers):
        prefix = f"language_model.model.layers.{index}."
        attention = _mla_shapes(c) if index + 1 in c.full_attn_layers else _kda_shapes(c)
        shapes |= {f"{prefix}self_attn.{name}": shape for name, shape in attention.items()}
        mlp = _mlp_shapes("mlp.", c.hidden_size, c.dense_intermediate_size) if index == 0 else _moe_shapes(c)
        shapes |= {prefix + name: shape for name, shape in mlp.items()}
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "self_attention_res_norm",
            "mlp_res_norm",
        ):
            shapes[f"{prefix}{name}.weight"] = (c.hidden_size,)
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            shapes[f"{prefix}{name}.weight"] = (1, c.hidden_size)
    shapes |= {
        "language_model.model.output_attn_res_norm.weight": (c.hidden_size,),
        "language_model.model.output_attn_res_proj.weight": (1, c.hidden_size),
        "language_model.model.norm.weight": (c.hidden_size,),
        "language_model.lm_head.weight": (c.vocab_size, c.hidden_size),
    }
    return shapes | _vision_shapes(c)


def _kda_shapes(c: MiniConfig) -> dict[str, tuple[int, ...]]:
    inner = c.kda_heads * c.kda_head_dim
    return {
        **{f"{name}_proj.weight": (inner, c.hidden_size) for name in "qkvg"},
        **{f"{name}_conv1d.weight": (inner, 1, c.conv_size) for name in "qkv"},
        "f_a_proj.weight": (c.kda_head_dim, c.hidden_size),
        "f_b_proj.weight": (inner, c.kda_head_dim),
        "b_proj.weight": (c.kda_heads, c.hidden_size),
        "A_log": (c.kda_head_dim,),  # padded: only the first `kda_heads` are used
        "dt_bias": (inner,),
        "o_norm.weight": (c.kda_head_dim,),
        "o_proj.weight": (c.hidden_size, inner),
    }


def _mla_shapes(c: MiniConfig) -> dict[str, tuple[int, ...]]:
    heads, values = c.mla_heads, c.mla_heads * c.v_head_dim
    return {
        "q_a_proj.weight": (c.q_lora_rank, c.hidden_size),
        "q_a_layernorm.weight": (c.q_lora_rank,),
        "q_b_proj.weight": (heads * (c.qk_nope_head_dim + c.qk_rope_head_dim), c.q_lora_rank),
        "kv_a_proj_with_mqa.weight": (c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size),
        "kv_a_layernorm.weight": (c.kv_lora_rank,),
        "kv_b_proj.weight": (heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank),
        "g_proj.weight": (values, c.hidden_size),
        "o_proj.weight": (c.hidden_size, values),
    }


def _mlp_shapes(prefix: str, hidden: int, intermediate: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}gate_proj.weight": (intermediate, hidden),
        f"{prefix}up_proj.weight": (intermediate, hidden),
        f"{prefix}down_proj.weight": (hidden, intermediate),
    }


def _moe_shapes(c: MiniConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "gate.weight": (c.n_experts, c.hidden_size),
        "gate.e_score_correction_bias": (c.n_experts,),
    }
    for expert in range(c.n_experts):
        shapes[f"experts.{expert}.w1.weight"] = (c.expert_intermediate_size, c.expert_hidden_size)
        shapes[f"experts.{expert}.w2.weight"] = (c.expert_hidden_size, c.expert_intermediate_size)
        shapes[f"experts.{expert}.w3.weight"] = (c.expert_intermediate_size, c.expert_hidden_size)
    shapes["routed_expert_down_proj.weight"] = (c.expert_hidden_size, c.hidden_size)
    shapes["routed_expert_norm.weight"] = (c.expert_hidden_size,)
    shapes["routed_expert_up_proj.weight"] = (c.hidden_size, c.expert_hidden_size)
    shared = c.expert_intermediate_size * c.n_shared_experts
    shapes |= _mlp_shapes("shared_experts.", c.hidden_size, shared)
    return {f"block_sparse_moe.{name}": shape for name, shape in shapes.items()}


def _vision_shapes(c: MiniConfig) -> dict[str, tuple[int, ...]]:
    width, merged = c.vit_hidden_size, 4 * c.vit_hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (width, 3, 14, 14),
        "patch_embed.pos_emb.weight": (c.vit_pos_emb_side, c.vit_pos_emb_side, width),
    }
    for block in range(c.vit_layers):
        prefix = f"encoder.blocks.{block}."
        shapes |= {
            f"{prefix}norm0.weight": (width,),
            f"{prefix}norm1.weight": (width,),
            f"{prefix}wqkv.weight": (3 * c.vit_qkv_size, width),
            f"{prefix}wo.weight": (width, c.vit_qkv_size),
            f"{prefix}mlp.fc0.weight": (c.vit_intermediate_size, width),
            f"{prefix}mlp.fc1.weight": (width, c.vit_intermediate_size),
        }
    shapes["encoder.final_layernorm.weight"] = (width,)
    return {
        **{f"vision_tower.{name}": shape for name, shape in shapes.items()},
        "mm_projector.proj.0.weight": (merged, merged),
        "mm_projector.proj.2.weight": (c.hidden_size, merged),
        "mm_projector.post_norm.weight": (c.hidden_size,),
    }


def tensor_dtype(name: str) -> torch.dtype:
    """The dtype in which the checkpoint stores a tensor."""
    return torch.float32 if name.endswith(_FLOAT32) else torch.bfloat16


def initial_tensors(config: MiniConfig, seed: int = 0) -> dict[str, Tensor]:
    """Untrained float32 tensors, the same for the same seed: where training starts.

    Matrices have standard deviation fan_in ** -0.5, those that write to the residual stream half of it.
    Attention residuals start as a plain mean (projection 0), the convolutions as nearly the identity, and
    the decay gates spread over memories of a few to a few thousand tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    return {name: _initial(name, shape, generator) for name, shape in tensor_shapes(config).items()}


def _initial(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if "norm" in name:
        return torch.ones(shape)
    if name.endswith(("res_proj.weight", ".A_log", ".e_score_correction_bias")):
        return torch.zeros(shape)
    if name.endswith(".dt_bias"):
        return torch.empty(shape).uniform_(-7.0, -1.0, generator=generator)
    noise = torch.randn(shape, generator=generator)
    if name.endswith("_conv1d.weight"):
        noise *= 0.2
        noise[..., -1] += 1.0
        return noise
    if name.endswith(("embed_tokens.weight", "pos_emb.weight")):
        return noise * 0.5
    if name.endswith("lm_head.weight"):
        return noise * 0.02
    scale = math.prod(shape[1:]) ** -0.5
    if name.endswith(
        ("o_proj.weight", "down_proj.weight", "w2.weight", "up_proj.weight", "wo.weight", "fc1.weight")
    ):
        scale *= 0.5
    return noise * scale


def write_checkpoint(folder: Path, config: MiniConfig, tensors: dict[str, Tensor]) -> None:
    """Writes all files of a checkpoint into `folder` (made if missing).

    Raises ValueError when the tensors are not exactly those of `tensor_shapes(config)`.
    """
    shapes = tensor_shapes(config)
    wrong = [name for name in shapes if name not in tensors or tuple(tensors[name].shape) != shapes[name]]
    if wrong or len(tensors) != len(shapes):
        raise ValueError(
            f"tensors do not fit the config: {(wrong or sorted(set(tensors) - set(shapes)))[:5]}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensors[name].to(tensor_dtype(name)).contiguous() for name in shapes}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    shutil.copyfile(RANKS_FILE, folder / "tiktoken.model")
    for name, content in {
        "config.json": config.to_json(),
        "tokenizer_config.json": tokenizer_json(config.n_ranks),
        "preprocessor_config.json": preprocessor_json(),
        "generation_config.json": generation_json(config),
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
