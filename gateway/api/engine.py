"""`GET /v1/engine/patches`: what became of each engine patch, in the front end and in every rank."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from gateway.api.openapi import error_responses
from gateway.service import service_of

router = APIRouter(tags=["engine"])


@router.get("/v1/engine/patches", responses=error_responses(401, 503))
async def engine_patches(request: Request) -> dict[str, Any]:
    """The table of `k3 patches`, from the running engine."""
    service = service_of(request)
    service.keys.check(request)
    return await service.engine_patches()
