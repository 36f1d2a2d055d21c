"""The bodies of `POST /v1/messages` and `/v1/messages/count_tokens` as they go over the wire.

Messages, tools and choices are checked in depth by `gateway.xtml.request`; here they only have to be of the
right JSON type. Fields are those of Anthropic's request, beta fields included.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

JsonObject = dict[str, Any]


class CountTokensRequest(BaseModel):
    """What shapes the prompt; other fields of a Messages request are taken and change nothing."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str
    messages: Annotated[list[JsonObject], Field(min_length=1, fail_fast=True)]
    system: str | list[JsonObject] | None = None
    tools: Annotated[list[JsonObject], Field(fail_fast=True)] | None = None
    tool_choice: JsonObject | None = None
    thinking: JsonObject | None = None
    output_config: JsonObject | None = None
    context_management: JsonObject | None = None
    metadata: JsonObject | None = None

    # Accepted without effect.
    cache_control: JsonObject | None = None
    mcp_servers: Annotated[list[JsonObject], Field(fail_fast=True)] | None = None
    speed: str | None = None

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Fields that no API this service knows of has."""
        return tuple(self.model_extra or ())


class MessagesRequest(CountTokensRequest):
    """A Messages request; `docs/reference/api.md` says field by field what is done with it."""

    max_tokens: Annotated[int, Field(ge=0)]
    stream: bool | None = None
    stop_sequences: Annotated[list[str], Field(fail_fast=True)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None

    # Accepted without effect.
    betas: Annotated[list[str], Field(fail_fast=True)] | None = None
    billing_policy: JsonObject | None = None
    compaction: JsonObject | None = None
    container: str | JsonObject | None = None
    diagnostics: JsonObject | None = None
    fallback_credit_token: Any = None
    fallbacks: Any = None
    inference_geo: str | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None

    # Refused in a way that Anthropic's SDK understands.
    thread: JsonObject | None = None

    @field_validator("stop_sequences")
    @classmethod
    def _stop_strings(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and len(value) > 16:
            raise ValueError("at most 16 stop sequences are taken")
        for text in value or ():
            if not text or len(text.encode(errors="replace")) > 256:
                raise ValueError("each stop sequence must have 1 to 256 bytes")
        return value


# Fields that are accepted and change nothing; named in the reply's `k3-ignored` header when they are sent.
WITHOUT_EFFECT = (
    "betas",
    "billing_policy",
    "cache_control",
    "compaction",
    "container",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "inference_geo",
    "mcp_servers",
    "service_tier",
    "speed",
    "user_profile_id",
    "workspace_id",
)
