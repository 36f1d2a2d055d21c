"""A chat request's body as a `Request`."""

from __future__ import annotations

from typing import Any

from gateway.errors import bad_request
from gateway.generation.options import Options, Request
from gateway.generation.rendering import refused
from gateway.schema.chat import WITHOUT_EFFECT, ChatRequest
from gateway.xtml import ConversationError, Reading, from_request

# What shapes the prompt.
_CONVERSATION = (
    "messages",
    "tools",
    "web_search_options",
    "tool_choice",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "chat_template_kwargs",
)


def read_chat(body: ChatRequest, reading: Reading | None = None) -> Request:
    """Check in depth what the schema could not; `reading` says how.

    Raises:
        InvalidRequest: names the field at fault.
    """
    _check_agreement(body)
    reading = reading or Reading()
    fields: dict[str, Any] = {
        name: value for name in _CONVERSATION if (value := getattr(body, name)) is not None
    }
    try:
        conversation = from_request(fields, reading)
    except ConversationError as error:
        raise refused(error) from None
    options = Options(
        n=body.n or 1,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        stop=body.stop_strings,
        seed=body.seed,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=body.logit_bias or {},
        top_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        priority=body.priority or 0,
        cache_hint=body.prompt_cache_key,
        ignored=(*(name for name in WITHOUT_EFFECT if getattr(body, name) is not None), *reading.ignored),
        unknown=(*body.unknown_fields, *reading.unknown),
    )
    return Request(body.model, conversation, options, tuple(reading.history))


def _check_agreement(body: ChatRequest) -> None:
    """Refuse fields that contradict each other."""
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options is only allowed when stream is true", "stream_options")
    if body.top_logprobs and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
