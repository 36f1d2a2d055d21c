"""`k3 decode`: what a completion of the model says, as a message or as the chunks of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands.inputs import fail, mini_checkpoint, name_of, read_json
from gateway.xtml import (
    CallArguments,
    CallOpened,
    Content,
    Decoder,
    Event,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    Reply,
    ToolChoice,
    Unparsed,
    Vocab,
    VocabError,
    fold,
)

Json = dict[str, Any]

UNPARSED = "k3_unparsed"  # extension field of a message and of a delta (docs/concepts/decoding.md)
_FINISH_REASONS = ("stop", "length")  # of the engine; `tool_calls` is what the decoder makes of "stop"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "text": str,
    "ids": list,
    "thinking": bool,
    "tools": list,
    "tool_choice": (str, dict),
    "finish_reason": str,
}


def register(app: typer.Typer) -> None:
    app.command("decode")(decode)


def decode(
    file: Annotated[
        str,
        typer.Argument(
            help="JSON object with `text` (marker spellings are markers) or `ids`, and, as wanted, "
            "`thinking` (default true), `tools`, `tool_choice`, `finish_reason` (stop or length); - is "
            "standard input."
        ),
    ],
    stream: Annotated[bool, typer.Option("--stream", help="Print the chunks, one a line.")] = False,
    split: Annotated[int, typer.Option("--split", min=0, help="Ids per step; 0 is all at once.")] = 0,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Folder with tiktoken.model and tokenizer_config.json; default: the mini checkpoint."
        ),
    ] = None,
) -> None:
    """Decode a completion: print the assistant message (and its finish_reason) as one JSON object."""
    try:
        vocab = Vocab.load(tokenizer or mini_checkpoint())
    except VocabError as error:
        fail(str(error))
    completion = _read(file)
    reason = completion.get("finish_reason", "stop")
    ids = completion["ids"] if "ids" in completion else marked_ids(completion["text"], vocab)
    decoder = Decoder(
        vocab,
        thinking=completion.get("thinking", True),
        tools=completion.get("tools", ()),
        tool_choice=_tool_choice(completion.get("tool_choice", "auto")),
    )
    events: list[Event] = []
    size = split or len(ids) or 1
    if stream:
        _print(_chunk({"role": "assistant", "content": ""}))
    for step in [*(ids[at : at + size] for at in range(0, len(ids), size)), None]:
        new = decoder.finish(reason) if step is None else decoder.feed(step)
        for delta in filter(None, map(_delta, new)) if stream else ():
            _print(_chunk(delta))
        events += new
    finish_reason, failure = decoder.ending(reason)
    if stream:
        _print(_chunk({}, finish_reason))
    else:
        _print({**_message(fold(events), finish_reason), "finish_reason": finish_reason})
    if failure is not None:
        typer.echo(f"a service answers this with an error: {failure}", err=True)
    if repairs := +decoder.repairs:
        typer.echo(f"repaired: {json.dumps(dict(sorted(repairs.items())))}", err=True)


def marked_ids(text: str, vocab: Vocab) -> list[int]:
    """Ids of a completion written as text, in which the spelling of a special token is that token."""
    names = "|".join(map(re.escape, vocab.special_ids))
    ids: list[int] = []
    for piece in re.split(f"({names})", text):
        special = vocab.special_ids.get(piece)
        ids += vocab.encode(piece) if special is None else [special]
    return ids


def _message(reply: Reply, finish_reason: str) -> Json:
    nothing = None if reply.tool_calls or finish_reason == "length" else ""
    message: Json = {"role": "assistant", "content": reply.content or nothing}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls
        ]
    if reply.unparsed:
        message[UNPARSED] = [{"text": part.text, "why": part.why} for part in reply.unparsed]
    return message


def _delta(event: Event) -> Json | None:
    match event:
        case Reasoning(text):
            return {"reasoning_content": text}
        case ReasoningClosed():
            return {"content": ""}
        case Content(text) | ReasoningWasContent(text):
            return {"content": text}
        case CallOpened(index=index, id=call_id, name=name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case Unparsed(text, why):
            return {UNPARSED: [{"text": text, "why": why}]}
    return None


def _chunk(delta: Json, finish_reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def _print(value: Json) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def _read(file: str) -> Json:
    completion = read_json(file)
    for problem in _problems(completion):
        fail(f"{name_of(file)}: {problem}")
    return {field: value for field, value in completion.items() if value is not None}


def _problems(completion: Any) -> Iterator[str]:
    if not isinstance(completion, dict):
        yield "must hold an object with `text` or `ids`"
        return
    given = {field: value for field, value in completion.items() if value is not None}
    for field, value in given.items():
        if field not in _FIELDS:
            yield f"{field}: no such field; known are {', '.join(_FIELDS)}"
        elif not isinstance(value, _FIELDS[field]):
            yield f"{field}: is of the wrong type"
    if ("text" in given) == ("ids" in given):
        yield "give either `text` or `ids`"
    if given.get("finish_reason", "stop") not in _FINISH_REASONS:
        yield f"finish_reason: must be one of {', '.join(_FINISH_REASONS)}"
    if not all(type(i) is int for i in given.get("ids", ())):
        yield "ids: must be whole numbers"


def _tool_choice(choice: str | Json) -> ToolChoice:
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            fail("tool_choice: an object must have function.name")
        return ToolChoice("named", name)
    match choice:
        case "auto" | "none" | "required":
            return ToolChoice(choice)
    fail(f"tool_choice: must be auto, none, required or a named function; got {choice!r}")
