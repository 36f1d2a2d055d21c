"""Pixels of a decoded picture or frame, resized and without transparency (docs/format.md#picture-pixels)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from media.board import lay_on_board
from media.config import MediaConfig
from media.navit import Size


def render(image: Image.Image, size: Size, config: MediaConfig) -> NDArray[np.uint8]:
    """Resize in the picture's own mode and lay what is transparent on the chessboard
    (docs/format.md#picture-pixels).

    Returns (size.height, size.width, 3) uint8, possibly read-only. Raises what Pillow raises.
    """
    if config.fill_stage == "before_resize" and _is_transparent(image):
        image = Image.fromarray(_composed(image, config))
    if image.size != (size.width, size.height):
        # Pillow takes NEAREST for palette and 1-bit pictures by itself.
        image = image.resize((size.width, size.height), Image.Resampling.BICUBIC)
    if _is_transparent(image):
        return _composed(image, config)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _is_transparent(image: Image.Image) -> bool:
    return "A" in image.getbands() or "transparency" in image.info


def _composed(image: Image.Image, config: MediaConfig) -> NDArray[np.uint8]:
    rgba = image if image.mode == "RGBA" else image.convert("RGBA")
    if rgba.getchannel("A").getextrema() == (255, 255):  # nothing of the board would be seen
        return np.asarray(rgba.convert("RGB"))
    return lay_on_board(np.asarray(rgba), config.board)
