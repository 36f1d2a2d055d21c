"""Drawn pictures and clips as files that a client would send."""

from __future__ import annotations

import base64
import io
from fractions import Fraction
from typing import Any

import av
from PIL import Image

from engine.mini.skills.base import DrawnClip, DrawnPicture, Task


def png(picture: DrawnPicture) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture.pixels).save(buffer, "PNG")
    return buffer.getvalue()


def mp4(clip: DrawnClip) -> bytes:
    """H.264 at high quality, colours in full resolution so that odd sizes are possible."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(clip.fps), options={"crf": "10"})
        stream.pix_fmt = "yuv444p"
        for index in range(clip.n_frames):
            pixels = clip.frame(index)
            if index == 0:
                stream.height, stream.width = pixels.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def data_url(medium: DrawnPicture | DrawnClip) -> str:
    kind, data = (
        ("image/png", png(medium)) if isinstance(medium, DrawnPicture) else ("video/mp4", mp4(medium))
    )
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def with_media(task: Task) -> dict[str, Any]:
    """The task's request with its `medium:N` URLs replaced by data URLs."""
    if not task.media:
        return task.body
    urls = [data_url(medium) for medium in task.media]

    def part(given: Any) -> Any:
        for field in ("image_url", "video_url"):
            if isinstance(given, dict) and field in given:
                return {**given, field: {"url": urls[int(given[field]["url"].removeprefix("medium:"))]}}
        return given

    messages = [
        {**m, "content": [part(p) for p in m["content"]]} if isinstance(m.get("content"), list) else m
        for m in task.body["messages"]
    ]
    return {**task.body, "messages": messages}
