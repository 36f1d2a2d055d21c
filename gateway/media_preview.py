"""What the model sees of one file, for people: `POST /v1/media/preview` without HTTP."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from PIL import Image

from gateway.generation.media_prompts import media_items, media_prompt, shown_prompt
from media.config import MediaConfig
from media.navit import target_size
from media.picture import patch_limit_of
from media.preview import contact_sheet, token_grid
from media.sampling import frame_patch_limit
from media.types import Clip, Picture

# Bounds of the preview itself: a 2048x2048 PNG of noise has 12 MB.
MAX_SIDE = 1600  # pixels, of a picture
MAX_FRAMES = 96  # on a contact sheet


def preview_of(media: Picture | Clip, config: MediaConfig, detail: str) -> dict[str, Any]:
    """The fields of `schema.media.MediaPreview`. Blocking: draws and compresses a PNG."""
    return _clip(media, config) if isinstance(media, Clip) else _picture(media, config, detail)


def _picture(picture: Picture, config: MediaConfig, detail: str) -> dict[str, Any]:
    return {
        "kind": "image",
        **_sizes(picture, patch_limit_of(detail, config), config),
        "duration": None,
        "n_frames": 1,
        "inputs": _inputs(picture, [None]),
        "notes": list(picture.notes),
        "preview": _png_data_url(token_grid(picture.item, max_side=MAX_SIDE)),
    }


def _clip(clip: Clip, config: MediaConfig) -> dict[str, Any]:
    limit = frame_patch_limit(
        clip.n_frames, per_frame=config.frame_patch_limit, per_video=config.video_patch_limit
    )
    return {
        "kind": "video",
        **_sizes(clip, limit, config),
        "duration": clip.duration,
        "n_frames": clip.n_frames,
        "inputs": _inputs(clip, [chunk.timestamp for chunk in clip.chunks]),
        "notes": list(clip.notes),
        "preview": _png_data_url(contact_sheet(clip, MAX_FRAMES)),
    }


def _sizes(media: Picture | Clip, patch_limit: int, config: MediaConfig) -> dict[str, Any]:
    size = target_size(media.width, media.height, patch_limit=patch_limit, side_limit=config.side_limit)
    items = media_items(media)
    return {
        "width": media.width,
        "height": media.height,
        "resized": {"width": size.width, "height": size.height},
        "padded": {"width": size.padded_width, "height": size.padded_height},
        "n_patches": sum(len(item.patches) for item in items),
        "n_tokens": sum(item.n_tokens for item in items),
    }


def _inputs(media: Picture | Clip, timestamps: Sequence[str | None]) -> list[dict[str, Any]]:
    return [
        {
            "timestamp": stamp,
            "grid": item.grid,
            "n_tokens": item.n_tokens,
            "prompt": shown_prompt(span),
            "identity": item.identity,
        }
        for stamp, item, span in zip(timestamps, media_items(media), media_prompt(media).spans, strict=True)
    ]


def _png_data_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
