"""What the decoder emits. A whole reply is the fold of its events; a stream is their serialisation."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Text that is no part of the answer: a cut or undeclared call, as the model wrote it."""

    text: str
    why: Literal["cut_call", "undeclared_tool", "call_not_allowed", "outside_channels"]


Event = Reasoning | ReasoningClosed | Content | CallOpened | CallArguments | CallClosed | Unparsed


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
