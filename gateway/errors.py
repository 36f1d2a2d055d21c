"""What can be wrong with a request, as exceptions; which HTTP status each is, `gateway.api.errors` says.

RequestError
  InvalidRequest          the content is wrong; `param` names the field
    ContextOverflow       the prompt does not fit
    ThreadsNotKept        the client may send the whole history instead
  Unauthenticated, Forbidden, NotFound
  BodyTooLarge, BodyNotTaken
  LimitReached            a limit of the caller's own; it may try again
  ReplyUnusable           the model's or the engine's reply cannot be given to the client
  Unavailable             the service cannot answer now
  ServerFault             a defect of this service
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError


class RequestError(Exception):
    """Ends a request. `param` names the field at fault, `code` is for programs."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class InvalidRequest(RequestError):
    """The request's content is wrong."""


class ThreadsNotKept(InvalidRequest):
    """Anthropic's SDK asks for the conversation to be held by the server, and goes on without if told so."""

    def __init__(self) -> None:
        super().__init__(
            "Conversations are not held here (thread); send the whole history with each request.",
            "thread",
            "thread_unsupported_request",
        )


class ContextOverflow(InvalidRequest):
    """The prompt of `n_prompt` tokens leaves no room in a context of `limit` (docs/decisions.md#r21).

    The code is in the message too: langchain-openai looks for it in the text, and the openai package no
    longer puts the error's code there.
    """

    def __init__(self, n_prompt: int, limit: int, param: str = "messages") -> None:
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
            f"{n_prompt} tokens. Please reduce the length of the messages. (context_length_exceeded)",
            param,
            "context_length_exceeded",
        )
        self.n_prompt = n_prompt
        self.limit = limit


class Unauthenticated(RequestError):
    """No key, or a wrong one."""


class Forbidden(RequestError):
    """The caller may not do this."""


class NotFound(RequestError):
    """There is no such model, prefix, response or file."""


class BodyTooLarge(RequestError):
    """The body is larger than this service takes; it is not read to its end."""


class BodyNotTaken(RequestError):
    """The body is of a type or an encoding that the route does not take."""


class LimitReached(RequestError):
    """A limit of the caller's own; it may try again after `retry_after` seconds."""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, *, retry_after: float = 1
    ) -> None:
        super().__init__(message, param, code)
        self.retry_after = retry_after


class ReplyUnusable(RequestError):
    """What the model wrote or the engine gave cannot be passed on."""


class Unavailable(RequestError):
    """The service is starting, stopping, full, or its engine is dead; `retry_after` in seconds."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        code: str | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, param, code)
        self.retry_after = retry_after


class ServerFault(RequestError):
    """A defect of this service; whoever raises it sees to it that the log says more."""

    def __init__(self) -> None:
        super().__init__("The server failed on this request; its log says why")


def bad_request(message: str, param: str | None = None, code: str | None = None) -> InvalidRequest:
    """The request's content is wrong."""
    return InvalidRequest(message, param, code)


def stopping() -> Unavailable:
    """The server was told to stop, and the time for what it had begun is over."""
    return Unavailable("The server is stopping; try again, or elsewhere", code="server_stopping")


def decoders_lost(param: str) -> Unavailable:
    """The processes that decode media were lost, twice."""
    return Unavailable(f"{param}: the server's media decoder failed; try again", param, retry_after=1)


_FAILURES = {
    "empty_reply": "The model ended its reply without saying anything. Try again.",
    "tool_choice_not_kept": "The model did not call the tool that tool_choice demands. Try again.",
}


def unusable_reply(failure: str) -> ReplyUnusable:
    """A reply that gives its client nothing must not look like a success (docs/decisions.md#r3)."""
    return ReplyUnusable(_FAILURES[failure], code=failure)


def field_path(parts: Iterable[int | str]) -> str:
    """`("messages", 2, "content")` as `messages[2].content`."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def errors_of(invalid: ValidationError) -> list[dict[str, Any]]:
    """Pydantic's errors without the input, which may be a prompt or a picture's base64."""
    return [dict(e) for e in invalid.errors(include_url=False, include_input=False, include_context=False)]


def from_validation(errors: Sequence[dict[str, Any]], known: frozenset[str] = frozenset()) -> InvalidRequest:
    """The first of pydantic's errors as a refusal that names the field.

    Where a field is a union, pydantic's location carries the member's name too; such parts are not a field
    names and are left out (`known` is not consulted for list positions).
    """
    error = errors[0]
    everything = not known or error["type"] == "extra_forbidden"  # whose field nobody knows
    where = [part for part in error["loc"] if isinstance(part, int) or everything or part in known]
    param = field_path(where) or None
    message = str(error["msg"]).removeprefix("Value error, ")
    return bad_request(f"{param}: {message}" if param else message, param)
