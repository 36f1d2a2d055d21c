"""Long clips: what they take of memory beside their result."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.media.clips import clip, repeated

LIMIT_MIB = 150  # above the result itself
CHILD = """
import sys, time
from media.clip import prepare_clip
from tests.media.clips import peak_memory

def peak():
    return peak_memory() / 1024**2

with open(sys.argv[1], "rb") as file:
    data = file.read()
before, start = peak(), time.perf_counter()
prepared = prepare_clip(data)
result = sum(chunk.item.patches.nbytes for chunk in prepared.chunks) / 1024**2
seconds = time.perf_counter() - start
print(prepared.n_frames, prepared.duration, len(data) / 1024**2, result, before, peak(), seconds)
"""


def peak_above_result(data: bytes, folder) -> float:
    """MiB that preparing `data` takes in a fresh process, above file and result; prints the figures."""
    (folder / "clip.mp4").write_bytes(data)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-c", CHILD, str(folder / "clip.mp4")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=environment)
    assert result.returncode == 0, result.stderr
    frames, duration, file, patches, before, peak, seconds = map(float, result.stdout.split())
    above = peak - before - patches
    print(
        f"\n{duration:.0f} s clip of {file:.1f} MiB: {frames:.0f} sampled frames, result {patches:.0f} MiB; "
        f"process {before:.0f} MiB before, {peak:.0f} MiB at its peak, so {above:.0f} MiB above the result; "
        f"{seconds:.0f} s"
    )
    return above


def moving_squares(n_frames: int, width: int, height: int) -> list[np.ndarray]:
    base = np.random.default_rng(0).integers(40, 200, (height // 8, width // 8, 3), np.uint8)
    scene = base.repeat(8, axis=0).repeat(8, axis=1)
    return [np.roll(scene, 8 * i, axis=1) for i in range(n_frames)]


def test_a_minute_of_video_never_holds_its_raw_frames(tmp_path):
    # 1800 raw frames would be 593 MiB, the 480 sampled ones 158 MiB in RGB.
    second = clip(moving_squares(30, 480, 240), options={"preset": "ultrafast"})
    assert peak_above_result(repeated(second, 60), tmp_path) < LIMIT_MIB


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_minutes_of_full_hd_stay_within_the_limit(tmp_path):
    second = clip(moving_squares(30, 1920, 1080), options={"preset": "veryfast"})
    assert peak_above_result(repeated(second, 600), tmp_path) < LIMIT_MIB
