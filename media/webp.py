"""The chunks of an extended WebP file (RFC 9649, 2.7)."""

from __future__ import annotations

from collections.abc import Iterator

_FLAGS = 20  # where the header's flags stand
_ANIMATION, _ALPHA = 0x02, 0x10


def is_moving_webp(data: bytes) -> bool:
    """Whether the header says that the picture moves."""
    return (
        data[:4] == b"RIFF"
        and data[8:16] == b"WEBPVP8X"
        and len(data) > 30
        and bool(data[_FLAGS] & _ANIMATION)
    )


def with_alpha_flag(data: bytes) -> bytes:
    """A moving WebP with the mark that it has alpha; any other as it is.

    Encoders leave it out where every frame is opaque, although what a frame leaves of the canvas is
    transparent; then decoders would make that black.
    """
    if not is_moving_webp(data) or data[_FLAGS] & _ALPHA:
        return data
    return data[:_FLAGS] + bytes([data[_FLAGS] | _ALPHA]) + data[_FLAGS + 1 :]


def webp_canvas(data: bytes) -> tuple[int, int]:
    """(width, height) of an extended WebP file, which are stored less one."""
    return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1


def webp_durations(data: bytes) -> Iterator[int]:
    """Milliseconds that each frame is shown; of those that are there whole."""
    at = 12
    while at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"ANMF" and at + 8 + length <= len(data):
            yield int.from_bytes(data[at + 20 : at + 23], "little")
        at += 8 + length + length % 2
