"""How many chat requests may be in progress at once."""

from __future__ import annotations

from gateway.errors import LimitReached


class Place:
    """A request's place among those in progress; given back once, however often `release` is called."""

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission

    def release(self) -> None:
        """Give it back; a stream does so before its client can see the end."""
        if self._admission is not None:
            self._admission.running -= 1
            self._admission = None


class Admission:
    """Counts requests in progress and refuses what is beyond the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.running = 0

    def place(self) -> Place:
        """Take a place.

        Raises:
            LimitReached: all places are taken.
        """
        if self.running >= self.limit:
            raise LimitReached(
                f"{self.running} requests are in progress, which is this server's limit "
                "(max_concurrent_requests); try again shortly",
                code="too_many_requests",
            )
        self.running += 1
        return Place(self)
