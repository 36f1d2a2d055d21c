"""From pixels to image patches: the size a picture gets, and how it is cut (docs/format.md#picture-size)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Fixed by the vision tower's weights; MediaConfig.load refuses a checkpoint that says otherwise.
PATCH = 14
MERGE = 2

PATCH_LINE = np.dtype((np.void, PATCH * 3))  # one line of an image patch, pixels interleaved
STRIP_ROWS = 8  # rows of image patches that are cut at a time


@dataclass(frozen=True, slots=True)
class Size:
    """What a picture is resized to and padded to, in pixels; the grid is in image patches."""

    width: int
    height: int
    padded_width: int
    padded_height: int

    @property
    def grid_h(self) -> int:
        return self.padded_height // PATCH

    @property
    def grid_w(self) -> int:
        return self.padded_width // PATCH

    @property
    def n_patches(self) -> int:
        return self.grid_h * self.grid_w

    @property
    def n_tokens(self) -> int:
        return self.n_patches // MERGE**2


def target_size(width: int, height: int, *, patch_limit: int, side_limit: int) -> Size:
    """The size that a picture of `width` x `height` pixels is shown at; never larger than the original.

    patch_limit: image patches in all. It is soft: rounding and padding may exceed it a little
                 (docs/format.md#picture-size).
    side_limit:  image patches on one side.
    """
    if width < 1 or height < 1:
        raise ValueError(f"a picture of {width}x{height} pixels has no size")
    side_pixels = side_limit * PATCH
    n_whole_patches = max(1, width // PATCH) * max(1, height // PATCH)
    scale = min(1.0, math.sqrt(patch_limit / n_whole_patches), side_pixels / width, side_pixels / height)
    new_width = min(max(1, int(width * scale)), side_pixels)
    new_height = min(max(1, int(height * scale)), side_pixels)
    return Size(new_width, new_height, _padded(new_width), _padded(new_height))


def _padded(length: int) -> int:
    token_pixels = PATCH * MERGE
    return -(-length // token_pixels) * token_pixels


def to_patches(rgb: NDArray[np.uint8], size: Size, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """Pad with 0 at the right and bottom and cut into image patches, rows then columns
    (docs/format.md#picture-pixels).

    rgb: (size.height, size.width, 3) uint8
    out: where to write, (size.n_patches, 3, 14, 14) uint8, contiguous; new memory if None
    Returns `out`.
    """
    if rgb.shape != (size.height, size.width, 3):
        raise ValueError(f"pixels of shape {rgb.shape} do not fit {size.width}x{size.height}")
    if out is None:
        out = np.empty((size.n_patches, 3, PATCH, PATCH), np.uint8)
    # Two quick copies per strip, which stays in the processor's cache, instead of one copy byte by byte:
    # first whole patch lines (14 pixels) to their patch, then the channels apart.
    n_columns, n_rows = size.grid_w, STRIP_ROWS
    strip = np.zeros((n_rows * PATCH, size.padded_width * 3), np.uint8)
    lines = strip.view(PATCH_LINE).reshape(n_rows, PATCH, n_columns)
    by_patch = np.empty((n_rows, n_columns, PATCH), PATCH_LINE)
    channels = by_patch.view(np.uint8).reshape(n_rows, n_columns, PATCH * PATCH, 3).transpose(0, 1, 3, 2)
    target = out.reshape(size.grid_h, n_columns, 3, PATCH * PATCH)
    pixels = rgb.reshape(size.height, size.width * 3)
    for row in range(0, size.grid_h, n_rows):
        source = pixels[row * PATCH : (row + n_rows) * PATCH]
        strip[: len(source), : size.width * 3] = source
        strip[len(source) :] = 0
        by_patch[...] = lines.transpose(0, 2, 1)
        target[row : row + n_rows] = channels[: size.grid_h - row]
    return out


def from_patches(patches: NDArray[np.uint8], grid_h: int, grid_w: int) -> NDArray[np.uint8]:
    """The padded picture that `to_patches` cut up: (grid_h * 14, grid_w * 14, 3) uint8."""
    squares = patches.reshape(grid_h, grid_w, 3, PATCH, PATCH)
    return np.ascontiguousarray(squares.transpose(0, 3, 1, 4, 2)).reshape(grid_h * PATCH, grid_w * PATCH, 3)
