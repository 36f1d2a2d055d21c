"""What clients are told of an engine's errors."""

from __future__ import annotations

from engine.types import EngineDead, EngineError, EngineRejected
from gateway.errors import ReplyUnusable, RequestError, Unavailable, bad_request


def as_request_error(error: EngineError) -> RequestError:
    """Refusals are the client's to mend, a dead engine is the operator's, all else a failed generation."""
    if isinstance(error, EngineRejected):
        return bad_request(str(error))
    if isinstance(error, EngineDead):
        return Unavailable("The engine has stopped; the server restarts. Try again.", code="engine_dead")
    return ReplyUnusable(f"Generation failed: {error}", code="generation_failed")
