"""What `media` hands out: picture and video inputs ready for the vision tower, and its errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A file as it came; one that was put together from parts is not copied once more.
FileBytes = bytes | bytearray


class MediaError(ValueError):
    """The client's picture or clip cannot be used; the message says what was received and what to do.

    The message is safe to show: no path of this machine, no memory address, no base64.
    """


@dataclass(frozen=True, slots=True, eq=False)
class MediaItem:
    """One input of the vision tower: a still picture, or a chunk of up to four video frames.

    patches:  (t * h * w, 3, 14, 14) uint8, rows then columns, frame after frame
              (docs/format.md#picture-pixels)
    grid:     (t, h, w) in image patches; h and w are even
    identity: hex sha256 over the file's bytes, the settings' version, `detail` and the chunk's index
    """

    patches: NDArray[np.uint8]
    grid: tuple[int, int, int]
    identity: str

    @property
    def n_tokens(self) -> int:
        """Placeholders in the prompt: image patches are merged 2x2 and pooled over time.

        See docs/format.md#clip-tokens.
        """
        _, height, width = self.grid
        return height * width // 4


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A prepared picture. `width` and `height` are the original's, after EXIF orientation.

    See docs/format.md#picture-prompt.

    notes: what the user should know, e.g. that only the first frame is seen
    """

    width: int
    height: int
    item: MediaItem
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Up to four sampled frames with the time stamp of the first, `HH:MM:SS.mmm`.

    See docs/format.md#clip-prompt.
    """

    timestamp: str
    item: MediaItem


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A prepared video.

    duration:    seconds, from the first frame to the end of the last
    frame_times: seconds after the first frame at which each sampled frame is shown
    notes:       what the user should know, e.g. that an audio track was ignored
    """

    width: int
    height: int
    duration: float
    frame_times: tuple[float, ...]
    chunks: tuple[Chunk, ...]
    notes: tuple[str, ...] = ()

    @property
    def n_frames(self) -> int:
        """Sampled frames."""
        return len(self.frame_times)
