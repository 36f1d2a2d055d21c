"""What the Messages routes answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class CacheCreation(BaseModel):
    """Tokens written to the cache, by the time they are kept."""

    ephemeral_5m_input_tokens: int
    ephemeral_1h_input_tokens: int


class MessagesUsage(BaseModel):
    """The three counts of input tokens add up to the prompt."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cache_creation: CacheCreation
    output_tokens: int
    output_tokens_details: dict[str, int]


class MessagesReply(BaseModel):
    """A whole reply. With `stream` the reply is `text/event-stream` of Anthropic's events."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal[
        "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
    ]
    stop_sequence: str | None
    usage: MessagesUsage


class TokenCount(BaseModel):
    """What `usage` would report as the prompt."""

    input_tokens: int
