"""`/v1/responses`: OpenAI's Responses format, whole or as events; stored responses; token counts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.api.body import aside, read_json
from gateway.api.chat import run_whole
from gateway.api.deps import Admitted, Authorised, Caller, Engine
from gateway.api.disconnect import unless_disconnected
from gateway.api.notes import note_headers
from gateway.api.openapi import body_of, error_responses
from gateway.api.stream import start_stream
from gateway.errors import bad_request
from gateway.schema.responses import InputTokensRequest, ResponsesRequest
from gateway.schema.responses_replies import InputTokens, ResponsesReply
from gateway.wire.responses.replies import ResponsesReplies, ResponsesStream
from gateway.wire.responses.request import input_items, read_responses

router = APIRouter(tags=["responses"])


@router.post(
    "/v1/responses",
    response_model=ResponsesReply,
    openapi_extra=body_of(ResponsesRequest),
    responses=error_responses(400, 401, 404, 413, 415, 429, 502, 503),
    summary="Answer a conversation in the Responses format",
)
async def create_response(request: Request, caller: Authorised, place: Admitted, engine: Engine) -> Response:
    """Answer a conversation, whole or as server-sent events (`stream`)."""
    service = caller.service
    body = await read_json(request, ResponsesRequest, service.settings.max_body_bytes)
    service.check_model(body.model)
    tenant = caller.tenant(body.user)
    earlier = _earlier(caller, body)
    ask = await aside(request, read_responses, body, earlier, service.reading())
    generation = await unless_disconnected(request, engine.begin(ask.request, tenant))
    wants_store = body.store is not False and service.responses.is_on
    if body.store and not wants_store:
        generation.notes.add("ignored", ["store"])
    replies = ResponsesReplies(
        generation, body, ask.origins, wants_summary=ask.wants_summary, is_stored=wants_store
    )

    def keep(response: dict[str, Any]) -> None:
        if wants_store:
            service.responses.put(tenant.name, response, earlier, tuple(input_items(body)))

    if body.stream:
        stream = ResponsesStream(replies, keep)
        seconds = service.settings.keep_alive_seconds
        return await start_stream(request, generation, stream, place, keep_alive=seconds)
    await unless_disconnected(request, run_whole(generation))
    response = replies.body()
    keep(response)
    return JSONResponse(response, headers=note_headers(generation.notes))


@router.post(
    "/v1/responses/input_tokens",
    response_model=InputTokens,
    openapi_extra=body_of(InputTokensRequest),
    responses=error_responses(400, 401, 404, 413, 415),
    summary="Count the prompt of a conversation in the Responses format",
)
async def input_tokens(request: Request, caller: Authorised) -> Any:
    """Render the request as `/v1/responses` would and count; needs no engine."""
    service = caller.service
    body = await read_json(request, InputTokensRequest, service.settings.max_body_bytes)
    service.check_model(body.model)
    ask = await aside(request, read_responses, body, _earlier(caller, body), service.reading())
    rendered = await unless_disconnected(request, service.renderer.render(ask.request))
    return {"object": "response.input_tokens", "input_tokens": service.renderer.n_prompt(rendered.prompt)}


@router.post("/v1/responses/compact", responses=error_responses(400, 401), include_in_schema=False)
async def compact(caller: Authorised) -> None:
    """Refused: agents that need it fall back to a summary of their own."""
    raise bad_request("Responses are not compacted here; send a shorter history")


@router.get(
    "/v1/responses/{response_id}", responses=error_responses(400, 401, 404), response_model=ResponsesReply
)
async def get_response(caller: Authorised, response_id: str, user: str | None = None) -> Response:
    """A stored response."""
    return JSONResponse(_stored(caller, response_id, user).response)


@router.delete("/v1/responses/{response_id}", responses=error_responses(400, 401, 404))
async def delete_response(caller: Authorised, response_id: str, user: str | None = None) -> dict[str, Any]:
    """Keep it no longer."""
    caller.service.responses.delete(caller.tenant(user).name, response_id)
    return {"id": response_id, "object": "response", "deleted": True}


@router.post("/v1/responses/{response_id}/cancel", responses=error_responses(400, 401, 404))
async def cancel_response(caller: Authorised, response_id: str, user: str | None = None) -> None:
    """Only responses in the background could be cancelled; to end a stream, close the connection."""
    _stored(caller, response_id, user)
    raise bad_request("Only responses made in the background can be cancelled; this one is complete")


@router.get("/v1/responses/{response_id}/input_items", responses=error_responses(400, 401, 404))
async def list_input_items(
    caller: Authorised,
    response_id: str,
    after: str | None = None,
    limit: int = 20,
    order: str = "desc",
    user: str | None = None,
) -> dict[str, Any]:
    """The items that a stored response was made from."""
    if not 1 <= limit <= 100:
        raise bad_request("limit must be from 1 to 100", "limit")
    if order not in ("asc", "desc"):
        raise bad_request("order must be asc or desc", "order")
    stored = _stored(caller, response_id, user)
    items = [
        {**item, "id": item.get("id") or f"item_{response_id[5:]}_{number}"}
        for number, item in enumerate((*stored.earlier, *stored.input))
    ]
    if order == "desc":
        items.reverse()
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise bad_request(f"after: the response has no item {after[:80]!r}", "after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }


def _earlier(caller: Caller, body: InputTokensRequest) -> tuple[Any, ...]:
    """The items of the response that the request goes on from."""
    if body.previous_response_id is None:
        return ()
    store = caller.service.responses
    tenant = caller.tenant(body.user).name
    return store.get(tenant, body.previous_response_id, "previous_response_id").history


def _stored(caller: Caller, response_id: str, user: str | None) -> Any:
    return caller.service.responses.get(caller.tenant(user).name, response_id)
