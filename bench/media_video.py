"""What preparing a clip costs, beside what it cannot cost less than; a part of `python -m bench.media`."""

from __future__ import annotations

import io

import av
import numpy as np
from PIL import Image

from bench.media import best_of, photo
from media.clip import prepare_clip
from media.navit import target_size
from media.sampling import frame_patch_limit, sample_constant_rate

WIDTH, HEIGHT, RATE, SECONDS = 1920, 1080, 30, 10


def clip(container: str, codec: str, pixel_format: str, options: dict[str, str]) -> bytes:
    """A camera that pans over a photo."""
    scene = np.asarray(photo(2400, 1200, 5))
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=RATE, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pixel_format
        for i in range(RATE * SECONDS):
            x, y = int(240 - 230 * np.cos(i / 40)), int(60 + 50 * np.sin(i / 25))
            view = np.ascontiguousarray(scene[y : y + HEIGHT, x : x + WIDTH])
            output.mux(stream.encode(av.VideoFrame.from_ndarray(view, format="rgb24")))
        output.mux(stream.encode(None))
    return file.getvalue()


def floor(data: bytes) -> None:
    """The least that any implementation on PyAV and Pillow does.

    Decode with libav's own choice of threads, sampled frames to RGB, the same resize, one plain copy.
    """
    sampling = sample_constant_rate(RATE * SECONDS, RATE, 8.0)
    limit = frame_patch_limit(len(sampling), per_frame=16_384, per_video=655_360)
    size = target_size(WIDTH, HEIGHT, patch_limit=limit, side_limit=512)
    patches = np.empty((len(sampling), size.n_patches * 3 * 14 * 14), np.uint8)
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        place = 0
        for number, frame in enumerate(container.decode(stream)):
            if number != sampling.positions[place]:
                continue
            image = Image.fromarray(frame.to_ndarray(format="rgb24"))
            pixels = np.asarray(image.resize((size.width, size.height), Image.Resampling.BICUBIC))
            patches[place, : pixels.size] = pixels.reshape(-1)
            place += 1


def clips() -> None:
    cases = {
        "H.264 MP4": ("mp4", "libx264", "yuv420p", {"preset": "veryfast", "crf": "18"}),
        "VP8 WebM": ("webm", "libvpx", "yuv420p", {"deadline": "realtime", "cpu-used": "8", "b": "8M"}),
        "Motion JPEG MOV": ("mov", "mjpeg", "yuvj420p", {"b": "40M"}),
    }
    print(f"\nOne clip of {SECONDS} s, {WIDTH}x{HEIGHT} at {RATE}, seconds (ours at most 1.25 x floor)")
    print(f"{'':16}{'size':>10}{'ours':>10}{'floor':>10}{'ours/floor':>12}")
    for name, how in cases.items():
        data = clip(*how)
        best = best_of({"ours": lambda d=data: prepare_clip(d), "floor": lambda d=data: floor(d)}, rounds=3)
        print(
            f"{name:16}{len(data) / 1e6:8.2f}MB{best['ours']:10.2f}{best['floor']:10.2f}"
            f"{best['ours'] / best['floor']:12.2f}"
        )


if __name__ == "__main__":
    clips()
