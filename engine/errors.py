"""What goes wrong before the engine runs. Errors of requests are in `engine.types`."""

from __future__ import annotations


class EngineStartError(Exception):
    """The engine cannot start. `message` says what is wrong, `remedy` what to do about it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}")
        self.message = message
        self.remedy = remedy
