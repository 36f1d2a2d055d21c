"""`GET /v1/models` and `/v1/models/{id}`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from gateway.api.deps import Authorised
from gateway.api.openapi import error_responses
from gateway.schema.models import Model, ModelList
from gateway.service import Service

router = APIRouter(tags=["models"])


@router.get("/v1/models", response_model=ModelList, responses=error_responses(401))
async def list_models(caller: Authorised) -> Any:
    """All names this server answers to."""
    service = caller.service
    return {"object": "list", "data": [_model(service, name) for name in service.settings.served_model_name]}


@router.get("/v1/models/{name:path}", response_model=Model, responses=error_responses(401, 404))
async def get_model(caller: Authorised, name: str) -> Any:
    """One of them."""
    service = caller.service
    service.check_model(name)
    return _model(service, name)


def _model(service: Service, name: str) -> dict[str, Any]:
    engine = service.engine
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "moonshotai",
        "root": service.settings.model or "mini",
        # Nobody knows before the engine has read the checkpoint and the profile.
        "max_model_len": engine.info.max_model_len if engine else None,
    }
