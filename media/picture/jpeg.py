"""The markers of a JPEG file (ITU-T T.81, annex B)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SOS, _EOI = 0xDA, 0xD9
# In picture data 0xff is followed by 0, a restart marker or another 0xff; anything else ends it.
_AFTER_DATA = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


@dataclass(frozen=True, slots=True)
class JpegScans:
    """n_scans: passes over the picture; end: where the end marker stands, or the data's length."""

    n_scans: int
    end: int


def scan_jpeg(data: bytes) -> JpegScans:
    """Walk the markers of the first picture in `data`; pictures in EXIF and after its end do not count."""
    at, n_scans = 2, 0
    while (found := _AFTER_DATA.search(data, at)) is not None:
        marker, at = data[found.start() + 1], found.end()
        if marker == _EOI:
            return JpegScans(n_scans, found.start())
        n_scans += marker == _SOS
        at += int.from_bytes(data[at : at + 2], "big")
    return JpegScans(n_scans, len(data))
