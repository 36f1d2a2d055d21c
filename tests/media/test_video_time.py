"""Which frames, and when: against docs/format.md#clip-examples, and ffprobe as a second opinion."""

import io
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from media.clip import prepare_clip
from media.sampling import timestamp
from tests.media.clips import (
    clip,
    ffmpeg,
    needs_ffmpeg,
    numbered,
    numbered_clip,
    prepared_numbers,
    read_number,
)

WORKED = [
    # frames, rate, size, chunks, frames of the last chunk, first stamps, last stamp, tokens
    (300, 30, (320, 180), 20, 4, ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:00:09.599", 84 * 20),
    (250, 25, (640, 360), 20, 4, ["00:00:00.000", "00:00:00.520", "00:00:01.000"], "00:00:09.599", 5980),
    (31, 30, (320, 240), 2, 4, ["00:00:00.000", "00:00:00.566"], "00:00:00.566", 216),
    (10, 5, (640, 480), 3, 2, ["00:00:00.000", "00:00:00.800", "00:00:01.600"], "00:00:01.600", 1242),
    (1, 30, (512, 512), 1, 1, ["00:00:00.000"], "00:00:00.000", 361),
    (30, 8, (448, 448), 8, 2, ["00:00:00.000", "00:00:00.500", "00:00:01.000"], "00:00:03.500", 2048),
    (
        1800,
        Fraction(2997, 100),
        (320, 180),
        120,
        4,
        ["00:00:00.000", "00:00:00.500", "00:00:01.001"],
        "00:00:59.659",
        84 * 120,
    ),
]


@pytest.mark.parametrize("worked", WORKED, ids=lambda w: f"{w[0]}@{float(w[1])}")
def test_worked_example_as_a_real_clip(worked: tuple):
    n_frames, rate, (width, height), n_chunks, n_last, first, last, n_tokens = worked
    frame = numbered(7, width, height)
    prepared = prepare_clip(clip([frame] * n_frames, rate=rate, options={"preset": "ultrafast"}))
    stamps = [chunk.timestamp for chunk in prepared.chunks]
    assert len(prepared.chunks) == n_chunks
    assert prepared.chunks[-1].item.grid[0] == n_last
    assert stamps[: len(first)] == first
    assert stamps[-1] == last
    assert sum(chunk.item.n_tokens for chunk in prepared.chunks) == n_tokens


@pytest.mark.parametrize("rate", [24, 25, 30, 50, 60, Fraction(24000, 1001), Fraction(30000, 1001), 12, 7, 1])
@pytest.mark.parametrize(("container", "codec"), [("mp4", "libx264"), ("webm", "libvpx")])
def test_milliseconds_of_the_container_do_not_move_constant_time_stamps(
    container: str, codec: str, rate: int | Fraction
):
    """WebM keeps whole milliseconds only; the stamps come from the rate all the same.

    See docs/format.md#clip-prompt.
    """
    prepared = prepare_clip(numbered_clip(41, rate=rate, container=container, codec=codec))
    shown = prepared_numbers(prepared)
    expected = [timestamp(number / float(rate)) for number in shown[::4]]
    assert [chunk.timestamp for chunk in prepared.chunks] == expected


def test_variable_rate_shows_the_frame_of_each_sample_time_with_its_own_time():
    times = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.7, 0.9]
    prepared = prepare_clip(numbered_clip(13, times=times))
    shown = prepared_numbers(prepared)
    assert shown[0] == 0 and shown[-1] == 12
    assert [chunk.timestamp for chunk in prepared.chunks] == [
        f"00:00:00.{round(times[number] * 1000):03d}" for number in shown[::4]
    ]


def test_a_clip_that_starts_late_counts_from_its_first_frame():
    late = [5 + i / 30 for i in range(31)]
    prepared = prepare_clip(numbered_clip(31, times=late, container="matroska"))
    assert [chunk.timestamp for chunk in prepared.chunks] == ["00:00:00.000", "00:00:00.566"]
    assert prepared.duration == pytest.approx(31 / 30, abs=0.002)
    jumping = prepare_clip(numbered_clip(4, times=[7.0, 7.5, 9.25, 9.5], container="matroska"))
    assert prepared_numbers(jumping) == [0, 1, 2, 3]
    assert jumping.chunks[0].timestamp == "00:00:00.000"
    assert jumping.duration < 3


def gif(path: Path, delays: list[int]) -> bytes:
    pictures = [Image.fromarray(numbered(i)) for i in range(len(delays))]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=delays)
    return path.read_bytes()


def test_gif_delays_are_kept(tmp_path):
    delays = [200, 400, 1000, 200, 200, 600]
    prepared = prepare_clip(gif(tmp_path / "a.gif", delays))
    assert prepared_numbers(prepared) == [0, 1, 2, 3, 4, 5]
    assert [chunk.timestamp for chunk in prepared.chunks] == ["00:00:00.000", "00:00:01.800"]
    assert prepared.duration == pytest.approx(2.6)


def test_gif_of_even_delays_is_a_constant_rate(tmp_path):
    prepared = prepare_clip(gif(tmp_path / "a.gif", [50] * 20))
    assert prepared.n_frames == 8
    assert prepared.chunks[1].timestamp == timestamp(prepared_numbers(prepared)[4] / 20)


