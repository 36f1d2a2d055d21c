"""The boxes that ISO base media files (MP4, HEIC, AVIF, JPEG XL) are made of (ISO/IEC 14496-12, 4.2)."""

from __future__ import annotations

from collections.abc import Iterator


def boxes(view: memoryview) -> Iterator[tuple[bytes, memoryview, int]]:
    """(type, body, missing bytes) of each box; the last body may be cut."""
    at = 0
    while at + 8 <= len(view):
        size, kind, header = int.from_bytes(view[at : at + 4], "big"), bytes(view[at + 4 : at + 8]), 8
        if size == 1:
            size, header = int.from_bytes(view[at + 8 : at + 16], "big"), 16
        elif size == 0:
            size = len(view) - at
        if size < header:
            return
        yield kind, view[at + header : at + size], max(at + size - len(view), 0)
        at += size


def inside(view: memoryview, *path: bytes) -> Iterator[memoryview]:
    """Bodies of all boxes at `path`, e.g. (b"mdia", b"minf")."""
    for kind, body, _ in boxes(view):
        if kind == path[0]:
            if len(path) == 1:
                yield body
            else:
                yield from inside(body, *path[1:])
