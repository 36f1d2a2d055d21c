"""A Responses body as a `Request`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.errors import bad_request
from gateway.generation.options import Options, Request
from gateway.generation.rendering import refused
from gateway.schema.responses import INCLUDED, WITHOUT_EFFECT, InputTokensRequest, ResponsesRequest
from gateway.xtml import ConversationError, Reading, ToolOrigin, from_responses

# What shapes the prompt.
_CONVERSATION = ("instructions", "tools", "tool_choice", "reasoning", "text")
LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ResponsesAsk:
    """A checked Responses request.

    origins:        what tools of the prompt are to the client, where they are not plain functions
    wants_summary:  the reasoning is to be repeated as its summary
    """

    request: Request
    origins: Mapping[str, ToolOrigin]
    wants_summary: bool


def read_responses(
    body: InputTokensRequest, earlier: Sequence[Any] = (), reading: Reading | None = None
) -> ResponsesAsk:
    """Check in depth what the schema could not; `earlier` are the items of the response that it goes on from.

    Raises:
        InvalidRequest: names the field at fault.
    """
    reading = reading or Reading()
    fields: dict[str, Any] = {
        name: value for name in _CONVERSATION if (value := getattr(body, name)) is not None
    }
    fields["input"] = body.input
    if earlier:
        fields["input"] = [*earlier, *input_items(body)]
    try:
        read = from_responses(fields, reading)
    except ConversationError as error:
        raise refused(error) from None
    sent = [name for name in WITHOUT_EFFECT if getattr(body, name, None) is not None]
    if body.truncation == "auto":
        sent.append("truncation")
    found: dict[str, Any] = {"parallel_tool_calls": body.parallel_tool_calls is not False}
    if isinstance(body, ResponsesRequest):
        include = body.include or []
        sent += [f"include ({name[:60]})" for name in include if name not in INCLUDED]
        if body.top_logprobs and LOGPROBS not in include:
            raise bad_request(f"top_logprobs needs {LOGPROBS} in include", "top_logprobs")
        found |= {
            "max_tokens": body.max_output_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_logprobs": (body.top_logprobs or 0) if LOGPROBS in include else None,
            "cache_hint": body.prompt_cache_key,
        }
    options = Options(
        **found, ignored=(*sent, *reading.ignored), unknown=(*body.unknown_fields, *reading.unknown)
    )
    request = Request(body.model, read.conversation, options, tuple(reading.history))
    summary = (body.reasoning or {}).get("summary") or (body.reasoning or {}).get("generate_summary")
    return ResponsesAsk(request, read.origins, summary is not None)


def input_items(body: InputTokensRequest) -> list[Any]:
    """The request's own input as items."""
    if isinstance(body.input, str):
        content = [{"type": "input_text", "text": body.input}]
        return [{"type": "message", "role": "user", "content": content}]
    return list(body.input or ())