def without_rate(data: bytes) -> bytes:
    """A WebM file as browsers record it: its header tells neither frame rate nor duration."""
    file = io.BytesIO()
    with (
        av.open(io.BytesIO(data)) as source,
        av.open(file, "w", format="webm", container_options={"live": "1"}) as output,
    ):
        track = source.streams.video[0]
        copy = output.add_stream_from_template(track)
        for packet in source.demux(track):
            if packet.size:
                packet.duration = 0
                packet.stream = copy
                output.mux(packet)
    return file.getvalue()


def test_a_recording_without_rate_and_duration_is_timed_by_its_frames():
    even = prepare_clip(without_rate(numbered_clip(31, container="webm", codec="libvpx")))
    assert prepared_numbers(even) == [0, 4, 9, 13, 17, 21, 26, 30]
    uneven = prepare_clip(
        without_rate(numbered_clip(5, container="webm", codec="libvpx", times=[0, 0.3, 0.4, 1.1, 1.5]))
    )
    assert prepared_numbers(uneven) == [0, 1, 2, 3, 4]
    assert uneven.chunks[1].timestamp == "00:00:01.500"


def frame_times(path: Path) -> list[float]:
    """Presentation time of every frame as ffmpeg's own decoder shows it, from the first, in seconds."""
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0"]
    command += ["-show_entries", "frame=best_effort_timestamp_time", "-of", "csv=p=0", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    times = [float(line.strip(",")) for line in lines]
    return [time - times[0] for time in times]


@needs_ffmpeg()
def test_frames_that_vp8_keeps_hidden_are_not_counted(tmp_path):
    """Two passes of the encoder leave frames in the file that are only referred to."""
    raw, path = tmp_path / "raw.mkv", tmp_path / "clip.webm"
    raw.write_bytes(numbered_clip(90, container="matroska", codec="ffv1", pixel_format="bgr0"))
    encode = ["-i", raw, "-c:v", "libvpx", "-auto-alt-ref", "1", "-lag-in-frames", "25", "-b:v", "300k"]
    encode += ["-pix_fmt", "yuv420p", "-passlogfile", tmp_path / "log"]
    ffmpeg(*encode, "-pass", "1", "-f", "null", "-")
    ffmpeg(*encode, "-pass", "2", path)
    with av.open(io.BytesIO(path.read_bytes())) as container:
        n_packets = sum(1 for packet in container.demux(video=0) if packet.size)
    prepared = prepare_clip(path.read_bytes())
    assert n_packets > 90
    assert prepared_numbers(prepared) == [round(i * 89 / 23) for i in range(24)]


SOURCES = {
    "constant": (["-r", "30"], []),
    "film": (["-r", "24000/1001"], []),
    "variable": (["-vf", "select='not(mod(n\\,5))+gte(n\\,40)'", "-fps_mode", "vfr"], []),
    "cut by an edit list": (["-r", "30", "-g", "60"], ["-ss", "0.35"]),
    "offset": (["-r", "30"], ["-output_ts_offset", "3.5"]),
    "interlaced": (["-r", "25", "-flags", "+ildct+ilme"], []),
}


@needs_ffmpeg()
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize(("encoding", "copying"), SOURCES.values(), ids=SOURCES.keys())
def test_times_are_those_of_ffprobe(encoding: list[str], copying: list[str], suffix: str, tmp_path):
    """Every stamp is the time of the frame it stands for, give or take the cut-off and one millisecond."""
    raw, path = tmp_path / "raw.mkv", tmp_path / f"clip.{suffix}"
    n_frames, step = 90, 30
    pictures = numbered_clip(n_frames, rate=step, container="matroska", codec="ffv1", pixel_format="bgr0")
    raw.write_bytes(pictures)
    ffmpeg("-i", raw, *encoding, "-c:v", "libx264", "-pix_fmt", "yuv420p", tmp_path / "whole.mp4")
    before = copying if copying[:1] == ["-ss"] else []
    after = [] if before else copying
    ffmpeg(*before, "-i", tmp_path / "whole.mp4", "-c", "copy", *after, path)

    prepared = prepare_clip(path.read_bytes())
    times = frame_times(path)
    numbers = frame_numbers(path, tmp_path)
    assert len(times) == len(numbers)
    shown = prepared_numbers(prepared)
    assert shown[0] == numbers[0] and shown[-1] == numbers[-1]
    for chunk, number in zip(prepared.chunks, shown[::4], strict=True):
        hours, minutes, seconds = chunk.timestamp.split(":")
        stamp = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        candidates = [time for time, shows in zip(times, numbers, strict=True) if shows == number]
        assert any(abs(time - stamp) < 0.0022 for time in candidates)


def frame_numbers(path: Path, folder: Path) -> list[int]:
    """What each frame shows, decoded by the ffmpeg command."""
    ffmpeg("-i", path, "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", folder / "all.rgb")
    frames = np.fromfile(folder / "all.rgb", np.uint8).reshape(-1, 64, 96, 3)
    return [read_number(frame) for frame in frames]
