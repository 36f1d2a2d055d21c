"""Pictures for people of what the model sees: token grids and contact sheets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from media.formats import is_clip_format, is_moving_picture
from media.navit import MERGE, PATCH, from_patches
from media.sampling import timestamp
from media.types import Chunk, Clip, FileBytes, MediaItem

GRID_COLOUR = CHUNK_COLOUR = (255, 0, 128)
MAX_FRAMES_ON_SHEET = 480

_HEAD = 8 * 1024 * 1024  # bytes; the second frame of a GIF begins before them
_MAX_THUMBNAIL = 240  # pixels, the longer side
_MIN_THUMBNAIL_WIDTH = 84  # pixels; the time stamp fits
_CHUNKS_PER_ROW = 2
_BORDER, _GAP, _LABEL = 3, 4, 14  # pixels
_PAPER, _INK = (24, 24, 24), (235, 235, 235)


def is_clip(data: FileBytes) -> bool:
    """Whether a file is to be seen as a clip: any video, and pictures that move."""
    head = bytes(memoryview(data)[:_HEAD])
    return is_clip_format(head) or is_moving_picture(head)


def token_grid(item: MediaItem, frame: int = 0, max_side: int | None = None) -> Image.Image:
    """One frame of a vision input as a picture, with a line around each token's square of 28 pixels.

    max_side: pixels; a larger picture is shrunk to it, and the grid with it
    """
    (pixels,) = _frames(item, (frame,))
    _, grid_h, grid_w = item.grid
    image = Image.fromarray(pixels)
    if max_side is not None:
        image.thumbnail((max_side, max_side), Image.Resampling.BICUBIC)
    seen = np.array(image)
    rows, columns = grid_h // MERGE, grid_w // MERGE
    seen[np.arange(rows) * seen.shape[0] // rows] = GRID_COLOUR
    seen[:, np.arange(columns) * seen.shape[1] // columns] = GRID_COLOUR
    return Image.fromarray(seen)


def contact_sheet(clip: Clip, max_frames: int = MAX_FRAMES_ON_SHEET) -> Image.Image:
    """Frames as the model sees them, shrunk to fit, with the time of each; a border around each chunk.

    max_frames: of a longer clip whole chunks are left out, evenly
    """
    frames_per_chunk = clip.chunks[0].item.grid[0]
    shown = _evenly(len(clip.chunks), max(max_frames // frames_per_chunk, 1))
    width, height = _thumbnail_size(clip.chunks[0])
    cell_w, cell_h = width + _GAP, height + _LABEL + _GAP
    block_w, block_h = frames_per_chunk * cell_w + _GAP + 2 * _BORDER, cell_h + _GAP + 2 * _BORDER
    n_rows, n_columns = -(-len(shown) // _CHUNKS_PER_ROW), min(_CHUNKS_PER_ROW, len(shown))
    sheet = Image.new("RGB", (n_columns * (block_w + _GAP) + _GAP, n_rows * (block_h + _GAP) + _GAP), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for place, index in enumerate(shown):
        row, column = divmod(place, _CHUNKS_PER_ROW)
        left, top = _GAP + column * (block_w + _GAP), _GAP + row * (block_h + _GAP)
        corners = (left, top, left + block_w - 1, top + block_h - 1)
        draw.rectangle(corners, outline=CHUNK_COLOUR, width=_BORDER)
        item = clip.chunks[index].item
        for number, pixels in enumerate(_frames(item, range(item.grid[0]))):
            x, y = left + _BORDER + _GAP + number * cell_w, top + _BORDER + _GAP
            seconds = clip.frame_times[index * frames_per_chunk + number]
            draw.text((x, y), timestamp(seconds), fill=_INK, font=font)
            thumbnail = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
            sheet.paste(thumbnail, (x, y + _LABEL))
    return sheet


def _frames(item: MediaItem, which: Sequence[int]) -> Iterator[np.ndarray]:
    """Frames of a vision input with their padding, each (height, width, 3) uint8."""
    n_frames, grid_h, grid_w = item.grid
    patches = item.patches.reshape(n_frames, grid_h * grid_w, 3, PATCH, PATCH)
    return (from_patches(patches[number], grid_h, grid_w) for number in which)


def _evenly(n: int, at_most: int) -> list[int]:
    """All of range(n), or `at_most` of them from the first on, evenly."""
    count = min(n, at_most)
    return [i * n // count for i in range(count)]


def _thumbnail_size(chunk: Chunk) -> tuple[int, int]:
    _, grid_h, grid_w = chunk.item.grid
    width, height = grid_w * PATCH, grid_h * PATCH
    scale = min(1.0, _MAX_THUMBNAIL / max(width, height))
    return max(round(width * scale), _MIN_THUMBNAIL_WIDTH), max(round(height * scale), 1)
