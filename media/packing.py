"""Prepared media as a small header and one run of bytes: for the way between processes and for the disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from media.navit import PATCH
from media.types import Chunk, Clip, MediaItem, Picture

_PATCH_BYTES = 3 * PATCH * PATCH


def pack(media: Picture | Clip) -> tuple[dict[str, Any], list[NDArray[np.uint8]]]:
    """A header that JSON can hold, and the patches of each item, to be stored one after the other."""
    if isinstance(media, Picture):
        header = {
            "width": media.width,
            "height": media.height,
            "notes": list(media.notes),
            "items": [_item_header(media.item)],
        }
        return header, [media.item.patches]
    header = {
        "width": media.width,
        "height": media.height,
        "duration": media.duration,
        "frame_times": list(media.frame_times),
        "notes": list(media.notes),
        "timestamps": [chunk.timestamp for chunk in media.chunks],
        "items": [_item_header(chunk.item) for chunk in media.chunks],
    }
    return header, [chunk.item.patches for chunk in media.chunks]


def unpack(header: dict[str, Any], buffer: Any) -> Picture | Clip:
    """The inverse of `pack`. Patches are views of `buffer`. Raises ValueError, KeyError or TypeError."""
    items = _items(header["items"], buffer)
    width, height = int(header["width"]), int(header["height"])
    notes = tuple(str(note) for note in header["notes"])
    if "timestamps" not in header:
        (item,) = items
        return Picture(width, height, item, notes)
    chunks = tuple(Chunk(str(t), item) for t, item in zip(header["timestamps"], items, strict=True))
    times = tuple(float(seconds) for seconds in header["frame_times"])
    return Clip(width, height, float(header["duration"]), times, chunks, notes)


def n_bytes(media: Picture | Clip) -> int:
    """Memory that the patches take."""
    return sum(item.patches.nbytes for item in items_of(media))


def items_of(media: Picture | Clip) -> list[MediaItem]:
    return [media.item] if isinstance(media, Picture) else [chunk.item for chunk in media.chunks]


def _item_header(item: MediaItem) -> dict[str, Any]:
    return {"grid": list(item.grid), "identity": item.identity}


def _items(headers: Sequence[dict[str, Any]], buffer: Any) -> list[MediaItem]:
    flat = np.frombuffer(buffer, np.uint8)
    items = []
    start = 0
    for header in headers:
        t, h, w = (int(n) for n in header["grid"])
        end = start + t * h * w * _PATCH_BYTES
        if min(t, h, w) < 1 or end > len(flat):
            raise ValueError("packed media are shorter than their header says")
        patches = flat[start:end].reshape(t * h * w, 3, PATCH, PATCH)
        items.append(MediaItem(patches, (t, h, w), str(header["identity"])))
        start = end
    if start != len(flat):
        raise ValueError("packed media are longer than their header says")
    return items
