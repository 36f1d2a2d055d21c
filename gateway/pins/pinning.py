"""Makes pins out of requests, from HTTP, from files named in the settings, and from an earlier run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from engine.types import EngineClient
from gateway.errors import RequestError, bad_request
from gateway.generation.options import Request
from gateway.generation.rendering import Renderer, refused
from gateway.pins.book import Pin, PinBook, PinError, PinnedPrompt, pinned_prompt, short
from gateway.pins.keep_warm import KeepWarm
from gateway.prefix.tenants import SHARED, Tenant, shared_tenant
from gateway.schema.prefixes import PinRequest
from gateway.xtml import ConversationError, from_request

log = logging.getLogger(__name__)

_PLACEHOLDER = {"role": "user", "content": "-"}


class Pinning:
    """The pins of a running engine."""

    def __init__(self, renderer: Renderer, engine: EngineClient) -> None:
        settings = renderer.settings
        budget = settings.pin_budget_tokens
        if budget is None:
            budget = engine.info.n_cache_tokens // 4
        self.renderer = renderer
        self.engine = engine
        self.book = PinBook(budget, settings.prefix_folder)
        self.keep_warm = KeepWarm(self.book, engine, renderer.prefixes.tree, settings.pin_check_seconds)

    async def run(self) -> None:
        """Pin what the settings and an earlier run say, then keep all pins warm."""
        for tenant, request, expires, from_settings in self._to_restore():
            try:
                self.book.add(await self._pin(tenant, request, expires, from_settings))
            except (RequestError, PinError) as error:
                log.error("the prefix %r is not pinned: %s", request.name, error)
        await self.keep_warm.run()

    async def pin(self, tenant: Tenant, request: PinRequest) -> Pin:
        """Render, prefill on every rank, and ask the engine whether it has it.

        Raises:
            InvalidRequest: names the field at fault, or what the budget lacks.
            EngineDead.
        """
        expires = time.time() + request.ttl if request.ttl is not None else None
        pin = await self._pin(tenant, request, expires, from_settings=False)
        try:
            self.book.add(pin)
        except PinError as error:
            raise bad_request(str(error), error.param, error.code) from None
        ranks = range(self.engine.info.n_data_parallel_ranks)
        await asyncio.gather(*(self.keep_warm.warm(p, rank) for p in pin.prompts for rank in ranks))
        return pin

    async def _pin(
        self, tenant: Tenant, request: PinRequest, expires: float | None, from_settings: bool
    ) -> Pin:
        prompts = [await self._prompt(tenant, request, effort) for effort in request.efforts]
        return Pin(
            request.name,
            tenant,
            request.model_dump(include={"tools", "system", "messages"}, exclude_none=True),
            tuple(request.efforts),
            expires,
            from_settings,
            prompts,
        )

    async def _prompt(self, tenant: Tenant, request: PinRequest, effort: str) -> PinnedPrompt:
        messages = list(request.messages or ())
        if request.system is not None:
            messages.insert(0, {"role": "system", "content": request.system})
        # A prompt needs a message; this one stands behind the prefix and is cut off again.
        is_bare = not messages
        fields: dict[str, Any] = {
            "messages": [*messages, *([_PLACEHOLDER] if is_bare else ())],
            "reasoning_effort": effort,
        }
        if request.tools is not None:
            fields["tools"] = request.tools
        try:
            conversation = from_request(fields)
        except ConversationError as error:
            raise refused(error) from None
        model = self.renderer.settings.served_model_name[0]
        rendered = await self.renderer.render(Request(model, conversation), tenant)
        written = rendered.written
        if is_bare:
            written.n_moved += 1
        lasting = written.lasting
        n_prefix = lasting[-1].end if lasting else 0
        key = f"{tenant.name}/{request.name}/{effort}"
        return pinned_prompt(key, effort, written, rendered.engine_prompt, n_prefix, self.engine.info)

    def _to_restore(self) -> Iterator[tuple[Tenant, PinRequest, float | None, bool]]:
        settings = self.renderer.settings
        for path in settings.prefix_files:
            try:
                request = PinRequest.model_validate_json(path.read_text())
            except (OSError, UnicodeDecodeError, ValidationError) as error:
                log.error("the prefix file %s cannot be read: %s", path, short(error))
                continue
            expires = time.time() + request.ttl if request.ttl is not None else None
            yield self.tenant_named(request.tenant or SHARED), request, expires, True
        for path, saved in self.book.saved():
            try:
                request = PinRequest.model_validate(
                    {**saved.request, "name": saved.name, "efforts": saved.efforts}
                )
            except ValidationError as error:
                log.warning("the pin %r saved in %s is not restored: %s", saved.name, path, short(error))
                continue
            yield self.tenant_named(saved.tenant), request, saved.expires, False

    def tenant_named(self, name: str) -> Tenant:
        """The tenant of this name, as a pin's file gives it."""
        prefixes = self.renderer.prefixes
        if name == SHARED:
            return shared_tenant(prefixes.isolation)
        return prefixes.tenant(name or None, None)

    def as_json(self, pin: Pin) -> dict[str, Any]:
        """A pin as the API shows it."""
        ranks = range(self.engine.info.n_data_parallel_ranks)
        return {
            "object": "prefix",
            "name": pin.name,
            "tenant": SHARED if pin.tenant.name == SHARED else "own",
            "tokens": pin.n_tokens,
            "expires": pin.expires,
            "from_settings": pin.from_settings,
            "efforts": [
                {
                    "effort": prompt.effort,
                    "tokens": prompt.boundary,
                    "ranks": [
                        {
                            "rank": rank,
                            "warm": prompt.is_warm(rank),
                            "cached_tokens": prompt.homes[rank].n_cached,
                            "prefills": prompt.homes[rank].n_prefills,
                            "error": prompt.homes[rank].error,
                        }
                        for rank in ranks
                    ],
                }
                for prompt in pin.prompts
            ],
        }
