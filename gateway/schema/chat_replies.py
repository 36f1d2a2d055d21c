"""What `POST /v1/chat/completions` answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class FunctionCall(BaseModel):
    """`arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"]
    function: FunctionCall


class UnparsedText(BaseModel):
    """What the model wrote that is no part of the answer, and why (docs/concepts/decoding.md)."""

    text: str
    why: str


class AssistantMessage(BaseModel):
    """`content` is null where calls or cut thinking stand in its place."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    k3_unparsed: list[UnparsedText] | None = None


class Choice(BaseModel):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: dict[str, Any] | None = None


class PromptTokensDetails(BaseModel):
    cached_tokens: int
    image_tokens: int
    video_tokens: int


class CompletionTokensDetails(BaseModel):
    reasoning_tokens: int


class Usage(BaseModel):
    """`cached_tokens` stands twice: OpenAI's and Moonshot's clients look in different places."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ChatCompletion(BaseModel):
    """A whole reply. With `stream` the reply is `text/event-stream` of `chat.completion.chunk` objects."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
