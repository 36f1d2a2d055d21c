"""`POST /v1/tokenizers/estimate-token-count`: what a chat request's prompt would count."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from gateway.api.body import read_json
from gateway.api.disconnect import ClientDisconnected, unless_disconnected
from gateway.api.openapi import body_of, error_responses
from gateway.schema.chat import ChatRequest
from gateway.schema.tokens import TokenCount
from gateway.service import service_of

router = APIRouter(tags=["tokens"])


@router.post(
    "/v1/tokenizers/estimate-token-count",
    response_model=TokenCount,
    openapi_extra=body_of(ChatRequest),
    responses=error_responses(400, 401, 404, 413, 415),
)
async def estimate_token_count(request: Request) -> Any:
    """Render the request as `/v1/chat/completions` would and count; needs no engine."""
    service = service_of(request)
    service.keys.check(request)
    try:
        body = await read_json(request, ChatRequest, service.settings.max_body_bytes)
        service.check_model(body.model)
        rendered = await unless_disconnected(request, service.renderer.render(body))
    except ClientDisconnected:
        return Response(status_code=499)
    return {
        "data": {
            "total_tokens": service.renderer.n_prompt(rendered.prompt),
            "image_tokens": rendered.n_image_tokens,
            "video_tokens": rendered.n_video_tokens,
        }
    }
