"""From a rendered prompt to vLLM's engine input: no template, tokenizer or processor of vLLM is involved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import BatchFeature
from vllm.inputs.engine import mm_input, tokens_input
from vllm.multimodal.inputs import (
    MultiModalFieldConfig,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)

from engine.types import EnginePrompt
from media.types import MediaItem

if TYPE_CHECKING:
    from collections.abc import Sequence

# vLLM knows one K3 modality; a chunk of video frames is an item of it whose grid has t > 1.
MODALITY = "image"


def kwargs_item(item: MediaItem) -> MultiModalKwargsItem:
    """The tensors that K3's vision tower takes: `pixel_values` (t*h*w, 3, 14, 14) uint8, which the model
    normalises on its device, and `grid_thws` (3,). Fields as in vLLM's KimiK3MultiModalProcessor."""
    n_patches = len(item.patches)
    fields = {
        "pixel_values": MultiModalFieldConfig.flat_from_sizes(MODALITY, torch.tensor([n_patches])),
        "grid_thws": MultiModalFieldConfig.batched(MODALITY, keep_on_cpu=True),
    }
    tensors = BatchFeature({"pixel_values": _tensor(item.patches), "grid_thws": torch.tensor([item.grid])})
    return MultiModalKwargsItems.from_hf_inputs(tensors, fields)[MODALITY][0]


def engine_input(prompt: EnginePrompt, items: Sequence[MultiModalKwargsItem | None]) -> Any:
    """`items[i]` is the data of `prompt.media[i]`, None where the engine has it under its identity."""
    ids = list(prompt.ids)
    if not prompt.media:
        return tokens_input(ids, cache_salt=prompt.cache_salt)
    return mm_input(
        ids,
        mm_kwargs=MultiModalKwargsItems({MODALITY: list(items)}),
        mm_hashes={MODALITY: [placed.item.identity for placed in prompt.media]},
        mm_placeholders={
            MODALITY: [
                PlaceholderRange(offset=placed.offset, length=placed.item.n_tokens) for placed in prompt.media
            ]
        },
        cache_salt=prompt.cache_salt,
    )


def _tensor(patches: Any) -> torch.Tensor:
    # Shared arrays of the media cache are read-only; torch only reads them, but warns.
    return torch.from_numpy(patches if patches.flags.writeable else patches.copy())
