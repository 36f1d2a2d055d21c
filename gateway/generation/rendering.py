"""From a checked request to a prompt: conversation, media, token ids.

Needs no engine: the same code counts tokens and serves completions, so the two can never differ.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from engine.types import EnginePrompt, PlacedMedia
from gateway.errors import InvalidRequest, bad_request, decoders_lost
from gateway.generation.aliases import ModelAliases
from gateway.generation.media_prompts import media_items, media_prompt
from gateway.generation.notes import Notes
from gateway.generation.options import Options, Request
from gateway.prefix.prefixes import Prefixes
from gateway.prefix.sections import Written
from gateway.prefix.stability import Stabilised
from gateway.prefix.tenants import EVERYBODY, Tenant
from gateway.settings import Settings
from gateway.xtml import Conversation, ConversationError, MediaPart, Prompt, RenderCache, Vocab, encode
from media.process import WorkerError
from media.store import MediaLibrary
from media.types import Clip, MediaError, Picture

log = logging.getLogger(__name__)

SHORT_CHARACTERS = 16_000


@dataclass(slots=True)
class Rendered:
    """A prompt with its media in place. `notes` tell the client what was done with the request."""

    tenant: Tenant
    written: Written
    engine_prompt: EnginePrompt
    n_image_tokens: int
    n_video_tokens: int
    notes: Notes = field(default_factory=Notes)

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
        self.aliases = ModelAliases(settings.model_aliases)

    async def render(self, request: Request, tenant: Tenant = EVERYBODY) -> Rendered:
        """Make stable, fetch and prepare media, encode.

        Raises:
            InvalidRequest: names the field at fault.
            Unavailable: the media decoders are gone.
        """
        request = self.aliases.apply(request)
        notes = Notes(self._ignored(request.options))
        notes.add("history", request.history)
        stable, done = self.prefixes.prepare(tenant, request.conversation)
        notes.update(done)
        conversation = stable.conversation
        media = await self._resolve(conversation, tenant.salt or "")
        try:
            if is_short(conversation):
                written = self._write(stable, media, tenant)
            else:
                written = await asyncio.to_thread(self._write, stable, media, tenant)
        except ConversationError as error:
            raise refused(error) from None
        prompt = written.prompt
        notes["effort"] = (conversation.effort or "default") if conversation.thinking else "none"
        said = [
            f"{part.param}: {note}"
            for part, prepared in zip(conversation.media, media, strict=True)
            for note in prepared.notes
        ]
        notes.add("media", said)

        items = [media_items(m) for m in media]
        tokens = {"image": 0, "video": 0}
        for slot in prompt.media:
            tokens[conversation.media[slot.part].kind] += slot.n_tokens
        placed = tuple(PlacedMedia(slot.offset, items[slot.part][slot.span]) for slot in prompt.media)
        engine_prompt = EnginePrompt(prompt.ids, placed, tenant.salt)
        return Rendered(tenant, written, engine_prompt, tokens["image"], tokens["video"], notes)

    def _write(self, stable: Stabilised, media: list[Picture | Clip], tenant: Tenant) -> Written:
        """The prompt, and what the prefix cache's books ask of it: what takes longer the longer it is."""
        prompts = [media_prompt(medium) for medium in media]
        prompt = encode(stable.conversation, self.vocab, prompts, self.cache)
        written = Written(prompt, stable.conversation, stable.n_moved)
        self.prefixes.tree.look_ahead(tenant.cache, written)
        return written

    def n_prompt(self, prompt: Prompt) -> int:
        """Prompt tokens of `usage`, counted as the settings say (docs/format.md#counts)."""
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
            raise decoders_lost(part.param) from error

    def _ignored(self, options: Options) -> dict[str, str]:
        """The note that names fields without effect."""
        if options.unknown and self.settings.unknown_fields == "refuse":
            name = options.unknown[0]
            raise bad_request(f"{name[:100]}: there is no such request field", name[:100])
        unknown = (name for name in options.unknown if name.isascii() and name.isprintable())
        names = [*options.ignored, *unknown]
        return {"ignored": ", ".join(names)[:1000]} if names else {}


def is_short(conversation: Conversation) -> bool:
    """Whether it is encoded in less time than handing it to a thread and back takes (about 2 ms at most)."""
    if conversation.declared_tools:
        return False
    left = SHORT_CHARACTERS
    for message in conversation.messages:
        left -= len(message.reasoning or "") + 100
        for part in message.parts:
            left -= len(part) if isinstance(part, str) else 0
        for call in message.tool_calls:
            left -= len(call.arguments) if isinstance(call.arguments, str) else SHORT_CHARACTERS
        if left < 0:
            return False
    return True


def refused(error: ConversationError) -> InvalidRequest:
    """What the format cannot say, as the client's error."""
    return bad_request(error.message, error.param)
