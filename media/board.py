"""Transparent pictures on the chessboard that K3 was trained with (docs/format.md#picture-pixels)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from media.config import Board

STRIP_LINES = 64  # lines composed at a time, so that the float values stay in the processor's cache


def lay_on_board(rgba: NDArray[np.uint8], board: Board) -> NDArray[np.uint8]:
    """Compose over the chessboard: a * rgb + (1 - a) * board in float32 with a = alpha / 255, truncated.

    rgba: (height, width, 4) uint8 -> (height, width, 3) uint8. The board starts at the top-left corner.
    """
    height, width = rgba.shape[:2]
    out = np.empty((height, width, 3), np.uint8)
    columns = np.arange(width) // board.square
    for top in range(0, height, STRIP_LINES):
        strip = rgba[top : top + STRIP_LINES]
        lines = np.arange(top, top + len(strip)) // board.square
        on_first = (lines[:, None] + columns) % 2 == 0
        squares = np.where(on_first == board.white_first, board.white, board.gray).astype(np.float32)
        alpha = strip[:, :, 3:].astype(np.float32) / np.float32(255)
        values = alpha * strip[:, :, :3]
        values += (1 - alpha) * squares[:, :, None]
        out[top : top + len(strip)] = values  # the cast truncates
    return out
