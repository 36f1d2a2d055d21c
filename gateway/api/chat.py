"""`POST /v1/chat/completions`: one body, or a stream of chunks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from engine.types import EngineError, TokenLogprob
from gateway.api.body import read_json
from gateway.api.disconnect import ClientDisconnected, end_tasks, unless_disconnected
from gateway.api.engine_errors import engine_failed
from gateway.api.openapi import body_of, error_responses
from gateway.api.replies import Replies, header_values
from gateway.api.stream import DONE, EventStream, sse
from gateway.completion import Completions, Counts, Prepared, Progress
from gateway.errors import ApiError, server_failed
from gateway.prefix.tenants import Tenant
from gateway.schema.chat import ChatRequest
from gateway.service import Service, service_of
from gateway.xtml import Event, ReasoningClosed, fold

router = APIRouter(tags=["chat"])
log = logging.getLogger(__name__)


@router.post(
    "/v1/chat/completions",
    openapi_extra=body_of(ChatRequest),
    responses=error_responses(400, 401, 404, 413, 415, 429, 502, 503),
    summary="Answer a conversation",
)
async def chat_completions(request: Request) -> Response:
    """Answer a conversation, whole or as server-sent events (`stream`)."""
    service = service_of(request)
    key = service.keys.check(request)
    async with AsyncExitStack() as held:
        try:
            body = await read_json(request, ChatRequest, service.settings.max_body_bytes)
            service.check_model(body.model)
            tenant = service.tenant(request, key, body.user)
            completions = service.completions()
            held.enter_context(service.admission.place())
            if body.stream:
                return await unless_disconnected(request, _streamed(service, completions, body, tenant, held))
            return await unless_disconnected(request, _whole(service, completions, body, tenant))
        except ClientDisconnected:
            return Response(status_code=499)  # nobody is there to read it; it ends up in the log


async def _whole(service: Service, completions: Completions, body: ChatRequest, tenant: Tenant) -> Response:
    prepared = await completions.prepare(body, tenant)
    replies = Replies(service.renderer, prepared.rendered)
    counts = Counts()
    n = prepared.sampling.n
    events: list[list[Event]] = [[] for _ in range(n)]
    logprobs: list[list[TokenLogprob]] = [[] for _ in range(n)]
    reasons: dict[int, str] = {}
    expected = _may_be_empty(prepared)
    try:
        async with aclosing(completions.run(prepared, body, replies.id, counts)) as progress:
            async for step in progress:
                events[step.index] += step.events
                logprobs[step.index] += step.logprobs or ()
                if step.finish_reason:
                    reasons[step.index] = step.finish_reason
                    expected = expected or _was_cut(step)
    except EngineError as error:
        raise engine_failed(error) from error
    folded = [fold(choice) for choice in events]
    if not expected and not any(r.reasoning or r.content or r.tool_calls or r.unparsed for r in folded):
        raise _empty()
    choices = [
        replies.choice(i, folded[i], reasons[i], logprobs[i] if body.logprobs else None) for i in range(n)
    ]
    return JSONResponse(replies.body(choices, counts), headers=header_values(prepared.rendered.headers))


async def _streamed(
    service: Service, completions: Completions, body: ChatRequest, tenant: Tenant, held: AsyncExitStack
) -> EventStream:
    """Start generating; an error that comes before anything was said is an HTTP status, not a frame.

    Waits for the first progress, but no longer than one keep-alive period, after which the client should
    see that the server is at work. The stream takes over what `held` holds.
    """
    prepared = await completions.prepare(body, tenant)
    replies = Replies(service.renderer, prepared.rendered)
    counts = Counts()
    progress = completions.run(prepared, body, replies.id, counts)
    held.push_async_callback(progress.aclose)
    first = asyncio.ensure_future(anext(progress, None))
    held.push_async_callback(end_tasks, first)
    keep_alive = service.settings.keep_alive_seconds
    await asyncio.wait({first}, timeout=keep_alive)
    if first.done():
        try:
            first.result()
        except EngineError as error:
            raise engine_failed(error) from error
    frames = _frames(_chunks(_resume(first, progress), replies, counts, body, prepared), replies.id)
    headers = header_values(prepared.rendered.headers)
    return EventStream(frames, held=held.pop_all(), headers=headers, keep_alive=keep_alive)


async def _resume(
    first: asyncio.Future[Progress | None], rest: AsyncGenerator[Progress, None]
) -> AsyncGenerator[Progress, None]:
    """`first`, which may still be awaited, then the rest."""
    step = await first
    if step is not None:
        yield step
        async for step in rest:
            yield step


async def _frames(chunks: AsyncGenerator[bytes, None], request_id: str) -> AsyncGenerator[bytes, None]:
    """The stream's frames; an error ends them with an error frame (docs/decisions.md#g08)."""
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                yield chunk
        except ApiError as error:
            yield sse(error.body)
        except EngineError as error:
            yield sse(engine_failed(error).body)
        except Exception:
            log.exception("request %s failed", request_id)
            yield sse(server_failed().body)


async def _chunks(
    progress: AsyncGenerator[Progress, None],
    replies: Replies,
    counts: Counts,
    body: ChatRequest,
    prepared: Prepared,
) -> AsyncGenerator[bytes, None]:
    options = body.stream_options
    in_every_chunk = bool(options and options.continuous_usage_stats)
    n_open = prepared.sampling.n
    expected = _may_be_empty(prepared)  # an end like the one that comes

    def frame(chunk: dict[str, Any]) -> bytes:
        return sse({**chunk, "usage": replies.usage(counts)} if in_every_chunk else chunk)

    async with aclosing(progress):
        for index in range(n_open):
            yield frame(replies.opening(index))
        async for step in progress:
            expected = expected or _was_cut(step) or any(map(_says_something, step.events))
            for chunk in replies.chunks(step):
                yield frame(chunk)
            if step.finish_reason:
                n_open -= 1
                if not n_open and not expected:
                    raise _empty()
                usage = None if n_open else replies.usage(counts)
                yield frame(replies.closing(step.index, step.finish_reason, usage))
    if options and options.include_usage:
        yield sse(replies.usage_chunk(counts))
    yield DONE


def _may_be_empty(prepared: Prepared) -> bool:
    """Whether there may be nothing to add: the client wrote the beginning of the content (`partial`)."""
    conversation = prepared.rendered.conversation
    return conversation.partial and any(conversation.messages[-1].parts)


def _was_cut(step: Progress) -> bool:
    """Whether the request's own limits ended the choice; then it says so, even where nothing was said."""
    return step.finish_reason == "length" or step.stop_string is not None


def _says_something(event: Event) -> bool:
    return not isinstance(event, ReasoningClosed)


def _empty() -> ApiError:
    """A reply with nothing in it must not look like a success, unless that is what was asked for."""
    return ApiError(502, "The model ended its reply without saying anything. Try again.", code="empty_reply")
