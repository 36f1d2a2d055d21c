"""`GET /v1/engine/patches`: what became of each engine patch, in the front end and in every rank."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from gateway.api.deps import Authorised
from gateway.api.openapi import error_responses

router = APIRouter(tags=["engine"])


@router.get("/v1/engine/patches", responses=error_responses(401, 503))
async def engine_patches(caller: Authorised) -> dict[str, Any]:
    """The table of `k3 patches`, from the running engine."""
    return await caller.service.engine_patches()
