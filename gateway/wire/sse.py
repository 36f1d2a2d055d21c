"""Frames of server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

encode_json = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"


def data_frame(data: Mapping[str, Any]) -> bytes:
    """A frame without a name, as the chat API's."""
    return b"data: " + encode_json(data) + b"\n\n"


def event_frame(name: str, data: Mapping[str, Any]) -> bytes:
    """A frame with an `event:` line."""
    return b"event: " + name.encode() + b"\ndata: " + encode_json(data) + b"\n\n"
