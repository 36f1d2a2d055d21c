"""Renders a conversation as the prompt of Kimi K3 (spec k3.md part 2, the newer revision's rules).

A prompt is a row of sections: tool declarations, effort note, messages, notes on tool choice and response
format, and the opener that the model goes on from. Each has a digest of all that determines its ids, so
that sections which were rendered before come from a `RenderCache`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from gateway.xtml import notes
from gateway.xtml.arguments import RawArguments, read_arguments
from gateway.xtml.conversation import Conversation, ConversationError, MediaPart, Message, ToolCall
from gateway.xtml.render_cache import RenderCache, RenderedSection
from gateway.xtml.tool_results import Placed, place_messages
from gateway.xtml.vocab import Vocab
from gateway.xtml.writer import MediaPrompt, Writer

SectionKind = Literal["tools", "effort", "message", "tool_choice", "response_format", "generation"]


@dataclass(frozen=True, slots=True)
class Section:
    """`ids[start:end]` of a prompt came from the request's field `path`, e.g. `messages[3]`.

    digest: 32 hex digits of sha256 over all that determines the ids, vocabulary and media identities included
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
    n_stub:   ids of the channel opener at the end, which the hosted service does not count (2.13)
    """

    ids: list[int]
    media: tuple[MediaSlot, ...]
    sections: tuple[Section, ...]
    n_stub: int

    @property
    def n_hosted(self) -> int:
        """Prompt tokens as the hosted service counts them (2.13, 2.15)."""
        return len(self.ids) - self.n_stub


@dataclass(slots=True)
class _Plan:
    """A section before it is written. `fields` (with `shape`) determine what `write` writes.

    media: indices into `conversation.media`, in the order in which `write` writes them
    """

    kind: SectionKind
    path: str
    shape: str
    fields: Sequence[str]
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
    ids: list[int] = []
    slots: list[MediaSlot] = []
    sections: list[Section] = []
    for plan in _plans(conversation, media):
        digest = _digest(vocab, plan.shape, plan.fields)
        rendered = cache.get(digest) if cache is not None else None
        if rendered is None:
            rendered = _render(plan, vocab)
            if cache is not None:
                cache.put(digest, rendered)
        start = len(ids)
        ids.extend(rendered.ids)
        for nth, span, offset, n_tokens in rendered.pads:
            slots.append(MediaSlot(plan.media[nth], span, start + offset, n_tokens))
        sections.append(Section(plan.kind, plan.path, start, len(ids), digest))
    n_stub = 0 if conversation.partial else len(_channel_opener(vocab, conversation.thinking))
    return Prompt(ids, tuple(slots), tuple(sections), n_stub)


def encode_assistant(message: Message, vocab: Vocab, *, thinking: bool = True) -> list[int]:
    """The completion that `message` stands for: what the model writes after the generation prompt.

    With `thinking` it begins inside the thinking channel, else inside the response channel (2.12), and
    it ends with `<|end_of_msg|>`. So for a conversation with that setting

        encode(conversation, vocab).ids + encode_assistant(message, vocab, thinking=conversation.thinking)

    are the ids that `encode` gives for the conversation with `message` appended, before the notes and the
    next generation prompt. The message's `name` and `partial` are not looked at.
    """
    writer = Writer(vocab)
    _write_channels(writer, message, iter(()), thinking)
    writer.end_message()
    return writer.ids[len(_channel_opener(vocab, thinking)) :]


def _plans(conversation: Conversation, media: Sequence[MediaPrompt]) -> Iterator[_Plan]:
    """The sections in prompt order (2.2)."""
    if conversation.tools:
        yield _note("tools", "tools", "tool-declare", notes.declaration(conversation.tools, "tools"))
    if conversation.thinking and conversation.effort:
        yield _note("effort", "reasoning_effort", "thinking-effort", notes.effort(conversation.effort))

    first_media = _first_media(conversation.messages, len(media))
    n_history = len(conversation.messages) - conversation.partial
    for placed in place_messages(conversation.messages[:n_history]):
        message = conversation.messages[placed.index]
        path = f"messages[{placed.index}]"
        if message.tools:
            body = notes.declaration(message.tools, f"{path}.tools", dynamic=True)
            yield _note("tools", path, "tool-declare", body)
        else:
            its_media = range(first_media[placed.index], first_media[placed.index + 1])
            yield _message(placed, message, path, media, its_media, conversation.thinking)

    if choice := notes.tool_choice(conversation.tool_choice):
        yield _note("tool_choice", "tool_choice", "tool-choice", choice)
    if wanted := notes.response_format(conversation.response_format):
        yield _note("response_format", "response_format", "response-format", wanted)
    yield _generation(conversation)


def _note(kind: SectionKind, path: str, note_type: str, body: str) -> _Plan:
    def write(writer: Writer) -> None:
        writer.open("message", ("role", "system"), ("type", note_type))
        writer.text(body)
        writer.end_message()

    return _Plan(kind, path, "note", (note_type, body), write)


def _message(
    placed: Placed,
    message: Message,
    path: str,
    media: Sequence[MediaPrompt],
    its_media: range,
    thinking: bool,
) -> _Plan:
    shape: list[str] = [message.role]
    fields: list[str] = []
    _add_parts(shape, fields, message, media, its_media)
    if message.role == "tool":
        attributes = [("role", "tool"), ("tool", placed.tool), ("index", str(placed.number))]
    else:
        attributes = [("role", message.role)]
        if message.name:
            attributes.append(("name", message.name))
    fields += [value for _, value in attributes]
    if message.role == "assistant":
        shape.append("think" if thinking else "no-think")
        fields.append((message.reasoning or "") if thinking else "")
        for index, call in enumerate(message.tool_calls):
            _add_call(shape, fields, call, f"{path}.tool_calls[{index}].function.arguments")

    def write(writer: Writer) -> None:
        prompts = iter(media[its_media.start : its_media.stop])
        writer.open("message", *attributes)
        if message.role == "assistant":
            _write_channels(writer, message, prompts, thinking)
        else:
            _write_parts(writer, message, prompts)
        writer.end_message()

    return _Plan("message", path, " ".join(shape), fields, write, its_media)


def _generation(conversation: Conversation) -> _Plan:
    """The opener, or the message that the client began for the model (2.12, 2.15)."""
    channel = "think" if conversation.thinking else "response"
    if not conversation.partial:

        def write(writer: Writer) -> None:
            writer.open("message", ("role", "assistant"))
            writer.open(channel)

        return _Plan("generation", "", "generation", (channel,), write)

    index = len(conversation.messages) - 1
    message = conversation.messages[index]
    reasoning = (message.reasoning or "") if conversation.thinking else ""
    texts = [part for part in message.parts if isinstance(part, str) and part]
    attributes = [("role", "assistant")]
    if message.name:
        attributes.append(("name", message.name))

    def write_partial(writer: Writer) -> None:
        writer.open("message", *attributes)
        if reasoning:
            writer.open("think")
            writer.text(reasoning)
            if not texts:
                return
            writer.close("think")
        writer.open("response")
        for text in texts:
            writer.text(text)

    fields = (message.name or "", reasoning, *texts)
    return _Plan("generation", f"messages[{index}]", "partial", fields, write_partial)


def _write_channels(writer: Writer, message: Message, prompts: Iterator[MediaPrompt], thinking: bool) -> None:
    """Think, response and tools channels of an assistant message (2.7, 2.8)."""
    if thinking:
        writer.open("think")
        writer.text(message.reasoning or "")
        writer.close("think")
    writer.open("response")
    _write_parts(writer, message, prompts)
    writer.close("response")
    if not message.tool_calls:
        return
    writer.open("tools")
    for number, call in enumerate(message.tool_calls, start=1):
        writer.open("call", ("tool", call.name), ("index", str(number)))
        _write_arguments(writer, call)
        writer.close("call")
    writer.close("tools")


def _write_arguments(writer: Writer, call: ToolCall) -> None:
    arguments = read_arguments(call.arguments)
    if isinstance(arguments, RawArguments):
        writer.open("json", ("type", "object"))
        writer.text(arguments.text)
        writer.close("json")
        return
    for argument in arguments:
        writer.open("argument", ("key", argument.key), ("type", argument.type))
        writer.text(argument.text)
        writer.close("argument")


def _write_parts(writer: Writer, message: Message, prompts: Iterator[MediaPrompt]) -> None:
    """Parts in their place without anything between them; each text is a segment of its own (2.10)."""
    for part in message.parts:
        if isinstance(part, MediaPart):
            writer.media(next(prompts))
        else:
            writer.text(part)


def _render(plan: _Plan, vocab: Vocab) -> RenderedSection:
    writer = Writer(vocab)
    plan.write(writer)
    return RenderedSection(vocab.shared(writer.ids), tuple(writer.pads))


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


def _add_parts(
    shape: list[str],
    fields: list[str],
    message: Message,
    media: Sequence[MediaPrompt],
    its_media: range,
) -> None:
    prompts = iter(its_media)
    for part in message.parts:
        if isinstance(part, MediaPart):
            prompt = media[next(prompts)]
            shape.append("media")
            fields.append(f"{prompt.digest} {prompt.spans}")
        else:
            shape.append("text")
            fields.append(part)


def _add_call(shape: list[str], fields: list[str], call: ToolCall, param: str) -> None:
    arguments = call.arguments or ""
    if isinstance(arguments, dict):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False)
        except RecursionError:
            raise ConversationError(f"{param} nests too deeply; flatten it", param) from None
        shape.append("object")
    else:
        shape.append("json")
    fields += (call.name, arguments)


def _digest(vocab: Vocab, shape: str, fields: Sequence[str]) -> str:
    """One hash over lengths and texts: no two different sections give the same bytes."""
    lengths = ",".join([str(len(field)) for field in fields])
    content = "".join((shape, ":", lengths, ":", *fields))
    return sha256(vocab.fingerprint + content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
