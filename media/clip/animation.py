"""Pictures that move, as clips: GIF, WebP and PNG. Times from the file's headers, pixels by Pillow.

What no frame has drawn on, or a frame's disposal has cleared, is transparent, as browsers show it; background
colours that a file names are ignored.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from media.formats import ClipKind
from media.gif import GifFrame, gif_canvas, gif_frames
from media.png import chunks, cleaned
from media.types import MediaError
from media.webp import webp_canvas, webp_durations, with_alpha_flag

ANIMATIONS: dict[ClipKind, str] = {"gif": "GIF", "webp": "WEBP", "apng": "PNG"}

# Browsers take shorter times for a mistake, or for "as fast as possible", and show 100 ms.
_SHORTEST, _INSTEAD = Fraction(11, 1000), Fraction(1, 10)
_CLEARED, _RESTORED = 2, 3  # disposals of GIF
_APNG_DELAY = struct.Struct(">HH")


@dataclass(frozen=True, slots=True)
class Animation:
    """What the headers say.

    width, height: of the canvas, pixels
    durations:     seconds that each frame is shown, in order
    """

    width: int
    height: int
    durations: tuple[Fraction, ...]


def read_animation(data: bytes, kind: ClipKind, *, max_frames: int) -> Animation:
    """Raises MediaError: more than `max_frames`, or no frame at all."""
    read = {"gif": _gif_header, "webp": _webp_header, "apng": _apng_header}[kind]
    size, times = read(data)
    durations = []
    for seconds in times:
        durations.append(seconds if seconds >= _SHORTEST else _INSTEAD)
        if len(durations) > max_frames:
            raise MediaError(f"the clip has more than {max_frames} frames, which is the limit")
    if not durations:
        raise MediaError("the clip is damaged: none of its frames can be found")
    return Animation(*size, tuple(durations))


def animation_frames(data: bytes, kind: ClipKind, *, max_pixels: int) -> Iterator[Image.Image]:
    """The frames as they are shown, RGB or RGBA, each of the canvas's size; raises what Pillow raises.

    max_pixels: a frame that has more raises MediaError
    """
    return _composed_gif(data, max_pixels) if kind == "gif" else _by_pillow(data, kind)


def _by_pillow(data: bytes, kind: ClipKind) -> Iterator[Image.Image]:
    whole = cleaned(data) if kind == "apng" else with_alpha_flag(data)
    with Image.open(io.BytesIO(whole), formats=[ANIMATIONS[kind]]) as image:
        # A PNG may begin with a picture for those who cannot show the animation.
        first = 1 if getattr(image, "default_image", False) else 0
        for number in range(first, getattr(image, "n_frames", 1)):
            image.seek(number)
            frame = image.convert("RGBA")
            is_opaque = frame.getchannel("A").getextrema() == (255, 255)
            yield frame.convert("RGB") if is_opaque else frame


def _composed_gif(data: bytes, max_pixels: int) -> Iterator[Image.Image]:
    width, height = gif_canvas(data)
    canvas = np.zeros((height, width, 4), np.uint8)
    for frame in gif_frames(data):
        if frame.size[0] * frame.size[1] > max_pixels:
            raise MediaError("a frame is larger than the canvas")
        area = canvas[frame.box[1] : frame.box[3], frame.box[0] : frame.box[2]]
        before = area.copy() if frame.disposal == _RESTORED else None
        if area.size:
            _draw(frame, area)
        yield Image.fromarray(canvas.copy())
        if frame.disposal == _CLEARED:
            area[...] = 0
        elif before is not None:
            area[...] = before


def _draw(frame: GifFrame, area: NDArray[np.uint8]) -> None:
    """Decode a frame, alone on a canvas of its own size, and lay it on `area`, its box on the canvas."""
    (width, height), has_palette = frame.size, bool(frame.palette)
    n_colours = len(frame.palette) // 3
    flags = 0x80 | (n_colours.bit_length() - 2) if has_palette else 0
    file = b"".join(
        [
            b"GIF89a",
            struct.pack("<2H3B", width, height, flags, 0, 0),
            frame.palette,
            struct.pack("<B4HB", 0x2C, 0, 0, width, height, frame.flags & 0x40),
            frame.data,
            b";",
        ]
    )
    with Image.open(io.BytesIO(file), formats=["GIF"]) as image:
        indices = np.asarray(image)[: area.shape[0], : area.shape[1]]
    palette = np.zeros((256, 4), np.uint8)
    palette[:n_colours, :3] = np.frombuffer(frame.palette, np.uint8).reshape(-1, 3)
    palette[:, 3] = 255
    if not has_palette:
        palette[:, :3] = np.arange(256)[:, None]
    if frame.transparent is None:
        area[...] = palette[indices]
        return
    seen = indices != frame.transparent
    area[seen] = palette[indices[seen]]


def _gif_header(data: bytes) -> tuple[tuple[int, int], Iterator[Fraction]]:
    return gif_canvas(data), (Fraction(frame.delay, 100) for frame in gif_frames(data))


def _webp_header(data: bytes) -> tuple[tuple[int, int], Iterator[Fraction]]:
    return webp_canvas(data), (Fraction(milliseconds, 1000) for milliseconds in webp_durations(data))


def _apng_header(data: bytes) -> tuple[tuple[int, int], Iterator[Fraction]]:
    width, height = struct.unpack_from(">II", data, 16)
    return (width, height), _apng_times(data)


def _apng_times(data: bytes) -> Iterator[Fraction]:
    """Of frames whose pixel data has begun; a divisor of 0 stands for 100."""
    pending = None
    for chunk in chunks(data):
        if chunk.kind == b"fcTL" and len(chunk.body) >= 26:
            shown, parts = _APNG_DELAY.unpack_from(chunk.body, 20)
            pending = Fraction(shown, parts or 100)
        elif chunk.kind in (b"IDAT", b"fdAT") and pending is not None:
            yield pending
            pending = None


def clock_of(durations: tuple[Fraction, ...]) -> Fraction:
    """A time base in which all times are whole, or microseconds where that would be absurdly fine."""
    ticks = math.lcm(*(seconds.denominator for seconds in durations))
    return Fraction(1, ticks if ticks <= 10**9 else 10**6)
