"""Server-sent events as clients read them."""

from __future__ import annotations

import json
from typing import Any

import httpx


def frames(text: str) -> list[tuple[str | None, Any]]:
    """(name of the `event:` line or None, data) of each frame; comments are left out."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        names = [line[7:] for line in lines if line.startswith("event: ")]
        data = [line[6:] for line in lines if line.startswith("data: ")]
        assert len(lines) == len(names) + len(data) and len(names) <= 1 and len(data) == 1, block
        found.append((names[0] if names else None, data[0] if data[0] == "[DONE]" else json.loads(data[0])))
    return found


def stream_of(answer: httpx.Response) -> list[tuple[str | None, Any]]:
    """The frames of a reply that is an event stream with status 200."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return frames(answer.text)
