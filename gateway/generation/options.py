"""What a client asks for beside its conversation, whatever the wire format it came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.xtml import Conversation


@dataclass(frozen=True, slots=True)
class Options:
    """None means that the client did not say.

    top_logprobs: None where no logprobs are asked for, else how many alternatives (0 to 20)
    logit_bias:   by token id, as the client spelled it
    cache_hint:   names the client's session, to route its prompts to the rank that has them
    ignored:      fields that were sent and change nothing
    unknown:      fields that no API this service knows of has
    """

    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[str, float] = field(default_factory=dict)
    top_logprobs: int | None = None
    parallel_tool_calls: bool = True
    priority: int = 0
    cache_hint: str | None = None
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request.

    model:   the name that the client asked for, which replies echo
    history: what is odd about the calls and results of its history
    """

    model: str
    conversation: Conversation
    options: Options = field(default_factory=Options)
    history: tuple[str, ...] = ()
