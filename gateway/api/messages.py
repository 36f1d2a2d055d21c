"""`POST /v1/messages` and `/v1/messages/count_tokens`, also under `/anthropic`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.api.body import aside, read_json
from gateway.api.chat import run_whole
from gateway.api.deps import Admitted, Authorised, Engine
from gateway.api.disconnect import unless_disconnected
from gateway.api.errors import anthropic_body
from gateway.api.notes import note_headers
from gateway.api.openapi import body_of, error_responses
from gateway.api.stream import start_stream
from gateway.schema.error import AnthropicErrorBody
from gateway.schema.messages import CountTokensRequest, MessagesRequest
from gateway.schema.messages_replies import MessagesReply, TokenCount
from gateway.wire.messages.replies import MessagesReplies, MessagesStream
from gateway.wire.messages.request import read_messages, user_of

router = APIRouter(tags=["messages"])


@router.post("/anthropic/v1/messages", include_in_schema=False, openapi_extra=body_of(MessagesRequest))
@router.post(
    "/v1/messages",
    response_model=MessagesReply,
    openapi_extra=body_of(MessagesRequest),
    responses=error_responses(400, 401, 404, 413, 415, 429, 502, 529, model=AnthropicErrorBody),
    summary="Answer a conversation in Anthropic's format",
)
async def messages(request: Request, caller: Authorised, place: Admitted, engine: Engine) -> Response:
    """Answer a conversation, whole or as server-sent events (`stream`).

    With `max_tokens` 0 the prompt is computed and kept in the cache, and nothing is said.
    """
    settings = caller.service.settings
    body = await read_json(request, MessagesRequest, settings.max_body_bytes)
    caller.service.check_model(body.model)
    asked = await aside(request, read_messages, body, caller.service.reading())
    beginning = engine.begin(asked, caller.tenant(user_of(body)))
    generation = await unless_disconnected(request, beginning)
    replies = MessagesReplies(generation, only_prewarms=body.max_tokens == 0)
    if body.stream:
        return await start_stream(
            request,
            generation,
            MessagesStream(replies),
            place,
            keep_alive=settings.keep_alive_seconds,
            error_body=anthropic_body,
        )
    await unless_disconnected(request, run_whole(generation))
    return JSONResponse(replies.body(), headers=note_headers(generation.notes))


@router.post(
    "/anthropic/v1/messages/count_tokens", include_in_schema=False, openapi_extra=body_of(CountTokensRequest)
)
@router.post(
    "/v1/messages/count_tokens",
    response_model=TokenCount,
    openapi_extra=body_of(CountTokensRequest),
    responses=error_responses(400, 401, 404, 413, 415, model=AnthropicErrorBody),
    summary="Count the prompt of a conversation in Anthropic's format",
)
async def count_tokens(request: Request, caller: Authorised) -> Any:
    """Render the request as `/v1/messages` would and count; needs no engine."""
    renderer = caller.service.renderer
    body = await read_json(request, CountTokensRequest, caller.service.settings.max_body_bytes)
    caller.service.check_model(body.model)
    asked = await aside(request, read_messages, body, caller.service.reading())
    rendered = await unless_disconnected(request, renderer.render(asked))
    return {"input_tokens": renderer.n_prompt(rendered.prompt)}
