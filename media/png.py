"""The chunks of a PNG file (W3C PNG, third edition): checked, and cleaned of what is not the picture."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from media.types import MediaError

SIGNATURE = b"\x89PNG\r\n\x1a\n"

# Ancillary chunks that decide what is seen. All others (text, profiles, thumbnails, whatever tools store for
# themselves) are dropped: a decoder would unpack them, or refuse the file for their size or damage.
_SEEN = {b"tRNS", b"eXIf", b"acTL", b"fcTL", b"fdAT"}
_TEXT = {b"tEXt", b"zTXt", b"iTXt"}
# Text that may tell the orientation.
_ORIENTATION_KEYS = (b"XML:com.adobe.xmp", b"Raw profile type exif")
_MAX_TEXT = 256 * 1024  # bytes, unpacked


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk; `body` between its header and its checksum, `start` and `end` of the whole in the file."""

    kind: bytes
    start: int
    body: memoryview
    end: int


def cleaned(data: bytes) -> bytes:
    """A PNG file without the chunks that do not decide what is seen, or `data` itself if there are none.

    See docs/decisions.md#r25. Checks the pixel data's checksums, which Pillow skips. Raises MediaError.
    """
    parts: list[memoryview] = []
    view = memoryview(data)
    kept = 0  # up to here the file was kept or dropped
    for chunk in chunks(data):
        if chunk.kind == b"IDAT":
            _check(chunk, view)
        if _is_seen(chunk):
            continue
        parts.append(view[kept : chunk.start])
        kept = chunk.end
    return b"".join([*parts, view[kept:]]) if kept else data


def transparent_grey(data: bytes) -> int | None:
    """The transparent value of a PNG of 2- or 4-bit grey, in 8 bits; None for all other PNG files.

    Pillow stretches the pixels to 8 bits, but not this value.
    """
    depth, colour_type = data[24:26]
    if colour_type != 0 or depth not in (2, 4):
        return None
    for chunk in chunks(data):
        if chunk.kind == b"tRNS" and len(chunk.body) >= 2:
            largest = (1 << depth) - 1
            return (int.from_bytes(chunk.body[:2], "big") & largest) * (255 // largest)
    return None


def chunks(data: bytes) -> Iterator[Chunk]:
    """The whole chunks of a file up to its end chunk; of a truncated file those that are there."""
    view = memoryview(data)
    start = len(SIGNATURE)
    while start + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, start)
        end = start + 12 + length
        if end > len(data):
            return
        yield Chunk(kind, start, view[start + 8 : end - 4], end)
        if kind == b"IEND":
            return
        start = end


def _check(chunk: Chunk, view: memoryview) -> None:
    wanted = int.from_bytes(view[chunk.end - 4 : chunk.end], "big")
    if zlib.crc32(view[chunk.start + 4 : chunk.end - 4]) != wanted:
        raise MediaError("received a PNG picture that is damaged: a checksum of its pixel data is wrong")


def _is_seen(chunk: Chunk) -> bool:
    is_ancillary = bool(chunk.kind[0] & 0x20)
    if not is_ancillary or chunk.kind in _SEEN:
        return True
    return chunk.kind in _TEXT and _is_short_orientation(chunk)


def _is_short_orientation(chunk: Chunk) -> bool:
    key, _, rest = bytes(chunk.body[: _MAX_TEXT + 1]).partition(b"\0")
    if key not in _ORIENTATION_KEYS or len(chunk.body) > _MAX_TEXT:
        return False
    if chunk.kind == b"zTXt":
        packed = rest[1:]
    elif chunk.kind == b"iTXt" and rest[:1] == b"\1":
        packed = rest[2:].split(b"\0", 2)[-1]
    else:
        return True
    try:
        unpacking = zlib.decompressobj()
        unpacking.decompress(packed, _MAX_TEXT)
    except zlib.error:
        return False
    return unpacking.eof
