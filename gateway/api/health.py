"""What is here (`/`), is the process worth keeping (`/health`), may requests come (`/ready`); metrics."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from engine.types import EngineDead
from gateway.api.deps import Served
from gateway.metrics import exposition

router = APIRouter(tags=["health"])
_UNAVAILABLE: dict[int | str, dict[str, Any]] = {503: {"description": "Not (yet, or any more)"}}


@router.get("/")
async def index(request: Request) -> dict[str, Any]:
    """What this is and where the rest is."""
    prefix = request.scope.get("root_path", "")
    paths = ("/docs", "/v1/models", "/v1/chat/completions", "/ready", "/health", "/metrics")
    return {
        "name": "k3-gateway",
        "version": importlib.metadata.version("k3-gateway"),
        "paths": [prefix + path for path in paths],
    }


@router.get("/health", responses=_UNAVAILABLE)
async def health(service: Served) -> JSONResponse:
    """200 while the process does its work, starting included; 503 once the engine died."""
    if service.status.phase == "ready" and service.engine is not None:
        try:
            await service.engine.check_health()
        except EngineDead as error:
            return JSONResponse({"status": "dead", "detail": str(error)}, 503)
    return JSONResponse(service.status.as_json(), 503 if service.status.phase == "dead" else 200)


@router.get("/ready", responses=_UNAVAILABLE)
async def ready(service: Served) -> JSONResponse:
    """200 once requests are answered; before that 503 with what is being done and for how long."""
    status = service.status
    return JSONResponse(status.as_json(), 200 if status.phase == "ready" else 503)


@router.get("/version")
async def version(service: Served) -> dict[str, Any]:
    """Versions of this service and of what computes."""
    return {
        "version": importlib.metadata.version("k3-gateway"),
        "engine": service.engine.info.engine_version if service.engine else None,
        "profile": service.settings.profile,
        "python": platform.python_version(),
    }


@router.get("/metrics", response_class=Response)
async def metrics(service: Served) -> Response:
    """Counters for Prometheus: requests, tokens, repairs, media, prefixes."""
    return Response(exposition(service), media_type=CONTENT_TYPE_LATEST)
