"""Messages, their channels and the prompt's end, written tag by tag (docs/format.md#prompt)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.xtml.conversation import MediaPart, Message, ToolCall
from gateway.xtml.encode.writer import MediaPrompt, Writer
from gateway.xtml.values import RawArguments, read_arguments


def write_note(writer: Writer, note_type: str, body: str) -> None:
    """A system message of the service's own (docs/format.md#notes)."""
    writer.open("message", ("role", "system"), ("type", note_type))
    writer.text(body)
    writer.end_message()


def write_message(
    writer: Writer,
    attributes: Sequence[tuple[str, str]],
    message: Message,
    prompts: Sequence[MediaPrompt],
    thinking: bool,
) -> None:
    """A message of the conversation; `prompts` are its pictures and clips in order (docs/format.md#roles)."""
    writer.open("message", *attributes)
    if message.role == "assistant":
        write_channels(writer, message, iter(prompts), thinking)
    else:
        _write_parts(writer, message, iter(prompts))
    writer.end_message()


def write_channels(writer: Writer, message: Message, prompts: Iterator[MediaPrompt], thinking: bool) -> None:
    """Think, response and tools channels of an assistant message (docs/format.md#assistant)."""
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


def write_opener(writer: Writer, channel: str) -> None:
    """The generation prompt: the model goes on inside `channel` (docs/format.md#prompt-end)."""
    writer.open("message", ("role", "assistant"))
    writer.open(channel)


def write_partial(writer: Writer, name: str, reasoning: str, texts: Sequence[str]) -> None:
    """A message that the client began: its last channel stays open (docs/format.md#partial)."""
    writer.open("message", ("role", "assistant"), *((("name", name),) if name else ()))
    if reasoning:
        writer.open("think")
        writer.text(reasoning)
        if not texts:
            return
        writer.close("think")
    writer.open("response")
    for text in texts:
        writer.text(text)


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
    """Parts in their place without anything between them; each text is a segment of its own.

    See docs/format.md#parts.
    """
    for part in message.parts:
        if isinstance(part, MediaPart):
            writer.media(next(prompts))
        else:
            writer.text(part)
