"""A clip in, what the vision tower reads out, in chunks of up to four frames. Synchronous.

See docs/format.md#clips.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray
from PIL import Image

from media.clip.animation import ANIMATIONS, Animation, animation_frames, clock_of, read_animation
from media.clip.demux import Timeline, declared_duration, opened, scan, timeline_of, video_stream
from media.clip.frames import Display, is_known_matrix, shown_size, to_picture, wanted_frames
from media.clip.mp4 import check_mp4
from media.config import K3_MEDIA_CONFIG, MediaConfig
from media.formats import ClipKind, clip_kind
from media.limits import ClipLimits
from media.navit import PATCH, Size, target_size, to_patches
from media.render import render
from media.sampling import (
    Sampling,
    chunk_ranges,
    frame_patch_limit,
    sample_constant_rate,
    sample_variable_rate,
    timestamp,
)
from media.types import Chunk, Clip, MediaError, MediaItem

Progress = Callable[[int, int], None]

# Token ids of a chunk besides its placeholders: time stamp, markers, the word (docs/format.md#clip-prompt).
TEXT_TOKENS_PER_CHUNK = 11
_ABSURD_DURATION = 24 * 3600.0
# Frames that are resized at the same time, while the next are decoded.
_RESIZERS = min(4, os.cpu_count() or 1)
# With more sampled frames damaged than this, what is left tells too little.
_MAX_DAMAGED = 0.25


def prepare_clip(
    data: bytes,
    config: MediaConfig = K3_MEDIA_CONFIG,
    limits: ClipLimits | None = None,
    on_progress: Progress | None = None,
) -> Clip:
    """Sample, decode and prepare a clip: a video, or a picture that moves (docs/format.md#clip-sampling).

    on_progress: called with (frames done, frames in all) after each sampled frame
    Raises MediaError for whatever cannot be used, and for what is beyond the limits.
    """
    limits = limits or ClipLimits()
    plan = plan_clip(data, config, limits)
    if plan.kind in ANIMATIONS:
        shots = _animation_shots(data, plan, limits)
        return _prepare(shots, plan, hashlib.sha256(data).hexdigest(), config, on_progress)
    with opened(data, plan.kind, max_pixels=limits.frame_pixels) as container:
        shots = _video_shots(container, plan)
        return _prepare(shots, plan, hashlib.sha256(data).hexdigest(), config, on_progress)


def chunk_identity(file_sha256: str, config: MediaConfig, index: int, salt: str = "") -> str:
    """The media identity (hex sha256) of a clip's chunk `index`; `salt` separates tenants."""
    text = f"clip\0{file_sha256}\0{config.version}\0{index}\0{salt}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ClipPlan:
    """What is known of a clip before any of it is decoded."""

    kind: ClipKind
    timeline: Timeline
    sampling: Sampling
    notes: tuple[str, ...]


def plan_clip(
    data: bytes, config: MediaConfig = K3_MEDIA_CONFIG, limits: ClipLimits | None = None
) -> ClipPlan:
    """Find the frames to take, and refuse what is beyond the limits. Raises MediaError."""
    limits = limits or ClipLimits()
    if not data:
        raise MediaError("the clip is empty: received 0 bytes")
    if len(data) > limits.n_bytes:
        raise MediaError(
            f"the clip has {len(data):,} bytes, more than the limit of {limits.n_bytes:,}; "
            "send a smaller one, e.g. `ffmpeg -i clip.mp4 -vf scale=-2:720 -crf 28 small.mp4`"
        )
    kind = clip_kind(data)
    if kind == "mp4":
        check_mp4(data, max_frames=limits.n_frames)
    if kind in ANIMATIONS:
        animation = read_animation(data, kind, max_frames=limits.n_frames)
        size = shown = (animation.width, animation.height)
        timeline = _animation_timeline(animation)
        notes: tuple[str, ...] = ()
    else:
        with opened(data, kind, max_pixels=limits.frame_pixels) as container:
            stream = video_stream(container)
            _check_claim(declared_duration(container, stream), limits)
            size = (stream.width, stream.height)
            _check_pixels(size, 1, limits)
            timeline = scan(container, stream, max_frames=limits.n_frames)
            shown = shown_size(*size, stream.sample_aspect_ratio)
            notes = _notes(container, stream)
    _check_duration(timeline.duration, limits)
    _check_pixels(size, len(timeline.pts), limits)
    sampling = _sample(timeline, config)
    _check_tokens(shown, len(sampling), timeline.duration, config, limits)
    return ClipPlan(kind, timeline, sampling, notes)


def _animation_timeline(animation: Animation) -> Timeline:
    clock = clock_of(animation.durations)
    ends = list(accumulate(round(seconds / clock) for seconds in animation.durations))
    pts = (0, *ends[:-1])
    return timeline_of(pts, ends[-1] - pts[-1], clock, None)


def _sample(timeline: Timeline, config: MediaConfig) -> Sampling:
    if timeline.rate is not None:
        return sample_constant_rate(len(timeline.pts), timeline.rate, config.sample_fps, config.max_frames)
    shown_at = [pts * timeline.time_base for pts in timeline.pts]
    return sample_variable_rate(shown_at, timeline.duration, config.sample_fps, config.max_frames)


def _notes(container: InputContainer, stream: VideoStream) -> tuple[str, ...]:
    notes = []
    if n_audio := len(container.streams.audio):
        tracks = "tracks were" if n_audio > 1 else "track was"
        notes.append(f"{n_audio} audio {tracks} ignored: K3 sees video only")
    if not is_known_matrix(stream.codec_context.colorspace):
        notes.append("colours are approximate: the clip's colour matrix is not known here")
    return tuple(notes)


def _check_duration(duration: Fraction, limits: ClipLimits) -> None:
    if duration > limits.duration:
        raise MediaError(
            f"the clip lasts {float(duration):.1f} s, more than the limit of {limits.duration:g} s; "
            f"{_cut(limits.duration)}"
        )


def _check_claim(declared: Fraction | None, limits: ClipLimits) -> None:
    # Not the limit itself: a clip that a phone trimmed still declares what was filmed.
    if declared is not None and declared > max(_ABSURD_DURATION, limits.duration):
        raise MediaError(
            f"the clip's header claims {float(declared):.4g} s, the limit is {limits.duration:g} s; "
            "the file is damaged, or cut it, e.g. `ffmpeg -i clip.mp4 -t 60 -c copy short.mp4`"
        )


def _cut(seconds: float) -> str:
    # Without encoding anew a cut falls on the next frame, so ask for a little less.
    short = max(int(seconds) - 1, 1)
    return f"cut it, e.g. `ffmpeg -i clip.mp4 -t {short} -c copy short.mp4`"


def _check_pixels(frame: tuple[int, int], n_frames: int, limits: ClipLimits) -> None:
    (width, height), frame_pixels = frame, frame[0] * frame[1]
    size = f"{width}x{height}"
    if not frame_pixels:
        raise MediaError("the clip is damaged: the size of its frames cannot be found")
    if frame_pixels > limits.frame_pixels:
        raise MediaError(
            f"the clip's frames have {size} pixels, more than the limit of {limits.frame_pixels:,}; "
            f"{_scale_down(height, limits.frame_pixels / frame_pixels)}"
        )
    if frame_pixels * n_frames > limits.total_pixels:
        raise MediaError(
            f"the clip has {n_frames:,} frames of {size} pixels, together more than the limit of "
            f"{limits.total_pixels:,}; "
            f"{_scale_down(height, limits.total_pixels / (frame_pixels * n_frames))}"
        )


def _scale_down(height: int, share: float) -> str:
    lower = max(int(height * share**0.5) // 2 * 2, 2)
    return f"scale it down, e.g. `ffmpeg -i clip.mp4 -vf scale=-2:{lower} small.mp4`"


def _check_tokens(
    shown: tuple[int, int], n_sampled: int, duration: Fraction, config: MediaConfig, limits: ClipLimits
) -> None:
    if limits.max_tokens is None or (n_tokens := _clip_tokens(shown, n_sampled, config)) <= limits.max_tokens:
        return
    # Shorter clips get larger frames (docs/format.md#clip-budget), so how much to cut is found by trying.
    n_fitting = next(
        (n for n in range(n_sampled, 0, -1) if _clip_tokens(shown, n, config) <= limits.max_tokens), 0
    )
    seconds = float(duration) * n_fitting / n_sampled
    remedy = (
        _cut(seconds) if seconds >= 2 else "scale it down, e.g. `ffmpeg -i clip.mp4 -vf scale=-2:240 s.mp4`"
    )
    raise MediaError(
        f"the clip of {float(duration):.1f} s needs {n_tokens:,} tokens, more than the limit of "
        f"{limits.max_tokens:,} for it; {remedy}"
    )


def _clip_tokens(shown: tuple[int, int], n_sampled: int, config: MediaConfig) -> int:
    n_chunks = len(chunk_ranges(n_sampled, config.frames_per_chunk))
    return n_chunks * (_frame_size(shown, n_sampled, config).n_tokens + TEXT_TOKENS_PER_CHUNK)


def _frame_size(shown: tuple[int, int], n_sampled: int, config: MediaConfig) -> Size:
    limit = frame_patch_limit(
        n_sampled, per_frame=config.frame_patch_limit, per_video=config.video_patch_limit
    )
    return target_size(*shown, patch_limit=limit, side_limit=config.side_limit)


@dataclass(frozen=True, slots=True)
class _Shot:
    """A sampled frame: its place among the sampled, its pixels, and the size that it is shown at."""

    place: int
    picture: Image.Image
    size: tuple[int, int]
    is_damaged: bool


def _video_shots(container: InputContainer, plan: ClipPlan) -> Iterator[_Shot]:
    """The sampled frames, upright; all in the first one's size."""
    stream = video_stream(container)
    pts = [plan.timeline.pts[position] for position in plan.sampling.positions]
    display: Display | None = None
    for wanted in wanted_frames(container, stream, pts, plan.timeline.pts):
        if display is None:
            display = Display.of(wanted.shown.frame, stream.sample_aspect_ratio)
        picture = to_picture(wanted.shown, display.turn)
        yield _Shot(wanted.place, picture, (display.width, display.height), wanted.is_damaged)


def _animation_shots(data: bytes, plan: ClipPlan, limits: ClipLimits) -> Iterator[_Shot]:
    """The sampled frames; from one that cannot be decoded on, the last that could is shown, as damaged."""
    places = {position: place for place, position in enumerate(plan.sampling.positions)}
    picture: Image.Image | None = None
    n_seen = 0
    # Whatever goes wrong shows in the frames that are missing; a hostile file raises nearly any exception.
    with contextlib.suppress(Exception):
        for position, picture in enumerate(animation_frames(data, plan.kind, max_pixels=limits.frame_pixels)):
            if position in places:
                yield _Shot(places[position], picture, picture.size, is_damaged=False)
                n_seen += 1
            if n_seen == len(places):
                return
    if picture is not None:
        for place in range(n_seen, len(places)):
            yield _Shot(place, picture, picture.size, is_damaged=True)


def _prepare(
    shots: Iterator[_Shot],
    plan: ClipPlan,
    file_sha256: str,
    config: MediaConfig,
    on_progress: Progress | None,
) -> Clip:
    n_sampled = len(plan.sampling)
    canvas: _Canvas | None = None
    n_damaged = 0
    under_way: deque[Future[None]] = deque()
    with ThreadPoolExecutor(_RESIZERS) as resizers:
        for shot in shots:
            if canvas is None:
                canvas = _Canvas(shot.size, n_sampled, config)
            n_damaged += shot.is_damaged
            if len(under_way) > _RESIZERS:  # raw frames must not pile up
                under_way.popleft().result()
            under_way.append(resizers.submit(canvas.draw, shot.place, shot.picture))
            if on_progress is not None:
                on_progress(shot.place + 1, n_sampled)
        for drawing in under_way:
            drawing.result()
    if canvas is None:
        raise MediaError("the clip is damaged: none of its frames can be decoded")
    if n_damaged > n_sampled * _MAX_DAMAGED:
        raise MediaError(f"the clip is damaged: {n_damaged} of its {n_sampled} sampled frames are broken")
    notes = plan.notes
    if n_damaged:
        notes += (f"{n_damaged} of {n_sampled} sampled frames are damaged",)
    stamps = [timestamp(seconds) for seconds in plan.sampling.times[:: config.frames_per_chunk]]
    chunks = tuple(
        Chunk(stamp, MediaItem(patches, grid, chunk_identity(file_sha256, config, index)))
        for index, (stamp, (patches, grid)) in enumerate(zip(stamps, canvas.chunks(), strict=True))
    )
    return Clip(
        *canvas.shown,
        float(plan.timeline.duration),
        plan.sampling.times,
        chunks,
        notes,
    )


class _Canvas:
    """The image patches of all sampled frames, chunk by chunk; memory is taken as it is drawn on."""

    def __init__(self, shown: tuple[int, int], n_sampled: int, config: MediaConfig) -> None:
        """shown: (width, height) of the clip before it is shrunk."""
        self.shown = shown
        self._size = size = _frame_size(shown, n_sampled, config)
        self._config = config
        self._patches = [
            np.empty((len(frames) * size.n_patches, 3, PATCH, PATCH), np.uint8)
            for frames in chunk_ranges(n_sampled, config.frames_per_chunk)
        ]

    def draw(self, place: int, picture: Image.Image) -> None:
        """Resize `picture` and cut it into the image patches of sampled frame `place`."""
        chunk, frame = divmod(place, self._config.frames_per_chunk)
        n_patches = self._size.n_patches
        rgb = render(picture, self._size, self._config)
        to_patches(rgb, self._size, out=self._patches[chunk][frame * n_patches : (frame + 1) * n_patches])

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], tuple[int, int, int]]]:
        """(patches, grid) of each chunk."""
        for patches in self._patches:
            n_frames = len(patches) // self._size.n_patches
            yield patches, (n_frames, self._size.grid_h, self._size.grid_w)
