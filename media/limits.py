"""What preparing media may cost: of one picture, of one clip, and of all together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MIB = 1024 * 1024
# The largest square that is worth reading (docs/format.md#picture-examples); needs up to 4 bytes a pixel for
# each copy that a decoder makes.
DEFAULT_PIXEL_LIMIT = 16_384 * 16_384


@dataclass(frozen=True, slots=True)
class ClipLimits:
    """What a clip may cost. All are checked before the first frame is decoded.

    duration:       seconds
    n_bytes:        of the file
    n_frames:       that are shown, before sampling: each is read, and most are decoded
    frame_pixels:   of one frame as coded
    total_pixels:   of all frames together, which is what decoding costs; 10 minutes of 4K at 60
    max_tokens:     prompt tokens of the whole clip, e.g. what fits the context; None for no limit
    """

    duration: float = 600.0
    n_bytes: int = 512 * 1024**2
    n_frames: int = 72_000
    frame_pixels: int = 8192 * 4320
    total_pixels: int = 600 * 60 * 3840 * 2160
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """What preparing media may cost.

    cache_bytes:      prepared media kept in memory; a 1920x1080 picture takes 6.3 MB
    cache_folder:     where prepared media are kept on disk too; None: nowhere
    disk_bytes:       of that folder
    n_workers:        decoding processes for pictures, and as many for clips, about 60 MB each when idle;
                      while files are slow there are up to three times as many more for other pictures
    worker_memory:    bytes of address space of each
    pixel_limit:      of one picture
    pixels_in_flight: of all pictures that are being decoded; decoders need up to 12 bytes a pixel
    picture_seconds, clip_seconds: of processor time, of all threads together, that decoding one may take
    url_seconds:      how long the content behind an http(s) URL is taken to be unchanged
    n_urls:           URLs (also data URLs, by digest) whose content's digest is remembered
    clip:             see ClipLimits; None for its defaults
    """

    cache_bytes: int = 1024 * _MIB
    cache_folder: Path | None = None
    disk_bytes: int = 8 * 1024 * _MIB
    n_workers: int = max(2, min(8, os.cpu_count() or 2))
    worker_memory: int = 8 * 1024 * _MIB
    pixel_limit: int = DEFAULT_PIXEL_LIMIT
    pixels_in_flight: int = DEFAULT_PIXEL_LIMIT
    picture_seconds: float = 30.0
    clip_seconds: float = 600.0
    url_seconds: float = 60.0
    n_urls: int = 100_000
    clip: ClipLimits | None = None
