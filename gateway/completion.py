"""One chat request from its body to decoded events (spec design.md, "The way of one request").

HTTP ends at this border: `prepare` takes a checked body, `run` yields what the model said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from media.store import MediaLibrary

from engine.types import EngineClient, EnginePrompt, PlacedMedia, Sampling, TokenLogprob
from gateway.errors import ApiError, bad_request
from gateway.sampling import check_agreement, sampling
from gateway.schema.chat import WITHOUT_EFFECT, ChatRequest
from gateway.settings import Settings
from gateway.xtml import (
    CallIds,
    Conversation,
    ConversationError,
    Decoder,
    Event,
    MediaPart,
    MediaPrompt,
    MediaSpan,
    Prompt,
    RenderCache,
    Vocab,
    encode,
    from_request,
    structural_tag,
)
from media.types import Clip, MediaError, MediaItem, Picture


@dataclass(slots=True)
class Prepared:
    """A request that is ready for the engine."""

    conversation: Conversation
    prompt: Prompt
    engine_prompt: EnginePrompt
    sampling: Sampling
    n_image_tokens: int
    n_video_tokens: int
    notes: dict[str, str] = field(default_factory=dict)  # reply headers


@dataclass(slots=True)
class Progress:
    """What one choice gained in a step. `logprobs` are those of visible content."""

    index: int
    events: list[Event]
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None


@dataclass(slots=True)
class Counts:
    """Token counts of a running request, over all choices."""

    n_cached: int = 0
    n_completion: int = 0
    n_reasoning: int = 0


class Completions:
    """Prepares and runs chat requests on one engine. Holds what requests share: vocabulary and caches."""

    def __init__(self, settings: Settings, vocab: Vocab, media: MediaLibrary, engine: EngineClient) -> None:
        self.settings = settings
        self.vocab = vocab
        self.media = media
        self.engine = engine
        self.render_cache = RenderCache(settings.render_cache_bytes)

    async def prepare(self, request: ChatRequest, *, cache_salt: str | None = None) -> Prepared:
        """Check, fetch, render.

        Raises:
            ApiError: 400 that names the field at fault.
        """
        check_agreement(request)
        notes = self._ignored(request)
        try:
            conversation = from_request(request.model_dump(exclude_none=True))
            items, spans, clip_notes = await self._resolve(conversation, cache_salt or "")
            prompt = await asyncio.to_thread(encode, conversation, self.vocab, spans, self.render_cache)
            grammar = await asyncio.to_thread(
                structural_tag,
                conversation,
                self.vocab,
                parallel_tool_calls=request.parallel_tool_calls is not False,
            )
        except ConversationError as error:
            raise bad_request(error.message, error.param) from None
        if clip_notes:
            notes["k3-media"] = "; ".join(clip_notes)
        if grammar is not None and grammar.loosened:
            notes["k3-grammar-loosened"] = "; ".join(grammar.loosened)
        notes["k3-effort"] = (conversation.effort or "default") if conversation.thinking else "none"

        placed = tuple(PlacedMedia(slot.offset, items[slot.part][slot.span]) for slot in prompt.media)
        tokens = {"image": 0, "video": 0}
        for slot in prompt.media:
            tokens[conversation.media[slot.part].kind] += slot.n_tokens
        return Prepared(
            conversation,
            prompt,
            EnginePrompt(prompt.ids, placed, cache_salt),
            sampling(
                request,
                n_prompt=len(prompt.ids),
                has_tools=bool(conversation.declared_tools),
                structural_tag=grammar.tag if grammar else None,
                vocab=self.vocab,
                engine=self.engine.info,
                policy=self.settings.sampling_policy,
            ),
            tokens["image"],
            tokens["video"],
            notes,
        )

    async def run(
        self, prepared: Prepared, request: ChatRequest, request_id: str, counts: Counts
    ) -> AsyncGenerator[Progress, None]:
        """Yield decoded progress of every choice; `counts` is kept up to date while it runs.

        Closing the generator aborts the request in the engine.
        Raises engine.types.EngineError and its subclasses.
        """
        decoders = [self._decoder(prepared, request) for _ in range(prepared.sampling.n)]
        open_choices = set(range(len(decoders)))
        async with aclosing(
            self.engine.generate(prepared.engine_prompt, prepared.sampling, request_id)
        ) as steps:
            async for step in steps:
                counts.n_cached = max(counts.n_cached, step.n_cached or 0)
                if step.index not in open_choices:
                    continue  # cut at a stop string; the engine goes on until its siblings are done
                decoder = decoders[step.index]
                counts.n_completion += len(step.token_ids)
                events = decoder.feed(step.token_ids)
                logprobs = self._visible(decoder, step.logprobs)
                finish = None
                if step.finish_reason is not None or decoder.stopped:
                    events += decoder.finish(step.finish_reason or "stop")
                    finish = decoder.finish_reason(step.finish_reason or "stop")
                    open_choices.discard(step.index)
                counts.n_reasoning = sum(d.n_reasoning for d in decoders)
                yield Progress(step.index, events, logprobs, finish)
                if not open_choices:
                    return

    async def _resolve(
        self, conversation: Conversation, salt: str
    ) -> tuple[list[list[MediaItem]], list[MediaPrompt], list[str]]:
        """Every picture and clip, concurrently; the first that fails ends the others."""
        parts = conversation.media
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._fetch(part, salt)) for part in parts]
        except* ApiError as errors:
            raise errors.exceptions[0] from None
        items: list[list[MediaItem]] = []
        prompts: list[MediaPrompt] = []
        notes: list[str] = []
        for part, task in zip(parts, tasks, strict=True):
            media = task.result()
            if isinstance(media, Picture):
                items.append([media.item])
                label = f"image {media.width}x{media.height}"
                spans: tuple[MediaSpan, ...] = (MediaSpan("", label, media.item.n_tokens),)
            else:
                items.append([chunk.item for chunk in media.chunks])
                spans = tuple(MediaSpan(c.timestamp, "video", c.item.n_tokens) for c in media.chunks)
                notes += [f"{part.param}: {note}" for note in media.notes]
            prompts.append(MediaPrompt(spans, "".join(item.identity for item in items[-1])))
        return items, prompts, notes

    async def _fetch(self, part: MediaPart, salt: str) -> Picture | Clip:
        try:
            if part.kind == "video":
                return await self.media.clip(part.url, salt=salt)
            return await self.media.picture(part.url, detail=part.detail, salt=salt)
        except MediaError as error:
            raise bad_request(f"{part.param}: {error}", part.param) from None

    def _decoder(self, prepared: Prepared, request: ChatRequest) -> Decoder:
        conversation = prepared.conversation
        return Decoder(
            self.vocab,
            start=prepared.prompt.start,
            tools=conversation.declared_tools,
            tool_choice=conversation.tool_choice,
            stop=request.stop_strings,
            new_call_id=CallIds(self.settings.tool_call_ids, _history_ids(conversation)),
            max_calls=1 if request.parallel_tool_calls is False else None,
        )

    def _visible(
        self, decoder: Decoder, logprobs: Iterable[TokenLogprob] | None
    ) -> list[TokenLogprob] | None:
        """Of a step's log probabilities those whose ids are content."""
        if logprobs is None:
            return None
        return [
            entry for entry, channel in zip(logprobs, decoder.channels, strict=True) if channel == "content"
        ]

    def _ignored(self, request: ChatRequest) -> dict[str, str]:
        """The header that names fields without effect."""
        unknown = request.unknown_fields
        if unknown and self.settings.unknown_fields == "refuse":
            raise bad_request(f"{unknown[0]}: no such request field", unknown[0])
        sent = [name for name in WITHOUT_EFFECT if getattr(request, name) is not None]
        names = sent + [name for name in unknown if name.isascii() and name.isprintable()]
        return {"k3-ignored": ", ".join(names)[:1000]} if names else {}


def _history_ids(conversation: Conversation) -> list[str]:
    """Tool-call ids the client already holds."""
    return [call.id for message in conversation.messages for call in message.tool_calls if call.id]
