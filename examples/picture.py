"""Ask about a picture and stream the answer: `python examples/picture.py [FILE] [QUESTION]`."""

import base64
import io
import mimetypes
import os
import sys
from pathlib import Path

from openai import OpenAI
from PIL import Image, ImageDraw


def drawn() -> str:
    """A red circle, as a data URL."""
    image, file = Image.new("RGB", (120, 90), "white"), io.BytesIO()
    ImageDraw.Draw(image).ellipse((35, 20, 85, 70), "red")
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def read(path: str) -> str:
    """A picture file as a data URL. (A public http or https URL can be sent as it is.)"""
    kind = mimetypes.guess_type(path)[0] or "image/png"
    return f"data:{kind};base64," + base64.b64encode(Path(path).read_bytes()).decode()


url = read(sys.argv[1]) if len(sys.argv) > 1 else drawn()
question = sys.argv[2] if len(sys.argv) > 2 else "What color is it?"
client = OpenAI(
    base_url=os.environ.get("K3_BASE_URL", "http://localhost:8000/v1"),
    api_key=os.environ.get("K3_API_KEY", "none"),
)
stream = client.chat.completions.create(
    model="kimi-k3",
    max_tokens=300,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
    messages=[
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": question},
            ],
        }
    ],
)
for chunk in stream:
    for choice in chunk.choices:
        # Thinking comes first, under a name of Moonshot's that the SDK passes through.
        print(getattr(choice.delta, "reasoning_content", None) or "", end="", file=sys.stderr)
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\n{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens")
