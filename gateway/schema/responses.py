"""The bodies of `POST /v1/responses` and `/v1/responses/input_tokens` as they go over the wire.

Items and tools are checked in depth by `gateway.xtml.request`; here they only have to be of the right JSON
type. Fields are those of OpenAI's request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

JsonObject = dict[str, Any]


class InputTokensRequest(BaseModel):
    """What shapes the prompt."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str
    input: str | Annotated[list[JsonObject], Field(fail_fast=True)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Annotated[list[JsonObject], Field(fail_fast=True)] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    reasoning: JsonObject | None = None
    text: JsonObject | None = None
    user: str | None = None

    # Accepted without effect.
    truncation: Literal["auto", "disabled"] | None = None

    # Only their harmless values are accepted.
    conversation: str | JsonObject | None = None
    personality: str | None = None

    @field_validator("conversation")
    @classmethod
    def _not_kept(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError(
                "conversations are not kept here; send the history as input, or use previous_response_id"
            )
        return value

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Fields that no API this service knows of has."""
        return tuple(self.model_extra or ())


class ResponsesRequest(InputTokensRequest):
    """A Responses request; `docs/reference/api.md` says field by field what is done with it."""

    include: Annotated[list[str], Field(fail_fast=True)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    # Accepted without effect.
    access_programs: JsonObject | None = None
    background_options: JsonObject | None = None
    client_metadata: JsonObject | None = None
    context_management: Annotated[list[JsonObject], Field(fail_fast=True)] | None = None
    image: JsonObject | None = None
    moderation: JsonObject | None = None
    prompt_cache_options: JsonObject | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    stream_options: JsonObject | None = None

    # Only their harmless values are accepted.
    background: bool | None = None
    prompt: JsonObject | None = None

    @field_validator("background")
    @classmethod
    def _in_the_foreground(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("responses are not made in the background; leave it out, and use stream")
        return value

    @field_validator("prompt")
    @classmethod
    def _no_templates(cls, value: JsonObject | None) -> JsonObject | None:
        if value is not None:
            raise ValueError("prompt templates are not kept here; send their text as input")
        return value


# Fields that are accepted and change nothing; named in the reply's `k3-ignored` header when they are sent.
WITHOUT_EFFECT = (
    "access_programs",
    "background_options",
    "context_management",
    "image",
    "max_tool_calls",
    "moderation",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "stream_options",
)
# What `include` may ask for and is there; the rest belongs to tools that nothing here runs.
INCLUDED = ("reasoning.encrypted_content", "message.output_text.logprobs")
