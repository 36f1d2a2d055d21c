"""Draws shapes: soft-edged, of twelve colours, on a background or on nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.mini.skills.base import Source
from engine.mini.words import WORDS

COLORS = WORDS["color"]
SHAPES = WORDS["shape"]
PLACES = (
    "top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right",
)  # fmt: skip
TRANSPARENT = "transparent"
BACKGROUNDS = (*COLORS, TRANSPARENT)

_RGB = {
    "red": (225, 30, 30),
    "green": (30, 160, 50),
    "blue": (35, 60, 225),
    "yellow": (245, 225, 40),
    "orange": (250, 140, 20),
    "purple": (130, 40, 170),
    "white": (252, 252, 252),
    "black": (10, 10, 10),
    "gray": (128, 128, 128),
    "pink": (250, 150, 190),
    "brown": (120, 70, 30),
    "cyan": (60, 215, 225),
}

Rgb = tuple[int, int, int]


@dataclass(frozen=True)
class Shape:
    """x, y: center in pixels; radius in pixels"""

    shape: str
    color: str
    rgb: Rgb
    x: float
    y: float
    radius: float


def shade(source: Source, color: str) -> Rgb:
    """A tone of the colour that still deserves its name."""
    r, g, b = (int(np.clip(c + source.random.randint(-12, 12), 0, 255)) for c in _RGB[color])
    return r, g, b


def held_out_pair(color: str, shape: str) -> bool:
    """One shape of every colour is never trained with it."""
    return SHAPES[(COLORS.index(color) * 5 + 3) % len(SHAPES)] == shape


def look(source: Source, background: str) -> tuple[str, str]:
    """A (colour, shape) that can be seen on the background; in training no held-out pair."""
    hidden = {background} | ({"white", "gray"} if background == TRANSPARENT else set())
    while True:
        color, shape = source.pick(COLORS), source.pick(SHAPES)
        if color not in hidden and (source.held_out or not held_out_pair(color, shape)):
            return color, shape


def draw(width: int, height: int, background: Rgb | None, shapes: Sequence[Shape]) -> NDArray[np.uint8]:
    """(height, width, 3) uint8, or 4 channels when `background` is None."""
    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = background or (0, 0, 0)
    alpha = np.zeros((height, width), np.float32)
    for item in shapes:
        x0, x1 = max(int(item.x - item.radius) - 2, 0), min(int(item.x + item.radius) + 3, width)
        y0, y1 = max(int(item.y - item.radius) - 2, 0), min(int(item.y + item.radius) + 3, height)
        if x0 >= x1 or y0 >= y1:
            continue
        u = (np.arange(x0, x1, dtype=np.float32) - item.x)[None, :] / item.radius
        v = (np.arange(y0, y1, dtype=np.float32) - item.y)[:, None] / item.radius
        inside = np.clip(_depth(item.shape, u, v) * item.radius + 0.5, 0, 1)
        part = canvas[y0:y1, x0:x1]
        part += inside[..., None] * (np.array(item.rgb, np.float32) - part)
        if background is None:
            part[inside > 0] = item.rgb
        alpha[y0:y1, x0:x1] = np.maximum(alpha[y0:y1, x0:x1], inside)
    pixels = canvas.astype(np.uint8)
    if background is None:
        return np.dstack([pixels, (alpha * 255).astype(np.uint8)])
    return pixels


def _depth(shape: str, u: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """How far inside the shape a point is, in radii; negative outside."""
    if shape == "circle":
        return 0.95 - np.hypot(u, v)
    if shape == "square":
        return 0.8 - np.maximum(abs(u), abs(v))
    if shape == "triangle":
        return np.minimum(0.7 - v, (v + 0.95 - 1.8 * abs(u)) / 2.06)
    if shape == "diamond":
        return (0.98 - abs(u) * 1.3 - abs(v)) / 1.64
    if shape == "cross":
        upright = np.minimum(0.27 - abs(u), 0.95 - abs(v))
        return np.maximum(upright, np.minimum(0.27 - abs(v), 0.95 - abs(u)))
    if shape == "bar":
        return np.minimum(0.98 - abs(u), 0.27 - abs(v))
    if shape == "ring":
        return 0.2 - abs(np.hypot(u, v) - 0.75)
    # A star: five tips, the edge between tip and notch about straight.
    turn = np.arctan2(u, -v) / (2 * np.pi) * 5
    from_tip = abs(turn - np.round(turn)) * 2
    return (1.0 - 0.62 * from_tip**0.8 - np.hypot(u, v)) * 0.7


@lru_cache(maxsize=64)
def _noise(seed: int, height: int, width: int, channels: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((height, width, channels), np.float32)


def grain(source: Source, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Sometimes a little noise, as compression and cameras leave."""
    if pixels.shape[2] == 4 or not source.chance(0.4):
        return pixels
    noise = _noise(source.random.randrange(8), *pixels.shape) * source.random.uniform(1, 7)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)
