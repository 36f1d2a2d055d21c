"""What clients are told of an engine's errors."""

from __future__ import annotations

from engine.types import EngineDead, EngineError, EngineRejected
from gateway.errors import ApiError, bad_request


def engine_failed(error: EngineError) -> ApiError:
    """400 for what the engine refuses, 503 where it is dead, 502 for all else."""
    if isinstance(error, EngineRejected):
        return bad_request(str(error))
    if isinstance(error, EngineDead):
        return ApiError(503, "The engine has stopped; the server restarts. Try again.", code="engine_dead")
    return ApiError(502, f"Generation failed: {error}", code="generation_failed")
