"""`POST /v1/chat/completions`: one body, or a stream of chunks."""

from __future__ import annotations

from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.api.body import aside, read_json
from gateway.api.deps import Admitted, Authorised, Engine
from gateway.api.disconnect import unless_disconnected
from gateway.api.notes import note_headers
from gateway.api.openapi import body_of, error_responses
from gateway.api.stream import start_stream
from gateway.generation.generation import Generation
from gateway.generation.pushing import run_pushed
from gateway.schema.chat import ChatRequest
from gateway.schema.chat_replies import ChatCompletion
from gateway.wire.chat.replies import ChatReplies, ChatStream
from gateway.wire.chat.request import read_chat

router = APIRouter(tags=["chat"])


@router.post(
    "/v1/chat/completions",
    response_model=ChatCompletion,
    openapi_extra=body_of(ChatRequest),
    responses=error_responses(400, 401, 404, 413, 415, 429, 502, 503),
    summary="Answer a conversation",
)
async def chat_completions(request: Request, caller: Authorised, place: Admitted, engine: Engine) -> Response:
    """Answer a conversation, whole or as server-sent events (`stream`)."""
    settings = caller.service.settings
    body = await read_json(request, ChatRequest, settings.max_body_bytes)
    caller.service.check_model(body.model)
    asked = await aside(request, read_chat, body, caller.service.reading())
    generation = await unless_disconnected(request, engine.begin(asked, caller.tenant(body.user)))
    replies = ChatReplies(generation, settings.reasoning_field)
    if not body.stream:
        await unless_disconnected(request, run_whole(generation))
        return JSONResponse(replies.body(), headers=note_headers(generation.notes))
    options = body.stream_options
    stream = ChatStream(
        replies,
        include_usage=bool(options and options.include_usage),
        usage_in_all_chunks=bool(options and options.continuous_usage_stats),
    )
    return await start_stream(request, generation, stream, place, keep_alive=settings.keep_alive_seconds)


async def run_whole(generation: Generation) -> None:
    """Run it to its end; what was said is in its choices."""
    if generation.can_push:
        await run_pushed(generation)
        return
    async with aclosing(generation.progress()) as progress:
        async for _ in progress:
            pass
