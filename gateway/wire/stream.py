"""What a wire format's stream is to the code that sends it."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.errors import RequestError
from gateway.generation.generation import Progress


class ReplyStream(Protocol):
    """Frames of one streamed reply. Plain calls: nothing waits, each returns bytes to send (maybe none).

    `opening` comes once, before all else: with the engine's first step, or at the first keep-alive.
    """

    def opening(self) -> bytes: ...

    def feed(self, progress: Progress) -> bytes:
        """The frames of one step."""
        ...

    def closing(self) -> bytes:
        """The end of a reply whose every choice is complete."""
        ...

    def failed(self, error: RequestError, body: dict[str, Any]) -> bytes:
        """The end of a reply that broke; `body` is the error as the format's HTTP errors have it."""
        ...

    def keep_alive(self) -> bytes:
        """Sent while there is nothing to say, so that no proxy or client takes the stream for dead."""
        ...
