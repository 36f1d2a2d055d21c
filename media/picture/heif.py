"""Size and crop of the picture in an AVIF or HEIC file, from its boxes (ISO/IEC 23008-12)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from media.boxes import boxes, inside

Box = tuple[int, int, int, int]

_META_HEADER = 4  # version and flags, before the boxes inside
_MAX_PROPERTIES = 4096


@dataclass(frozen=True, slots=True)
class HeifFacts:
    """What is known of the primary picture.

    size: (width, height) as coded, before the crop and any turn
    crop: (left, top, right, bottom) in it
    """

    size: tuple[int, int] | None = None
    crop: Box | None = None


def heif_facts(data: bytes) -> HeifFacts:
    """What the properties of the primary picture say; nothing where they cannot be read."""
    for meta in inside(memoryview(data), b"meta"):
        body = meta[_META_HEADER:]
        properties = dict(_primary_properties(body))
        size = _size(properties.get(b"ispe"))
        return HeifFacts(size, _crop(properties.get(b"clap"), size))
    return HeifFacts()


def _primary_properties(meta: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """(type, body) of each property that belongs to the primary item; the last of a type counts."""
    primary = next(
        (_number(body[4:8] if body[0] else body[4:6]) for body in inside(meta, b"pitm") if body), None
    )
    stored = [
        (kind, body)
        for container in inside(meta, b"iprp", b"ipco")
        for (kind, body, _), _ in zip(boxes(container), range(_MAX_PROPERTIES), strict=False)
    ]
    for association in inside(meta, b"iprp", b"ipma"):
        for item, index in _associations(association):
            if item == primary and 0 < index <= len(stored):
                yield stored[index - 1]


def _associations(body: memoryview) -> Iterator[tuple[int, int]]:
    """(item, number of its property, from 1)."""
    if len(body) < 8:
        return
    item_bytes = 4 if body[0] else 2
    index_bytes = 2 if body[3] & 1 else 1
    at = 8
    while at + item_bytes < len(body):
        item, count = _number(body[at : at + item_bytes]), body[at + item_bytes]
        at += item_bytes + 1
        for _ in range(count):
            yield item, _number(body[at : at + index_bytes]) & (0x7FFF if index_bytes == 2 else 0x7F)
            at += index_bytes


def _number(field: memoryview) -> int:
    return int.from_bytes(field, "big")


def _size(ispe: memoryview | None) -> tuple[int, int] | None:
    return None if ispe is None or len(ispe) < 12 else (_number(ispe[4:8]), _number(ispe[8:12]))


def _crop(clap: memoryview | None, size: tuple[int, int] | None) -> Box | None:
    """The clean aperture in whole pixels; None where there is none that lies in the picture."""
    if clap is None or size is None or len(clap) < 32:
        return None
    numbers = struct.unpack(">IIIIiIiI", clap[:32])
    if not all(numbers[1::2]):
        return None
    width, height, right_by, down_by = (
        Fraction(n, d) for n, d in zip(numbers[::2], numbers[1::2], strict=True)
    )
    left = (size[0] - width) / 2 + right_by
    top = (size[1] - height) / 2 + down_by
    box = (round(left), round(top), round(left + width), round(top + height))
    fits = 0 <= box[0] < box[2] <= size[0] and 0 <= box[1] < box[3] <= size[1]
    return box if fits and box != (0, 0, *size) else None
