"""Makes clips for tests: with PyAV's encoders, and with the ffmpeg command what PyAV cannot write.

Every frame tells its own number: a 4 x 4 field of grey squares, white for a 1, black for a 0, that survives
lossy codecs, resizing and colour conversion.
"""

from __future__ import annotations

import io
import itertools
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from media.navit import from_patches
from media.types import Clip

FIELD = 4


def needs_ffmpeg() -> pytest.MarkDecorator:
    """Skips where the ffmpeg command is not installed."""
    there = shutil.which("ffmpeg") and shutil.which("ffprobe")
    return pytest.mark.skipif(not there, reason="needs the commands ffmpeg and ffprobe: install ffmpeg")


def ffmpeg(*arguments: str | Path) -> None:
    """Run the ffmpeg command; raises with its words if it fails."""
    command = ["ffmpeg", "-v", "error", "-y", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def peak_memory() -> int:
    """The most bytes that this process has held (Linux).

    Not `ru_maxrss`: a child starts with its parent's.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def numbered(number: int, width: int = 96, height: int = 64) -> NDArray[np.uint8]:
    """A grey frame, (height, width, 3) uint8, that shows `number` in binary, most significant bit first."""
    bits = np.array([number >> i & 1 for i in reversed(range(FIELD * FIELD))], np.uint8) * 255
    rows = np.arange(height) * FIELD // height
    columns = np.arange(width) * FIELD // width
    return np.repeat(bits.reshape(FIELD, FIELD)[rows][:, columns][..., None], 3, axis=2)


def read_number(rgb: NDArray[np.uint8]) -> int:
    """The number that a frame of any size shows. Raises AssertionError where it is not clear."""
    height, width = rgb.shape[:2]
    rows = [(2 * i + 1) * height // (2 * FIELD) for i in range(FIELD)]
    columns = [(2 * i + 1) * width // (2 * FIELD) for i in range(FIELD)]
    levels = rgb[rows][:, columns].astype(int).mean(axis=2)
    assert ((levels < 90) | (levels > 165)).all(), f"no clear number: {levels.round()}"
    return int("".join("1" if level > 127 else "0" for level in levels.flat), 2)


def prepared_frames(prepared: Clip) -> list[NDArray[np.uint8]]:
    """The frames as the vision tower gets them, put together again, with the padding."""
    frames = []
    for chunk in prepared.chunks:
        t, h, w = chunk.item.grid
        frames += [from_patches(patches, h, w) for patches in chunk.item.patches.reshape(t, h * w, 3, 14, 14)]
    return frames


def prepared_numbers(prepared: Clip) -> list[int]:
    """What the frames of a small clip (one that is not shrunk) of `numbered` frames show."""
    return [read_number(frame[: prepared.height, : prepared.width]) for frame in prepared_frames(prepared)]


def clip(
    frames: Iterable[NDArray[np.uint8]],
    *,
    container: str = "mp4",
    codec: str = "libx264",
    rate: int | Fraction = 30,
    pixel_format: str = "yuv420p",
    times: Sequence[Fraction | float] | None = None,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    sample_aspect_ratio: Fraction | None = None,
    audio: bool = False,
    display_matrix: Sequence[int] | None = None,
) -> bytes:
    """Encode `frames`, each (height, width, 3 or 4) uint8.

    times: seconds at which they are shown, instead of a constant `rate`
    audio: a track of silence, which comes first
    display_matrix: (a, b, u, c, d, v, x, y, w) as integers of fixed point
    """
    frames = list(frames)
    height, width = frames[0].shape[:2]
    layout = "rgb24" if frames[0].shape[2] == 3 else "rgba"
    clock = Fraction(1, 90_000) if times is not None else 1 / Fraction(rate)
    file = io.BytesIO()
    with av.open(file, "w", format=container, container_options=container_options or {}) as output:
        sound = None
        if audio:
            sound = output.add_stream("aac" if container in ("mp4", "mov") else "libopus", rate=48_000)
        stream = output.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        stream.codec_context.time_base = clock
        if sample_aspect_ratio is not None:
            stream.codec_context.sample_aspect_ratio = sample_aspect_ratio
        if display_matrix is not None:
            stream.set_display_matrix(display_matrix)
        if sound is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 96_000), np.int16), "s16", "stereo")
            silence.sample_rate, silence.pts = 48_000, 0
            output.mux(sound.encode(silence))
            output.mux(sound.encode(None))
        for i, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format=layout)
            frame.pts = i if times is None else round(Fraction(times[i]) / clock)
            frame.time_base = clock
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def moving(
    kind: str, n_frames: int, *, width: int = 96, height: int = 64, rate: int = 30, **options: object
) -> bytes:
    """A picture of Pillow's format `kind` that moves: frames show 0, 1, 2, ..."""
    first, *more = (Image.fromarray(numbered(i, width, height)) for i in range(n_frames))
    file = io.BytesIO()
    ends = [round(1000 * i / rate) for i in range(n_frames + 1)]
    durations = [end - start for start, end in itertools.pairwise(ends)]
    first.save(file, kind, save_all=True, append_images=more, duration=durations, **options)
    return file.getvalue()


def numbered_clip(n_frames: int, *, width: int = 96, height: int = 64, **how: object) -> bytes:
    """A clip whose frames show 0, 1, 2, ..."""
    if "moving" in how:
        return moving(str(how["moving"]), n_frames, width=width, height=height)
    return clip((numbered(i, width, height) for i in range(n_frames)), **how)  # type: ignore[arg-type]


def cover_art_clip(n_frames: int, cover: NDArray[np.uint8]) -> bytes:
    """An MP4 whose first video track is a still cover picture."""
    file = io.BytesIO()
    body = numbered_clip(n_frames)
    with av.open(io.BytesIO(body)) as source, av.open(file, "w", format="mp4") as output:
        track = source.streams.video[0]
        art = output.add_stream("png", rate=1)
        art.width, art.height, art.pix_fmt = cover.shape[1], cover.shape[0], "rgb24"
        art.disposition = av.stream.Disposition.attached_pic
        copy = output.add_stream_from_template(track)
        output.mux(art.encode(av.VideoFrame.from_ndarray(cover, format="rgb24")))
        output.mux(art.encode(None))
        for packet in source.demux(track):
            if packet.size:
                packet.stream = copy
                output.mux(packet)
    return file.getvalue()


def repeated(data: bytes, times: int) -> bytes:
    """The clip `times` over in one MP4, by copying its packets: long clips for little work."""
    with av.open(io.BytesIO(data)) as source:
        track = source.streams.video[0]
        packets = [p for p in source.demux(track) if p.size]
        length = sum(p.duration for p in packets)
        file = io.BytesIO()
        with av.open(file, "w", format="mp4") as output:
            copy = output.add_stream_from_template(track)
            copy.time_base = track.time_base
            for lap in range(times):
                for packet in packets:
                    again = av.Packet(bytes(packet))
                    again.time_base, again.is_keyframe = track.time_base, packet.is_keyframe
                    again.pts, again.dts = packet.pts + lap * length, packet.dts + lap * length
                    again.duration = packet.duration
                    again.stream = copy
                    output.mux(again)
    return file.getvalue()
