"""Server-sent events: frames as they come, comments while there is nothing to say, an end in every case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.disconnect import disconnected, end_tasks

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


def sse(data: Mapping[str, Any]) -> bytes:
    """One `data:` frame."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """Sends `frames` as they come; a client that goes away closes the generator at once.

    `keep_alive` is the number of seconds after which a silent stream gets a comment, so that no proxy or
    client takes it for dead (docs/decisions.md#a08). `held` is what the stream needs until it ends; a
    generator that was never started would not release it by itself.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        held: AsyncExitStack,
        headers: Mapping[str, str],
        keep_alive: float,
    ) -> None:
        # nginx buffers answers unless told not to; a buffered stream is not a stream.
        super().__init__(
            headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers},
            media_type=self.media_type,
        )
        del self.headers["content-length"]
        self.frames = frames
        self.held = held
        self.keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sender = _Sender(send, self.keep_alive)
        pump = asyncio.ensure_future(sender.pump(self.frames, self.held))
        comments = asyncio.ensure_future(sender.comment())
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            await end_tasks(pump, comments, gone)
            await self.frames.aclose()
            await self.held.aclose()


class _Sender:
    """Body sends of one stream, and when the last of them was."""

    def __init__(self, send: Send, keep_alive: float) -> None:
        self.send = send
        self.keep_alive = keep_alive
        self.clock = asyncio.get_running_loop().time
        self.last = self.clock()

    async def body(self, data: bytes, more: bool = True) -> None:
        self.last = self.clock()
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def pump(self, frames: AsyncGenerator[bytes, None], held: AsyncExitStack) -> None:
        async for frame in frames:
            await self.body(frame)
        await held.aclose()  # before the client can see the end and ask for the next
        await self.body(b"", more=False)

    async def comment(self) -> None:
        while True:
            wait = self.last + self.keep_alive - self.clock()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                await self.body(KEEP_ALIVE)
