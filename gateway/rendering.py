"""From a checked request to a prompt: conversation, media, token ids
(docs/architecture.md#the-way-of-a-request).

Needs no engine: the same code counts tokens and serves completions, so the two can never differ.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from engine.types import EnginePrompt, PlacedMedia
from gateway.errors import ApiError, bad_request
from gateway.media_prompts import media_items, media_prompt
from gateway.prefix.prefixes import Prefixes
from gateway.prefix.sections import Written
from gateway.prefix.tenants import EVERYBODY, Tenant
from gateway.schema.chat import WITHOUT_EFFECT, ChatRequest
from gateway.settings import Settings
from gateway.xtml import (
    Conversation,
    ConversationError,
    MediaPart,
    Prompt,
    RenderCache,
    Vocab,
    encode,
    from_request,
)
from media.process import WorkerError
from media.store import MediaLibrary
from media.types import Clip, MediaError, Picture

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Rendered:
    """A prompt with its media in place. `headers` tell the client what was done with the request."""

    tenant: Tenant
    written: Written
    engine_prompt: EnginePrompt
    n_image_tokens: int
    n_video_tokens: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def conversation(self) -> Conversation:
        return self.written.conversation

    @property
    def prompt(self) -> Prompt:
        return self.written.prompt


class Renderer:
    """Renders requests; holds what they share, the vocabulary and the caches."""

    def __init__(self, settings: Settings, vocab: Vocab, media: MediaLibrary) -> None:
        self.settings = settings
        self.vocab = vocab
        self.media = media
        self.cache = RenderCache(settings.render_cache_bytes)
        self.prefixes = Prefixes(settings)

    async def render(self, request: ChatRequest, tenant: Tenant = EVERYBODY) -> Rendered:
        """Check in depth, make stable, fetch and prepare media, encode.

        Raises:
            ApiError: 400 that names the field at fault.
        """
        headers = self._ignored(request)
        try:
            stable, done = self.prefixes.prepare(tenant, from_request(request.model_dump(exclude_none=True)))
            headers |= done
            conversation = stable.conversation
            media = await self._resolve(conversation, tenant.salt or "")
            prompt = await asyncio.to_thread(
                encode, conversation, self.vocab, [media_prompt(m) for m in media], self.cache
            )
        except ConversationError as error:
            raise bad_request(error.message, error.param) from None
        headers["k3-effort"] = (conversation.effort or "default") if conversation.thinking else "none"
        notes = [
            f"{part.param}: {note}"
            for part, prepared in zip(conversation.media, media, strict=True)
            for note in prepared.notes
        ]
        if notes:
            headers["k3-media"] = "; ".join(notes)

        items = [media_items(m) for m in media]
        tokens = {"image": 0, "video": 0}
        for slot in prompt.media:
            tokens[conversation.media[slot.part].kind] += slot.n_tokens
        placed = tuple(PlacedMedia(slot.offset, items[slot.part][slot.span]) for slot in prompt.media)
        engine_prompt = EnginePrompt(prompt.ids, placed, tenant.salt)
        written = Written(prompt, conversation, stable.n_moved)
        return Rendered(tenant, written, engine_prompt, tokens["image"], tokens["video"], headers)

    def n_prompt(self, prompt: Prompt) -> int:
        """`usage.prompt_tokens`, counted as the settings say (docs/format.md#counts)."""
        return prompt.n_hosted if self.settings.prompt_tokens == "hosted" else len(prompt.ids)

    async def _resolve(self, conversation: Conversation, salt: str) -> list[Picture | Clip]:
        """Every picture and clip, concurrently; the first that fails ends the others."""
        tasks = [asyncio.ensure_future(self._fetch(part, salt)) for part in conversation.media]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, part: MediaPart, salt: str) -> Picture | Clip:
        try:
            if part.kind == "video":
                return await self.media.clip(part.url, salt=salt)
            return await self.media.picture(part.url, detail=part.detail, salt=salt)
        except MediaError as error:
            raise bad_request(f"{part.param}: {error}", part.param) from None
        except WorkerError as error:
            log.error("%s could not be prepared: %s", part.param, error)
            raise ApiError(
                503, f"{part.param}: the server's media decoder failed; try again", param=part.param
            ) from error

    def _ignored(self, request: ChatRequest) -> dict[str, str]:
        """The header that names fields without effect."""
        unknown = request.unknown_fields
        if unknown and self.settings.unknown_fields == "refuse":
            raise bad_request(f"{unknown[0]}: no such request field", unknown[0])
        sent = [name for name in WITHOUT_EFFECT if getattr(request, name) is not None]
        names = sent + [name for name in unknown if name.isascii() and name.isprintable()]
        return {"k3-ignored": ", ".join(names)[:1000]} if names else {}
