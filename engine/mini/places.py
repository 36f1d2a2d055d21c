"""The vision tower's position table at every grid of training, as one matrix."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_SIDE = 8
"""In tokens: media of training have at most 16 x 16 image patches a frame."""


def interpolation(side: int) -> Tensor:
    """(places, side * side) bilinear weights that turn the table into all grids, one after another."""
    cells = torch.eye(side * side).view(side * side, 1, side, side)
    grids = [
        F.interpolate(cells, size=(2 * h, 2 * w), mode="bilinear").flatten(1).T
        for h in range(1, MAX_SIDE + 1)
        for w in range(1, MAX_SIDE + 1)
    ]
    return torch.cat(grids)


def first_place(grid_h: int, grid_w: int) -> int:
    """The row of `interpolation` at which a grid of image patches begins. Raises ValueError if too large."""
    h, w = grid_h // 2, grid_w // 2
    if not (1 <= h <= MAX_SIDE and 1 <= w <= MAX_SIDE):
        raise ValueError(f"a grid of {grid_h}x{grid_w} image patches is larger than training handles")
    return 4 * (math.comb(h, 2) * math.comb(MAX_SIDE + 1, 2) + h * math.comb(w, 2))
