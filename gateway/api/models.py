"""`GET /v1/models` and `/v1/models/{id}`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request

from gateway.api.deps import Authorised
from gateway.api.errors import is_anthropic
from gateway.api.openapi import error_responses
from gateway.schema.models import AnthropicModel, AnthropicModelList, Model, ModelList
from gateway.service import Service

router = APIRouter(tags=["models"])


@router.get("/v1/models", response_model=ModelList | AnthropicModelList, responses=error_responses(401))
async def list_models(request: Request, caller: Authorised) -> Any:
    """All names this server answers to; in Anthropic's form for clients that send `anthropic-version`."""
    service = caller.service
    names = service.settings.served_model_name
    if not is_anthropic(request):
        return {"object": "list", "data": [_model(service, name) for name in names]}
    return {
        "data": [_anthropic_model(service, name) for name in names],
        "first_id": names[0],
        "last_id": names[-1],
        "has_more": False,
    }


@router.get(
    "/v1/models/{name:path}", response_model=Model | AnthropicModel, responses=error_responses(401, 404)
)
async def get_model(request: Request, caller: Authorised, name: str) -> Any:
    """One of them."""
    service = caller.service
    service.check_model(name)
    return _anthropic_model(service, name) if is_anthropic(request) else _model(service, name)


def _context(service: Service) -> int | None:
    """Tokens; nobody knows before the engine has read the checkpoint and the profile."""
    return service.engine.info.max_model_len if service.engine else None


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "moonshotai",
        "root": service.settings.model or "mini",
        "max_model_len": _context(service),
        "context_length": _context(service),
        "supports_reasoning": True,
        "supports_image_in": True,
        "supports_video_in": True,
        "supports_thinking_type": "both",
    }


def _anthropic_model(service: Service, name: str) -> dict[str, Any]:
    created = datetime.fromtimestamp(service.created, UTC).isoformat().replace("+00:00", "Z")
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created,
        "lifecycle": "active",
        "max_input_tokens": _context(service),
        "max_tokens": _context(service),
    }
