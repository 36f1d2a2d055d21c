"""`POST /v1/tokenizers/estimate-token-count`: what a chat request's prompt would count."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from gateway.api.body import aside, read_json
from gateway.api.deps import Authorised
from gateway.api.disconnect import unless_disconnected
from gateway.api.openapi import body_of, error_responses
from gateway.schema.chat import ChatRequest
from gateway.schema.tokens import TokenCount
from gateway.wire.chat.request import read_chat

router = APIRouter(tags=["tokens"])


@router.post(
    "/v1/tokenizers/estimate-token-count",
    response_model=TokenCount,
    openapi_extra=body_of(ChatRequest),
    responses=error_responses(400, 401, 404, 413, 415),
)
async def estimate_token_count(request: Request, caller: Authorised) -> Any:
    """Render the request as `/v1/chat/completions` would and count; needs no engine."""
    renderer = caller.service.renderer
    body = await read_json(request, ChatRequest, caller.service.settings.max_body_bytes)
    caller.service.check_model(body.model)
    asked = await aside(request, read_chat, body, caller.service.reading())
    rendered = await unless_disconnected(request, renderer.render(asked))
    return {
        "data": {
            "total_tokens": renderer.n_prompt(rendered.prompt),
            "image_tokens": rendered.n_image_tokens,
            "video_tokens": rendered.n_video_tokens,
        }
    }
