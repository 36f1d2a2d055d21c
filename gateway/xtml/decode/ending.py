"""How a reply ended: one rule for whole replies and streams in every wire format (docs/decisions.md#r3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from gateway.xtml.conversation import ToolChoice

FinishReason = Literal["stop", "length", "tool_calls"]
Failure = Literal["empty_reply", "tool_choice_not_kept"]


class Ending(NamedTuple):
    """How one choice of a reply ended.

    finish_reason: OpenAI's. `tool_calls` only if a call is complete and none is open; `length` also where a
                   call was announced and never closed, since no client runs the calls of such a reply
    failure:       why the choice is an error and not an answer; None if it is an answer
    """

    finish_reason: FinishReason
    failure: Failure | None


def how_it_ended(
    engine_reason: str,
    *,
    content: bool,
    reasoning: bool,
    n_calls: int,
    call_left_open: bool,
    call_withheld: bool,
    stopped: bool,
    tool_choice: ToolChoice,
    may_be_empty: bool,
) -> Ending:
    """Judge a reply by what its client gets.

    content:        the client got content that is not blank
    reasoning:      it got reasoning (not where thinking is switched off)
    n_calls:        complete calls that it got
    call_left_open: it was told of a call that never closed
    call_withheld:  the model wrote a call that the client did not get as one
    stopped:        the request's own stop string or limit of calls ended the reply
    may_be_empty:   there may be nothing to add: the client wrote the beginning of the content (`partial`)

    A reply that was cut or stopped by the request's own limits is never a failure. Thinking alone is an
    answer (a model may have nothing to say), but not where a call was lost.
    """
    if call_left_open or (engine_reason == "length" and not stopped):
        return Ending("length", None)
    finish_reason: FinishReason = "tool_calls" if n_calls else "stop"
    failure: Failure | None = None
    if n_calls or stopped:
        pass
    elif tool_choice.mode in ("required", "named"):
        failure = "tool_choice_not_kept"
    elif not content and not may_be_empty and (call_withheld or not reasoning):
        failure = "empty_reply"
    return Ending(finish_reason, failure)


def failure_of(endings: Iterable[Ending]) -> Failure | None:
    """Why a reply of several choices is an error: each of them failed. The first one's failure."""
    failures = [ending.failure for ending in endings]
    return failures[0] if failures and all(failures) else None
