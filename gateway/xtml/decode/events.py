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
    """All `Reasoning` before `ReasoningClosed` was the answer (docs/decisions.md#d4).

    `text` is that answer (up to a stop string). A whole reply moves it from reasoning to content;
    a stream, whose reasoning is already sent, sends `text` as content. It comes when the message ends, since
    only then it is certain that no response follows (docs/decisions.md#r4).
    """

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the response channel."""

    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A call that will be run unless it is cut. `index` counts the calls of this message from 0.

    A call that a client cannot run reaches it where the reply has nothing else, so that an agent can answer
    it (docs/decisions.md#r3). It comes whole, at the end, and says what is wrong with it:

    declared:        whether the request declares the tool
    valid_arguments: whether the arguments are a JSON object; else they are the text as the model wrote it
    """

    index: int
    id: str
    name: str
    declared: bool = True
    valid_arguments: bool = True


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the call's arguments string; the concatenation of all pieces is the JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    """The call is complete: it may be run (but see `CallOpened`)."""

    index: int


Why = Literal["cut_call", "undeclared_tool", "call_not_allowed", "invalid_arguments", "outside_channels"]


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Text that is not part of the answer. A call is shown as its name, a blank and its arguments so far."""

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


class Outbox:
    """Where the parts of the decoder put the events of one step."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[Event] = []


@dataclass(slots=True)
class CallResult:
    """A complete call of a folded reply; `declared` and `valid_arguments` as in `CallOpened`."""

    id: str
    name: str
    arguments: str
    declared: bool = True
    valid_arguments: bool = True


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
    n_first_thoughts = 0  # pieces of reasoning before the thinking channel first ended
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
                arguments = "".join(pieces)
                reply.tool_calls.append(
                    CallResult(call.id, call.name, arguments, call.declared, call.valid_arguments)
                )
            case ReasoningClosed():
                n_first_thoughts = len(reasoning)
            case ReasoningWasContent(text):
                del reasoning[:n_first_thoughts]
                content.append(text)
            case Unparsed():
                reply.unparsed.append(event)
    reply.reasoning = "".join(reasoning)
    reply.content = "".join(content)
    return reply
