"""Renders a conversation as the prompt of Kimi K3 (docs/format.md#prompt).

A prompt is a row of sections: tool declarations, effort note, messages, notes on tool choice and response
format, and the opener that the model goes on from. Each has a digest of all that determines its ids, so
that sections which were rendered before come from a `RenderCache`.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Literal

import msgspec

from gateway.xtml.conversation import Conversation, ConversationError, MediaPart, Message
from gateway.xtml.encode import notes
from gateway.xtml.encode.messages import (
    write_channels,
    write_message,
    write_note,
    write_opener,
    write_partial,
)
from gateway.xtml.encode.render_cache import RenderCache, RenderedSection
from gateway.xtml.encode.tool_results import Placed, place_messages
from gateway.xtml.encode.writer import MediaPrompt, Writer
from gateway.xtml.vocabulary import Vocab

_MESSAGEPACK = msgspec.msgpack.Encoder()
_HASHED_AT_ONCE = 65_536

SectionKind = Literal["tools", "effort", "message", "tool_choice", "response_format", "generation"]


@dataclass(frozen=True, slots=True)
class Section:
    """`ids[start:end]` of a prompt came from the request's field `path`, e.g. `messages[3]`.

    digest: 32 hex digits of sha256 over the ids, the vocabulary and the identities of media: the same for all
            spellings of a request that give the same prompt (docs/decisions.md#r30)
    """

    kind: SectionKind
    path: str
    start: int
    end: int
    digest: str


@dataclass(frozen=True, slots=True)
class MediaSlot:
    """Pads `ids[offset : offset + n_tokens]` stand for span `span` of `conversation.media[part]`."""

    part: int
    span: int
    offset: int
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation.

    ids:      token ids, media placeholders expanded
    media:    slots by offset
    sections: cover `ids` without gaps, in order
    n_stub:   ids of the channel opener at the end, which the hosted service does not count
              (docs/format.md#counts)
    """

    ids: list[int]
    media: tuple[MediaSlot, ...]
    sections: tuple[Section, ...]
    n_stub: int

    @property
    def n_hosted(self) -> int:
        """Prompt tokens as the hosted service counts them (docs/format.md#counts)."""
        return len(self.ids) - self.n_stub


@dataclass(slots=True)
class _Plan:
    """A section before it is written.

    content: plain data that determines what `write` writes
    media:   indices into `conversation.media`, in the order in which `write` writes them
    """

    kind: SectionKind
    path: str
    content: tuple[Any, ...]
    write: Callable[[Writer], None]
    media: range = range(0)


def encode(
    conversation: Conversation,
    vocab: Vocab,
    media: Sequence[MediaPrompt] = (),
    cache: RenderCache | None = None,
) -> Prompt:
    """Render `conversation`; `media` has one entry per `conversation.media`, in the same order.

    Lone surrogates in text become U+FFFD. Raises ConversationError where the conversation cannot be
    rendered, ValueError where `media` does not fit it.
    """
    rendered_ids: list[tuple[int, ...]] = []
    slots: list[MediaSlot] = []
    sections: list[Section] = []
    end = 0
    for plan in _plans(conversation, media):
        key = _digest(plan, vocab)
        rendered = cache.get(key) if cache is not None else None
        if rendered is None:
            rendered = _render(plan, vocab, media)
            if cache is not None:
                cache.put(key, rendered)
        start, end = end, end + len(rendered.ids)
        rendered_ids.append(rendered.ids)
        for nth, span, offset, n_tokens in rendered.pads:
            slots.append(MediaSlot(plan.media[nth], span, start + offset, n_tokens))
        sections.append(Section(plan.kind, plan.path, start, end, rendered.digest))
    ids: list[int] = []
    for section_ids in rendered_ids:  # last, so that the garbage collector never walks a long half-made list
        ids += section_ids
    n_stub = 0 if conversation.partial else len(_channel_opener(vocab, conversation.thinking))
    return Prompt(ids, tuple(slots), tuple(sections), n_stub)


def encode_assistant(message: Message, vocab: Vocab, *, thinking: bool = True) -> list[int]:
    """The completion that `message` stands for: what the model writes after the generation prompt.

    With `thinking` it begins inside the thinking channel, else inside the response channel
    (docs/format.md#prompt-end), and it ends with `<|end_of_msg|>`. So for a conversation with that setting

        encode(conversation, vocab).ids + encode_assistant(message, vocab, thinking=conversation.thinking)

    are the ids that `encode` gives for the conversation with `message` appended, before the notes and the
    next generation prompt. The message's `name` and `partial` are not looked at.
    """
    writer = Writer(vocab)
    write_channels(writer, message, iter(()), thinking)
    writer.end_message()
    return writer.ids[len(_channel_opener(vocab, thinking)) :]


def _plans(conversation: Conversation, media: Sequence[MediaPrompt]) -> Iterator[_Plan]:
    """The sections in prompt order (docs/format.md#order)."""
    if conversation.tools:
        yield _note("tools", "tools", "tool-declare", notes.declaration(conversation.tools, "tools"))
    if conversation.thinking and conversation.effort:
        yield _note("effort", "reasoning_effort", "thinking-effort", notes.effort(conversation.effort))

    first_media = _first_media(conversation.messages, len(media))
    n_history = len(conversation.messages) - conversation.partial
    for placed in place_messages(conversation.messages[:n_history]):
        message = conversation.messages[placed.index]
        if message.tools:
            path = f"messages[{placed.index}]"
            body = notes.declaration(message.tools, f"{path}.tools", dynamic=True)
            yield _note("tools", path, "tool-declare", body)
        else:
            its_media = range(first_media[placed.index], first_media[placed.index + 1])
            yield _message(placed, message, media, its_media, conversation.thinking)

    if choice := notes.tool_choice(conversation.tool_choice):
        yield _note("tool_choice", "tool_choice", "tool-choice", choice)
    if wanted := notes.response_format(conversation.response_format):
        yield _note("response_format", "response_format", "response-format", wanted)
    yield _generation(conversation)


def _note(kind: SectionKind, path: str, note_type: str, body: str) -> _Plan:
    content = ("note", note_type, body)
    return _Plan(kind, path, content, partial(write_note, note_type=note_type, body=body))


def _message(
    placed: Placed, message: Message, media: Sequence[MediaPrompt], its_media: range, thinking: bool
) -> _Plan:
    prompts = media[its_media.start : its_media.stop]
    parts = _parts_content(message, prompts) if prompts else message.parts
    content: tuple[Any, ...]
    attributes: tuple[tuple[str, str], ...]
    if message.role == "tool":
        attributes = (("role", "tool"), ("tool", placed.tool), ("index", str(placed.number)))
        content = ("tool", placed.tool, placed.number, parts)
    else:
        attributes = (("role", message.role),)
        if message.name:
            attributes += (("name", message.name),)
        content = (message.role, message.name or "", parts)
    if message.role == "assistant":
        reasoning = (message.reasoning or "") if thinking else None
        content += (reasoning, [(call.name, call.arguments or "") for call in message.tool_calls])
    write = partial(write_message, attributes=attributes, message=message, prompts=prompts, thinking=thinking)
    return _Plan("message", f"messages[{placed.index}]", content, write, its_media)


def _generation(conversation: Conversation) -> _Plan:
    """The opener, or the message that the client began for the model (docs/format.md#prompt-end)."""
    if not conversation.partial:
        channel = "think" if conversation.thinking else "response"
        return _Plan("generation", "", ("opener", channel), partial(write_opener, channel=channel))
    index = len(conversation.messages) - 1
    message = conversation.messages[index]
    name = message.name or ""
    reasoning = (message.reasoning or "") if conversation.thinking else ""
    texts = [part for part in message.parts if isinstance(part, str) and part]
    write = partial(write_partial, name=name, reasoning=reasoning, texts=texts)
    return _Plan("generation", f"messages[{index}]", ("partial", name, reasoning, texts), write)


def _render(plan: _Plan, vocab: Vocab, media: Sequence[MediaPrompt]) -> RenderedSection:
    writer = Writer(vocab)
    plan.write(writer)
    identities = [media[index].digest for index in plan.media]
    written = sha256(vocab.fingerprint + _MESSAGEPACK.encode(identities))
    for start in range(0, len(writer.ids), _HASHED_AT_ONCE):  # other threads get on in between
        written.update(array("I", writer.ids[start : start + _HASHED_AT_ONCE]).tobytes())
    return RenderedSection(vocab.shared(writer.ids), tuple(writer.pads), written.hexdigest()[:32])


def _channel_opener(vocab: Vocab, thinking: bool) -> list[int]:
    writer = Writer(vocab)
    writer.open("think" if thinking else "response")
    return writer.ids


def _first_media(messages: Sequence[Message], n_media: int) -> list[int]:
    """Index of each message's first medium, and at the end the number of all."""
    first = [0]
    for message in messages:
        first.append(first[-1] + [isinstance(part, MediaPart) for part in message.parts].count(True))
    if first[-1] != n_media:
        raise ValueError(f"the conversation has {first[-1]} pictures and clips, {n_media} were given")
    return first


def _parts_content(message: Message, prompts: Sequence[MediaPrompt]) -> list[Any]:
    """Texts, and for pictures and clips what they are instead of where they came from."""
    rest = iter(prompts)
    content: list[Any] = []
    for part in message.parts:
        if isinstance(part, str):
            content.append(part)
        else:
            prompt = next(rest)
            spans = [(span.lead, span.label, span.n_tokens) for span in prompt.spans]
            content.append((prompt.digest, spans))
    return content


def _digest(plan: _Plan, vocab: Vocab) -> str:
    """32 hex digits. MessagePack writes types and lengths, so different contents give different bytes."""
    try:
        data = _MESSAGEPACK.encode(plan.content)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        data = _json_bytes(plan)
    return sha256(vocab.fingerprint + data).hexdigest()[:32]


def _json_bytes(plan: _Plan) -> bytes:
    """For what MessagePack cannot say: lone surrogates, integers beyond 64 bits."""
    try:
        return json.dumps(plan.content).encode()
    except (RecursionError, ValueError) as error:
        what = (
            "nest too deeply" if isinstance(error, RecursionError) else f"cannot be written as JSON ({error})"
        )
        param = f"{plan.path}.tool_calls"
        raise ConversationError(f"{param}: arguments {what}; send them as a string of JSON", param) from None
