"""KIMI_K3_VISION_DTYPE: a quantised K3 must survive a video chunk.

See docs/concepts/patches.md#kimi_k3_vision_dtype.
"""

from __future__ import annotations

from typing import Any

from patches.checkpoint import CheckpointFacts
from patches.patch import Finding, Part, Patch, wrap

SWITCH = "KIMI_K3_VISION_DTYPE"


def _position_class() -> Any:
    from vllm.model_executor.models.kimi_k25_vit import Learnable2DInterpPosEmbDivided_fixed

    return Learnable2DInterpPosEmbDivided_fixed


def position_embedding(dtype: Any) -> Any:
    """The vision tower's position embedding as a quantised model builds it: moved, but never cast."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return _position_class()(height=2, width=2, num_frames=4, dim=16)
    finally:
        torch.set_default_dtype(before)


def probe() -> Finding:
    import torch

    embedding = position_embedding(torch.bfloat16)
    with torch.no_grad():
        dtype = embedding(torch.zeros(8, 16, dtype=torch.bfloat16), [[2, 2, 2]]).dtype
    if dtype == torch.bfloat16:
        return Finding("fixed", "two frames through a bf16 vision tower's position embedding stay bf16")
    return Finding("defect", f"two frames through a bf16 vision tower's position embedding become {dtype}")


def apply() -> None:
    def make(original: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            # An unquantised model casts the whole tower, this buffer with it; the same value comes out.
            self.time_weight = self.time_weight.to(self.weight.dtype)

        return init

    wrap(_position_class(), "__init__", SWITCH, make)


def excuse(facts: CheckpointFacts | None) -> str | None:
    if facts is None:
        return None
    if not facts.has_vision:
        return "the checkpoint has no vision tower"
    if facts.quantization in (None, "compressed-tensors"):
        return f"vLLM casts the whole vision tower here (quantisation: {facts.quantization or 'none'})"
    return None


PATCH = Patch(
    name="vision-dtype",
    switch=SWITCH,
    fixes="A video chunk kills the engine of a quantised K3: float32 meets bfloat16 in the vision tower",
    fixed_since=None,
    parts=(Part("time-weight", probe, apply),),
    excuse=excuse,
)
