"""How a picture is prepared, written down plainly from docs/format.md#pictures; shares no code with `media`.

Slow on purpose: no strips, no shortcuts, the whole picture in float32. The fast path must equal it exactly.
"""

import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PATCH_LIMIT = 65_536
SIDE_LIMIT = 7_168


def resized(width: int, height: int, patch_limit: int = PATCH_LIMIT) -> tuple[int, int]:
    patches = max(1, width // 14) * max(1, height // 14)
    scale = min(1, math.sqrt(patch_limit / patches), SIDE_LIMIT / width, SIDE_LIMIT / height)
    return min(max(1, math.trunc(width * scale)), SIDE_LIMIT), min(
        max(1, math.trunc(height * scale)), SIDE_LIMIT
    )


def board_at(x: int, y: int) -> int:
    return 255 if (x // 8 + y // 8) % 2 == 0 else 180


def on_board(image: Image.Image) -> NDArray[np.uint8]:
    """(H, W, 3): float32 arithmetic, truncated."""
    rgba = np.asarray(image.convert("RGBA"))
    height, width = rgba.shape[:2]
    y, x = np.mgrid[0:height, 0:width]
    board = np.where((x // 8 + y // 8) % 2 == 0, 255, 180).astype(np.float32)[:, :, None]
    alpha = rgba[:, :, 3:4].astype(np.float32) / np.float32(255)
    return (alpha * rgba[:, :, :3].astype(np.float32) + (np.float32(1) - alpha) * board).astype(np.uint8)


def pixels(data: bytes, patch_limit: int = PATCH_LIMIT) -> NDArray[np.uint8]:
    """What the model sees before padding: (height, width, 3)."""
    image = Image.open(io.BytesIO(data))
    image.load()
    image = image.resize(resized(*image.size, patch_limit), Image.Resampling.BICUBIC)
    if "A" in image.mode or "transparency" in image.info:
        return on_board(image)
    return np.asarray(image.convert("RGB"))


def patches(data: bytes, patch_limit: int = PATCH_LIMIT) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """((patches, 3, 14, 14), (grid height, grid width))."""
    seen = pixels(data, patch_limit)
    height, width = seen.shape[:2]
    padded = np.pad(seen, ((0, -height % 28), (0, -width % 28), (0, 0)))
    rows, columns = padded.shape[0] // 14, padded.shape[1] // 14
    cut = padded.reshape(rows, 14, columns, 14, 3).transpose(0, 2, 4, 1, 3)
    return cut.reshape(rows * columns, 3, 14, 14), (rows, columns)
