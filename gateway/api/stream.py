"""A generation as server-sent events: frames as they come, keep-alives in silence, an end in every case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from fastapi import Request
from starlette.types import Receive, Scope, Send

from gateway.admission import Place
from gateway.api.disconnect import disconnected, end_tasks, unless_disconnected
from gateway.api.errors import openai_body
from gateway.api.pushed import PushedStream
from gateway.api.sse import ErrorBody, SseResponse
from gateway.generation.generation import Generation, Progress
from gateway.wire.stream import ReplyStream


async def start_stream(
    request: Request,
    generation: Generation,
    stream: ReplyStream,
    place: Place,
    *,
    keep_alive: float,
    error_body: ErrorBody = openai_body,
) -> SseResponse:
    """Start generating; an error that comes before anything was said is an HTTP status, not a frame.

    Waits for the first progress, but no longer than one keep-alive period (seconds), after which the client
    should see that the server is at work. `place` is given back before the client can see the end.
    """
    if generation.can_push:
        return PushedStream(generation, stream, place, keep_alive, error_body)
    progress = generation.progress()
    first = asyncio.ensure_future(anext(progress, None))
    try:
        await unless_disconnected(request, _settled(first, keep_alive))
    except BaseException:
        await end_tasks(first)
        await progress.aclose()
        raise
    return EventStream(generation, stream, progress, first, place, keep_alive, error_body)


async def _settled(first: asyncio.Future[Progress | None], seconds: float) -> None:
    """Wait for `first`; raises what it raised."""
    await asyncio.wait({first}, timeout=seconds)
    if first.done():
        first.result()


class EventStream(SseResponse):
    """Sends a generation that is pulled; a client that goes away aborts it at once."""

    def __init__(
        self,
        generation: Generation,
        stream: ReplyStream,
        progress: AsyncGenerator[Progress, None],
        first: asyncio.Future[Progress | None],
        place: Place,
        keep_alive: float,
        error_body: ErrorBody,
    ) -> None:
        super().__init__(generation, stream, place, keep_alive, error_body)
        self.progress = progress
        self.first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pump: asyncio.Future[None] | None = None
        gone = asyncio.ensure_future(disconnected(receive))
        silence: asyncio.Future[None] | None = None
        try:
            await send(self.start_message())
            sender = _Sender(send, self.keep_alive)
            pump = asyncio.ensure_future(self._pump(sender))
            silence = asyncio.ensure_future(sender.fill_silence(self.stream))
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            await end_tasks(*(task for task in (pump, silence, gone, self.first) if task is not None))
            await self.progress.aclose()
            self.place.release()

    async def _pump(self, sender: _Sender) -> None:
        stream = self.stream
        await sender.body(stream.opening())
        try:
            step = await self.first
            while step is not None:
                if frames := stream.feed(step):
                    await sender.body(frames)
                step = await anext(self.progress, None)
            end = stream.closing()
        except Exception as error:
            end = self.broken(error)
        await self.progress.aclose()
        self.place.release()  # before the client can see the end and ask for the next
        await sender.body(end)
        await sender.body(b"", more=False)


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

    async def fill_silence(self, stream: ReplyStream) -> None:
        while True:
            wait = self.last + self.keep_alive - self.clock()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                await self.body(stream.keep_alive())
