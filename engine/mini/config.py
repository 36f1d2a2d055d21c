"""Sizes of the mini K3 and its checkpoint's JSON files, under the real keys.

See docs/concepts/model.md#config.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.mini.vocabulary import N_SLOTS, special_id


@dataclass(frozen=True, slots=True)
class MiniConfig:
    """Every size that may differ from the real K3; what is not here is as in the real one.

    `kv_lora_rank` and `qk_rope_head_dim` are at real size because vLLM's CPU kernel for MLA decoding exists
    for 512 + 64 only (docs/concepts/engine.md#on-a-cpu). Layer numbers count from 1, as in config.json.
    """

    n_ranks: int = 3840
    hidden_size: int = 256
    n_layers: int = 6
    full_attn_layers: tuple[int, ...] = (3, 6)
    attn_res_block_size: int = 3
    dense_intermediate_size: int = 768

    kda_heads: int = 4
    kda_head_dim: int = 64
    conv_size: int = 4
    gate_lower_bound: float = -5.0

    mla_heads: int = 4
    q_lora_rank: int = 128
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 64
    qk_rope_head_dim: int = 64
    v_head_dim: int = 64

    n_experts: int = 8
    n_active_experts: int = 2
    n_shared_experts: int = 2
    expert_hidden_size: int = 128
    expert_intermediate_size: int = 192

    max_positions: int = 32768

    vit_layers: int = 4
    vit_hidden_size: int = 192
    vit_intermediate_size: int = 512
    vit_heads: int = 3
    vit_qkv_size: int = 192
    vit_pos_emb_side: int = 16
    vit_pos_emb_time: int = 4

    @property
    def vocab_size(self) -> int:
        return self.n_ranks + N_SLOTS

    @property
    def kda_layers(self) -> tuple[int, ...]:
        return tuple(n for n in range(1, self.n_layers + 1) if n not in self.full_attn_layers)

    def to_json(self) -> dict[str, Any]:
        """The content of config.json."""
        ids = {
            "bos_token_id": special_id("[BOS]", self.n_ranks),
            "eos_token_id": special_id("<|end_of_msg|>", self.n_ranks),
            "pad_token_id": special_id("[PAD]", self.n_ranks),
        }
        return {
            "architectures": ["KimiK3ForConditionalGeneration"],
            "model_type": "kimi_k3",
            "dtype": "bfloat16",
            **ids,
            "media_placeholder_token_id": special_id("<|media_pad|>", self.n_ranks),
            "image_placeholder": "<|kimi_image_placeholder|>",
            "tie_word_embeddings": False,
            "text_config": {**self._text(), **ids},
            "vision_config": self._vision(),
        }

    def _text(self) -> dict[str, Any]:
        return {
            "architectures": ["KimiLinearForCausalLM"],
            "model_type": "kimi_linear",
            "dtype": "bfloat16",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.n_layers,
            "intermediate_size": self.dense_intermediate_size,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "num_attention_heads": self.mla_heads,
            "num_key_value_heads": self.mla_heads,
            "hidden_act": "situ",
            "activation_situ_beta": 4.0,
            "activation_situ_linear_beta": 25.0,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": self.max_positions,
            "kv_lora_rank": self.kv_lora_rank,
            "q_lora_rank": self.q_lora_rank,
            "qk_nope_head_dim": self.qk_nope_head_dim,
            "qk_rope_head_dim": self.qk_rope_head_dim,
            "v_head_dim": self.v_head_dim,
            "mla_use_nope": True,
            "mla_use_output_gate": True,
            "num_experts": self.n_experts,
            "num_experts_per_token": self.n_active_experts,
            "num_shared_experts": self.n_shared_experts,
            "moe_intermediate_size": self.expert_intermediate_size,
            "routed_expert_hidden_size": self.expert_hidden_size,
            "latent_moe_use_norm": True,
            "moe_router_activation_func": "sigmoid",
            "topk_method": "noaux_tc",
            "use_grouped_topk": True,
            "num_expert_group": 1,
            "topk_group": 1,
            "moe_renormalize": True,
            "routed_scaling_factor": 1.0,
            "attn_res_block_size": self.attn_res_block_size,
            "num_nextn_predict_layers": 0,
            "linear_attn_config": {
                "num_heads": self.kda_heads,
                "head_dim": self.kda_head_dim,
                "short_conv_kernel_size": self.conv_size,
                "use_full_rank_gate": True,
                "gate_lower_bound": self.gate_lower_bound,
                "kda_layers": list(self.kda_layers),
                "full_attn_layers": list(self.full_attn_layers),
            },
            "tie_word_embeddings": False,
        }

    def _vision(self) -> dict[str, Any]:
        return {
            "model_type": "moonvit3d",
            "vt_num_hidden_layers": self.vit_layers,
            "vt_hidden_size": self.vit_hidden_size,
            "vt_intermediate_size": self.vit_intermediate_size,
            "vt_num_attention_heads": self.vit_heads,
            "qkv_hidden_size": self.vit_qkv_size,
            "patch_size": 14,
            "merge_kernel_size": [2, 2],
            "merge_type": "sd2_tpool",
            "video_attn_type": "spatial_temporal",
            "mm_projector_type": "patchmergerv2",
            "init_pos_emb_height": self.vit_pos_emb_side,
            "init_pos_emb_width": self.vit_pos_emb_side,
            "init_pos_emb_time": self.vit_pos_emb_time,
            "pos_emb_type": "divided_fixed",
            "pos_emb_interpolation_mode": "bilinear",
            "norm_type": "rmsnorm",
            "mlp_type": "mlp2",
            "activation_func": "gelu_pytorch_tanh",
            "attn_bias": False,
            "linear_bias": False,
            "patch_embed_proj_bias": False,
            "mm_hidden_size": self.vit_hidden_size,
            "projector_hidden_act": "gelu",
            "projector_ln_eps": 1e-5,
            "text_hidden_size": self.hidden_size,
        }


MEDIA_PROC_CFG: dict[str, Any] = {
    "in_patch_limit": 65536,
    "patch_size": 14,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "merge_kernel_size": 2,
    "fixed_output_tokens": None,
    "patch_limit_on_one_side": 512,
    "in_patch_limit_each_frame": 16384,
    "in_patch_limit_video": 655360,
    "sample_fps": 8.0,
    "max_num_frames_each_video": None,
    "temporal_merge_kernel_size": 4,
    "timestamp_mode": "hh:mm:ss.fff",
    "transparent_bg_config": {
        "pattern": "chessboard",
        "chessboard_square_size": 8,
        "chessboard_square_on_top_left": True,
        "chessboard_white_value": 255,
        "chessboard_gray_value": 180,
    },
    "transparent_bg_fill_stage": "after_resize",
    "config_type": "media_proc.processors.moonvit.MoonViTMediaProcessorConfig",
}
"""The shipped preprocessing settings (docs/format.md#media-settings)."""


def preprocessor_json() -> dict[str, Any]:
    """The content of preprocessor_config.json."""
    return {"image_processor_type": "KimiK3VisionProcessor", "media_proc_cfg": MEDIA_PROC_CFG}


def generation_json(config: MiniConfig) -> dict[str, Any]:
    """The content of generation_config.json."""
    return {"eos_token_id": special_id("<|end_of_msg|>", config.n_ranks)}
