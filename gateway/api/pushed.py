"""A stream without a task of its own: a step of the engine becomes bytes of the connection in one pass.

The server's `send` is driven by hand. It finishes at once as long as the connection takes what it is given;
only when it does not, a task waits for it, and until then the generation keeps ids instead of frames.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.admission import Place
from gateway.api.disconnect import ClientDisconnected, disconnected
from gateway.api.errors import openai_body
from gateway.api.sse import ErrorBody, SseResponse
from gateway.generation.generation import Generation, Progress
from gateway.generation.pushing import Pushing
from gateway.wire.stream import ReplyStream


class PushedStream(SseResponse):
    """Sends a generation that the engine pushes; a client that goes away aborts it at once.

    An error that comes before anything was said is raised, so that it becomes an HTTP status.
    """

    def __init__(
        self,
        generation: Generation,
        stream: ReplyStream,
        place: Place,
        keep_alive: float,
        error_body: ErrorBody = openai_body,
    ) -> None:
        super().__init__(generation, stream, place, keep_alive, error_body)
        self._pushing = Pushing(generation, self._progress, self._end)
        self._loop = asyncio.get_running_loop()
        # There is something to send, or it is time to show a sign of life.
        self._first: asyncio.Future[None] = self._loop.create_future()
        # The end is sent, or the client is gone.
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._send: Send | None = None
        self._sending: asyncio.Task[None] | None = None
        self._waiting: Progress | None = None  # until the opening is sent
        self._error: Exception | None = None
        self._last = 0.0
        self._timer = self._loop.call_later(keep_alive, _settle, self._first)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(disconnected(receive))
        gone.add_done_callback(self._gone)
        try:
            await self._pushing.start()
            await self._first
            if self._error is not None:
                raise self._error
            if gone.done():
                raise ClientDisconnected
            await send(self.start_message())
            self._send = send
            first = self.stream.opening()  # before any frame is made: frames are numbered
            if self._waiting is not None:
                first += self.stream.feed(self._waiting)
            self._body(first)
            self._timer.cancel()
            self._timer = self._loop.call_later(self.keep_alive, self._silence)
            if self._sending is None:
                self._pushing.resume()
            await self._over
        finally:
            gone.cancel()
            self._timer.cancel()
            if self._sending is not None:
                self._sending.cancel()
            await self._pushing.leave()
            self.place.release()

    def _progress(self, progress: Progress) -> None:
        if self._send is None:
            self._waiting = progress
            self._pushing.pause()
            _settle(self._first)
        elif frames := self.stream.feed(progress):
            self._body(frames)

    def _end(self, error: Exception | None) -> None:
        if self._send is None:
            self._error = error
            _settle(self._first)
            return
        frames = self.stream.closing() if error is None else self.broken(error)
        self.place.release()  # before the client can see the end and ask for the next
        self._body(frames, more=False)

    def _body(self, data: bytes, more: bool = True) -> None:
        """Hand bytes to the connection; while it does not take them, the generation pauses."""
        assert self._send is not None
        self._last = self._loop.time()
        sending = self._send({"type": "http.response.body", "body": data, "more_body": more})
        assert isinstance(sending, Coroutine)
        try:
            waits_for = sending.send(None)
        except StopIteration:
            if not more:
                _settle(self._over)
            return
        self._pushing.pause()
        self._sending = self._loop.create_task(self._finish(sending, waits_for, more))

    async def _finish(self, sending: Coroutine[Any, Any, None], waits_for: Any, more: bool) -> None:
        try:
            await _rest_of(sending, waits_for)
        except Exception:
            _settle(self._over)  # the connection is lost
            raise
        self._sending = None
        if more:
            self._pushing.resume()
        else:
            _settle(self._over)

    def _silence(self) -> None:
        """A keep-alive is due, unless something was sent meanwhile or is being sent."""
        wait = self._last + self.keep_alive - self._loop.time()
        if wait <= 0:
            wait = self.keep_alive
            if self._sending is None and not self._over.done():
                self._body(self.stream.keep_alive())
        self._timer = self._loop.call_later(wait, self._silence)

    def _gone(self, _: asyncio.Future[None]) -> None:
        _settle(self._first)
        _settle(self._over)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@types.coroutine
def _rest_of(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Await a coroutine whose first step was taken by hand and gave `waits_for`."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:
            try:
                waits_for = coroutine.throw(error)
            except StopIteration:
                return
        else:
            try:
                waits_for = coroutine.send(value)
            except StopIteration:
                return
