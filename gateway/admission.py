"""How many chat requests may be in progress at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import ApiError


class Admission:
    """Counts requests in progress and refuses what is beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place for the time of a request.

        Raises:
            ApiError: 429, all places are taken.
        """
        if self.running >= self.limit:
            raise ApiError(
                429,
                f"{self.running} requests are in progress, which is this server's limit; try again shortly",
                code="too_many_requests",
                headers={"retry-after": "1"},
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
