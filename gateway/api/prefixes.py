"""`/v1/prefixes`: pin prefixes, and explain where a prompt differs from what is cached."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request

from engine.types import EngineDead, EngineError, Sampling
from gateway.api.body import aside, read_json
from gateway.api.deps import Authorised, Caller
from gateway.api.disconnect import unless_disconnected
from gateway.api.openapi import body_of, error_responses
from gateway.errors import Forbidden, NotFound
from gateway.generation.engine_errors import as_request_error
from gateway.generation.options import Request as Asked
from gateway.pins.book import Pin
from gateway.prefix.tenants import SHARED, Tenant
from gateway.schema.chat import ChatRequest
from gateway.schema.prefixes import Explained, Pinned, PinnedList, PinRequest
from gateway.service import Service
from gateway.wire.chat.request import read_chat

router = APIRouter(tags=["prefixes"])


@router.post(
    "/v1/prefixes",
    status_code=201,
    response_model=Pinned,
    openapi_extra=body_of(PinRequest),
    responses=error_responses(400, 401, 403, 413, 415, 503),
)
async def pin_prefix(request: Request, caller: Authorised) -> Any:
    """Render, prefill and keep a prefix; answers when every rank was asked whether it has it."""
    service = caller.service
    pinning = service.pinning()
    body = await read_json(request, PinRequest, service.settings.max_body_bytes)
    tenant = _tenant_for_pin(caller, body)
    before = pinning.book.get(tenant.name, body.name)
    if before is not None and before.from_settings:
        raise _belongs_to_settings(before)
    try:
        pin = await unless_disconnected(request, pinning.pin(tenant, body))
    except EngineDead as error:
        raise as_request_error(error) from error
    return pinning.as_json(pin)


@router.get("/v1/prefixes", response_model=PinnedList, responses=error_responses(401, 503))
async def list_prefixes(caller: Authorised, user: str | None = None) -> Any:
    """The caller's pins and the shared ones."""
    service = caller.service
    tenant = service.renderer.prefixes.tenant(caller.key, user)
    pinning, prefixes = service.pinning(), service.renderer.prefixes
    return {
        "object": "list",
        "data": [pinning.as_json(pin) for pin in pinning.book.of(tenant.name, SHARED)],
        "budget_tokens": pinning.book.budget,
        "taken_tokens": pinning.book.n_tokens,
        "changes": dict(prefixes.changes),
        "lost_tokens": dict(prefixes.lost),
    }


@router.get("/v1/prefixes/{name}", response_model=Pinned, responses=error_responses(401, 404, 503))
async def get_prefix(caller: Authorised, name: str, user: str | None = None) -> Any:
    """One of them."""
    return caller.service.pinning().as_json(_find(caller, user, name))


@router.delete("/v1/prefixes/{name}", status_code=204, responses=error_responses(401, 403, 404, 503))
async def delete_prefix(caller: Authorised, name: str, user: str | None = None) -> None:
    """Keep it no longer."""
    pin = _find(caller, user, name)
    if pin.from_settings:
        raise _belongs_to_settings(pin)
    caller.service.pinning().book.remove(pin)


@router.post(
    "/v1/prefixes/explain",
    response_model=Explained,
    openapi_extra=body_of(ChatRequest),
    responses=error_responses(400, 401, 404, 413, 415, 502, 503),
)
async def explain_prefix(request: Request, caller: Authorised, probe: bool = False) -> Any:
    """What would become of a chat request's prompt. `?probe=true` asks the engine, which computes it."""
    service = caller.service
    body = await read_json(request, ChatRequest, service.settings.max_body_bytes)
    service.check_model(body.model)
    asked = await aside(request, read_chat, body, service.reading())
    return await unless_disconnected(request, _explain(service, asked, caller.tenant(body.user), probe))


async def _explain(service: Service, asked: Asked, tenant: Tenant, probe: bool) -> dict[str, Any]:
    rendered = await service.renderer.render(asked, tenant)
    prefixes, written = service.renderer.prefixes, rendered.written
    account, match = prefixes.explain(tenant, written, asked.options.cache_hint)
    if probe:
        service.pinning()  # the engine must be up
        assert service.engine is not None
        several = service.engine.info.n_data_parallel_ranks > 1
        sampling = Sampling(1, temperature=0.0, data_parallel_rank=account.rank if several else None)
        try:
            steps = service.engine.generate(
                rendered.engine_prompt, sampling, f"probe-{uuid.uuid4().hex[:16]}"
            )
            async with aclosing(steps):
                async for step in steps:
                    account.n_cached = max(account.n_cached or 0, step.n_cached or 0)
        except EngineError as error:
            raise as_request_error(error) from error
    known = match.known[-1].end if match.known else 0
    sections = [
        {
            "kind": section.kind,
            "path": section.path,
            "tokens": section.end - section.start,
            "end": section.end,
            "known": section.end <= known,
        }
        for section in written.prompt.sections
    ]
    return {**account.as_json(), "unit": prefixes.unit, "sections": sections}


def _tenant_for_pin(caller: Caller, body: PinRequest) -> Tenant:
    """Own, or shared. Where tenants are kept apart, only the settings can share: a pin of somebody else's
    making must not draw others' prompts into a part of the cache that he can time."""
    prefixes, key = caller.service.renderer.prefixes, caller.key
    if body.tenant == SHARED:
        if prefixes.isolation != "none":
            raise Forbidden(
                "With cache_isolation, shared prefixes are pinned by the setting prefix_files", "tenant"
            )
        return prefixes.tenant(None, None, shared=True)
    if key is not None and body.tenant not in (None, "own"):
        raise Forbidden("tenant is `own` or `shared`: an API key pins for itself", "tenant")
    return prefixes.tenant(key, None if body.tenant == "own" else body.tenant)


def _find(caller: Caller, user: str | None, name: str) -> Pin:
    book = caller.service.pinning().book
    tenant = caller.service.renderer.prefixes.tenant(caller.key, user)
    pin = book.get(tenant.name, name) or book.get(SHARED, name)
    if pin is None:
        raise NotFound(f"There is no prefix {name!r}", "name", "prefix_not_found")
    return pin


def _belongs_to_settings(pin: Pin) -> Forbidden:
    return Forbidden(f"The prefix {pin.name!r} is pinned by the settings (prefix_files)", "name")
