"""What the Responses routes answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class ResponsesInputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class ResponsesOutputDetails(BaseModel):
    reasoning_tokens: int


class ResponsesUsage(BaseModel):
    input_tokens: int
    input_tokens_details: ResponsesInputDetails
    output_tokens: int
    output_tokens_details: ResponsesOutputDetails
    total_tokens: int


class ResponsesReply(BaseModel):
    """A whole response; the request's fields are echoed beside these. With `stream` the reply is
    `text/event-stream` of OpenAI's `response.*` events."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    usage: ResponsesUsage | None


class InputTokens(BaseModel):
    """What `usage.input_tokens` would be."""

    object: Literal["response.input_tokens"]
    input_tokens: int
