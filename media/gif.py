"""The frames of a GIF file, without their pixels (GIF89a specification)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_EXTENSION, _FRAME = 0x21, 0x2C
_GRAPHIC_CONTROL = 0xF9


@dataclass(frozen=True, slots=True)
class GifFrame:
    """One frame of a GIF.

    box:         (left, top, right, bottom) on the canvas
    disposal:    what becomes of the box before the next frame: 2 cleared, 3 as it was before, else it stays
    delay:       hundredths of a second that it is shown
    transparent: the palette index that lets through what is below, None if there is none
    palette:     RGB triples as bytes, its own or the file's; empty if there is neither
    flags, data: as in the file: of the image descriptor; minimum code size and compressed blocks
    """

    box: tuple[int, int, int, int]
    disposal: int
    delay: int
    transparent: int | None
    palette: bytes
    flags: int
    data: bytes

    @property
    def size(self) -> tuple[int, int]:
        return self.box[2] - self.box[0], self.box[3] - self.box[1]


def gif_canvas(data: bytes) -> tuple[int, int]:
    """(width, height) that the file announces for all frames."""
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def gif_frames(data: bytes) -> Iterator[GifFrame]:
    """The frames that are there whole, in order."""
    flags = data[10] if len(data) > 10 else 0
    at = 13
    shared, at = _palette(data, at, flags)
    disposal, delay, transparent = 0, 0, None
    while at < len(data):
        kind = data[at]
        if kind == _EXTENSION:
            body = data[at + 3 : at + 7]
            if data[at + 1 : at + 2] == bytes([_GRAPHIC_CONTROL]) and len(body) == 4:
                disposal = body[0] >> 2 & 7
                delay = int.from_bytes(body[1:3], "little")
                transparent = body[3] if body[0] & 1 else None
            _, at = _blocks(data, at + 2)
        elif kind == _FRAME and at + 10 <= len(data):
            left, top, width, height = (
                int.from_bytes(data[at + i : at + i + 2], "little") for i in (1, 3, 5, 7)
            )
            flags = data[at + 9]
            own, at = _palette(data, at + 10, flags)
            start = at
            is_whole, at = _blocks(data, at + 1)
            if not is_whole:
                return
            box = (left, top, left + width, top + height)
            yield GifFrame(box, disposal, delay, transparent, own or shared, flags, data[start:at])
            disposal, delay, transparent = 0, 0, None
        else:
            return


def _palette(data: bytes, at: int, flags: int) -> tuple[bytes, int]:
    """(colours, where they end)."""
    end = at + (3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0)
    return data[at:end], end


def _blocks(data: bytes, at: int) -> tuple[bool, int]:
    """Whether a run of blocks ends with its empty one, and where."""
    while at < len(data):
        length = data[at]
        at += 1 + length
        if not length:
            return True, at
    return False, at
