"""What both ways of sending a stream share: its headers, and its end when it broke."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from gateway.admission import Place
from gateway.api.errors import openai_body
from gateway.api.notes import note_headers
from gateway.errors import RequestError, ServerFault
from gateway.generation.generation import Generation
from gateway.wire.stream import ReplyStream

log = logging.getLogger(__name__)

ErrorBody = Callable[[RequestError], dict[str, Any]]


class SseResponse(Response):
    """Server-sent events of one generation.

    place:      given back before the client can see the end
    keep_alive: seconds of silence after which the client is shown that the server is at work
    error_body: an error as the wire format has it
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        generation: Generation,
        stream: ReplyStream,
        place: Place,
        keep_alive: float,
        error_body: ErrorBody = openai_body,
    ) -> None:
        self.generation = generation
        self.stream = stream
        self.place = place
        self.keep_alive = keep_alive
        self.error_body = error_body
        self.status_code = 200
        self.background = None

    def start_message(self) -> dict[str, Any]:
        """The message that begins the response, with the notes made so far."""
        self.init_headers(
            {
                "cache-control": "no-cache",
                # nginx buffers answers unless told not to; a buffered stream is useless.
                "x-accel-buffering": "no",
                **note_headers(self.generation.notes),
            }
        )
        return {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}

    def broken(self, error: Exception) -> bytes:
        """The last frames of a stream that broke (docs/decisions.md#g08)."""
        if not isinstance(error, RequestError):
            log.error("request %s failed", self.generation.id, exc_info=error)
            error = ServerFault()
        return self.stream.failed(error, self.error_body(error))
