"""Streams asked of a server over plain sockets: little CPU of the client's own, exact bytes, exact times."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.serve.servers import MODEL

SECONDS = 120


@dataclass(frozen=True, slots=True)
class Format:
    """One of the wire formats.

    text:  what a frame with text or reasoning holds, and no other frame
    usage: gives the number of completion tokens; the last match counts
    """

    name: str
    path: str
    body: Callable[[Messages, int], dict[str, Any]]
    text: re.Pattern[bytes]
    usage: re.Pattern[bytes]


Messages = Sequence[Mapping[str, Any]]


def _chat(messages: Messages, n: int) -> dict[str, Any]:
    return {
        "messages": messages,
        "max_tokens": n,
        "stream_options": {"include_usage": True},
    }


def _responses(messages: Messages, n: int) -> dict[str, Any]:
    return {"input": messages, "max_output_tokens": n, "store": False}


def _messages(messages: Messages, n: int) -> dict[str, Any]:
    return {"messages": messages, "max_tokens": n}


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            "chat",
            "/v1/chat/completions",
            _chat,
            re.compile(rb'"(?:content|reasoning_content|reasoning)": ?"[^"]'),
            re.compile(rb'"completion_tokens": ?(\d+)'),
        ),
        Format(
            "responses",
            "/v1/responses",
            _responses,
            re.compile(rb'"type": ?"response\.(?:output_text|reasoning_text|reasoning_summary_text)\.delta"'),
            re.compile(rb'"output_tokens": ?(\d+)'),
        ),
        Format(
            "messages",
            "/v1/messages",
            _messages,
            re.compile(rb'"type": ?"(?:text_delta|thinking_delta)"'),
            re.compile(rb'"output_tokens": ?(\d+)'),
        ),
    )
}


class Refused(Exception):
    """The server answered with another status than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:300]!r}")
        self.status = status


@dataclass(slots=True)
class Reply:
    """One stream as it came. Times are the monotonic clock's: asked, first frame with text, end."""

    asked: float
    first: float = 0.0
    end: float = 0.0
    n_frames: int = 0
    n_tokens: int = 0


class _Stream(asyncio.Protocol):
    """Counts frames as bytes come; looks at no more than it must."""

    def __init__(self, request: bytes, form: Format, done: asyncio.Future[Reply]) -> None:
        self.request, self.form, self.done = request, form, done
        self.reply = Reply(time.monotonic())
        self.rest = b""
        self.kept: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        data = self.rest + data
        # Frames end with an empty line; what follows the last one waits for its end.
        whole, _, self.rest = data.rpartition(b"\n\n")
        if found := len(self.form.text.findall(whole)):
            self.reply.first = self.reply.first or now
            self.reply.n_frames += found
        if usage := self.form.usage.findall(whole):
            self.reply.n_tokens = int(usage[-1])
        self.reply.end = now
        if not self.kept:
            self.kept.append(data[:600])

    def connection_lost(self, error: Exception | None) -> None:
        if self.done.done():
            return
        head = self.kept[0] if self.kept else b""
        status = int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0
        if status != 200:
            self.done.set_exception(Refused(status, head))
        else:
            self.done.set_result(self.reply)


async def ask(port: int, form: Format, bodies: Sequence[bytes]) -> list[Reply]:
    """All at once, each on its own connection. Raises Refused, OSError, TimeoutError."""
    loop = asyncio.get_running_loop()

    async def one(body: bytes) -> Reply:
        head = (
            f"POST {form.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"anthropic-version: 2023-06-01\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        done: asyncio.Future[Reply] = loop.create_future()
        await loop.create_connection(lambda: _Stream(head.encode() + body, form, done), "127.0.0.1", port)
        return await asyncio.wait_for(done, SECONDS)

    return list(await asyncio.gather(*map(one, bodies)))


def body(form: Format, messages: Messages, n_tokens: int) -> bytes:
    """A streamed request of `form`."""
    fields = {"model": MODEL, "stream": True, "temperature": 0, **form.body(messages, n_tokens)}
    return json.dumps(fields).encode()
