"""What the decoder emits. A whole reply is the fold of its events; a stream is their serialisation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the thinking channel."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningClosed:
    """The thinking channel has ended (sent once, only if the completion began in it)."""


@dataclass(frozen=True, slots=True)
class ReasoningWasContent:
    """All `Reasoning` so far was the answer: the model never closed its thinking (docs/decisions.md#d4).

    `text` is that answer (up to a stop string). A whole reply moves it from reasoning to content;
    a stream, whose reasoning is already sent, sends `text` as content.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the response channel."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A call's header is complete. `index` counts the calls of this message from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the call's arguments string; the concatenation of all pieces is the JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    """The call is complete: its arguments are valid JSON and it may be run."""

    index: int


Why = Literal["cut_call", "undeclared_tool", "call_not_allowed", "invalid_arguments", "outside_channels"]


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Text that is no part of the answer. A call is shown as its name, a blank and its arguments so far."""

    text: str
    why: Why


Event = (
    Reasoning
    | ReasoningClosed
    | ReasoningWasContent
    | Content
    | CallOpened
    | CallArguments
    | CallClosed
    | Unparsed
)


@dataclass(slots=True)
class CallResult:
    """A complete call of a folded reply."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Reply:
    """A folded completion. `unparsed` is the documented extension field of the API."""

    reasoning: str = ""
    content: str = ""
    tool_calls: list[CallResult] = field(default_factory=list)
    unparsed: list[Unparsed] = field(default_factory=list)


def fold(events: Iterable[Event]) -> Reply:
    """The whole reply that a completion's events add up to. Calls that were never closed are left out."""
    reasoning: list[str] = []
    content: list[str] = []
    opened: dict[int, tuple[CallOpened, list[str]]] = {}
    reply = Reply()
    for event in events:
        match event:
            case Reasoning(text):
                reasoning.append(text)
            case Content(text):
                content.append(text)
            case CallOpened(index=index):
                opened[index] = (event, [])
            case CallArguments(index, text):
                opened[index][1].append(text)
            case CallClosed(index):
                call, pieces = opened[index]
                reply.tool_calls.append(CallResult(call.id, call.name, "".join(pieces)))
            case ReasoningWasContent(text):
                reasoning.clear()
                content.append(text)
            case Unparsed():
                reply.unparsed.append(event)
            case ReasoningClosed():
                pass
    reply.reasoning = "".join(reasoning)
    reply.content = "".join(content)
    return reply
