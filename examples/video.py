"""Ask about a clip: `python examples/video.py [FILE or URL] [QUESTION]`; MP4, MOV, MKV, WebM or GIF."""

import base64
import io
import os
import sys
from pathlib import Path

from openai import OpenAI
from PIL import Image, ImageDraw


def drawn() -> bytes:
    """A red square that moves to the right for two seconds, as a GIF."""
    frames, file = [], io.BytesIO()
    for step in range(16):
        frame = Image.new("RGB", (84, 84), "white")
        ImageDraw.Draw(frame).rectangle((2 + 3 * step, 30, 25 + 3 * step, 53), (220, 0, 0))
        frames.append(frame)
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=120)
    return file.getvalue()


place = sys.argv[1] if len(sys.argv) > 1 else ""
question = sys.argv[2] if len(sys.argv) > 2 else "What moves, and where to?"
if place.startswith(("http:", "https:", "data:")):
    url = place
else:  # the type is told by the content, so any will do
    content = Path(place).read_bytes() if place else drawn()
    url = "data:video/mp4;base64," + base64.b64encode(content).decode()

client = OpenAI(
    base_url=os.environ.get("K3_BASE_URL", "http://localhost:8000/v1"),
    api_key=os.environ.get("K3_API_KEY", "none"),
)
parts = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": question}]
reply = client.chat.completions.create(
    model="kimi-k3",
    max_tokens=300,
    temperature=0,
    messages=[{"role": "user", "content": parts}],  # type: ignore[misc, list-item]  # not in OpenAI's types
)
print(reply.choices[0].message.content)
usage = reply.usage.model_dump() if reply.usage else {}
print(f"{usage['prompt_tokens_details']['video_tokens']} of {usage['prompt_tokens']} prompt tokens are video")
