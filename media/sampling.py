"""Which frames of a clip the model sees, when, and in which chunks: arithmetic only (docs/format.md#clips).

All times are seconds after the first frame that is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True, slots=True)
class Sampling:
    """The frames to take: their positions in showing order, and the time of each in seconds.

    Positions rise; the same length for both.
    """

    positions: tuple[int, ...]
    times: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.positions)


def sample_count(n_frames: int, rate: float, sample_fps: float, max_frames: int | None = None) -> int:
    """How many frames to take of `n_frames` shown at `rate` frames per second (docs/format.md#clip-sampling).

    Rounds half to even, as Python does. Raises ValueError where there is no frame or no rate.
    """
    if n_frames < 1:
        raise ValueError("no frame to sample from")
    if not rate > 0:
        raise ValueError(f"frame rate must be positive, got {rate}")
    count = max(round(n_frames * min(sample_fps, rate) / rate), 1)
    return count if max_frames is None else min(count, max_frames)


def sample_constant_rate(
    n_frames: int, rate: float, sample_fps: float, max_frames: int | None = None
) -> Sampling:
    """Frames evenly from first to last, rounded half to even; time = position / rate.

    See docs/format.md#clip-sampling.
    """
    count = sample_count(n_frames, rate, sample_fps, max_frames)
    positions = [int(position) for position in np.linspace(0, n_frames - 1, count).round()]
    return Sampling(tuple(positions), tuple(position / rate for position in positions))


def sample_variable_rate(
    shown_at: Sequence[Fraction], duration: Fraction, sample_fps: float, max_frames: int | None = None
) -> Sampling:
    """The frame shown at each of evenly spaced sample times, each frame once.

    shown_at: presentation times that rise strictly; duration: from the first to the end of the last, both
    in seconds.

    Sample times run from the first frame's time to the last frame's, `sample_fps` of them per second of
    clip: the same rule on a time axis. A frame that stays longer than a sample interval is not
    repeated, just as a constant rate below `sample_fps` repeats none.
    """
    if not shown_at:
        raise ValueError("no frame to sample from")
    first, span = shown_at[0], shown_at[-1] - shown_at[0]
    count = max(round(float(duration) * sample_fps), 1)
    if max_frames is not None:
        count = min(count, max_frames)
    steps = max(count - 1, 1)
    # Exact fractions: a sample time that meets a frame's time must find that frame, not the one before.
    shown = (bisect_right(shown_at, first + span * step / steps) - 1 for step in range(count))
    positions = tuple(dict.fromkeys(shown))
    return Sampling(positions, tuple(float(shown_at[position] - first) for position in positions))


def timestamp(seconds: float) -> str:
    """`HH:MM:SS.mmm`; milliseconds are cut off, not rounded, and a day starts over
    (docs/format.md#clip-prompt).

    The cut acts on the binary float, as in training: 9.6 reads `00:00:09.599`.
    """
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours % 24:02d}:{minute:02d}:{second:02d}.{int(seconds % 1 * 1000):03d}"


def frame_patch_limit(n_sampled: int, *, per_frame: int, per_video: int) -> int:
    """The image patches each frame may have, where the whole clip shares one budget.

    See docs/format.md#clip-budget.
    """
    return min(per_frame, max(1, round(per_video / n_sampled)))


def chunk_ranges(n_sampled: int, frames_per_chunk: int) -> list[range]:
    """Runs of sampled frames that make one chunk each; the last may be shorter.

    See docs/format.md#clip-sampling.
    """
    starts = range(0, n_sampled, frames_per_chunk)
    return [range(start, min(start + frames_per_chunk, n_sampled)) for start in starts]
