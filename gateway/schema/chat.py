"""The body of `POST /v1/chat/completions` as it goes over the wire.

Messages, tools and formats are checked in depth by `gateway.xtml.request`, which knows what K3 can say; here
they only have to be of the right JSON type. Fields are those of OpenAI's request plus Moonshot's and vLLM's.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

JsonObject = dict[str, Any]

MESSAGE_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"type": ["string", "array", "null"]},
        "name": {"type": "string"},
        "reasoning_content": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
        "tool_call_id": {"type": "string"},
        "tools": {"type": "array", "items": {"type": "object"}},
        "partial": {"type": "boolean"},
    },
}


Bias = Annotated[float, Field(ge=-100, le=100)]


def _few(value: Any) -> Any:
    """Before each entry is looked at: an error for each of many would take long to collect."""
    if isinstance(value, dict) and len(value) > 1024:
        raise ValueError("at most 1024 token ids are taken")
    return value


class StreamOptions(BaseModel):
    """`stream_options`. `include_obfuscation` is accepted without effect."""

    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(BaseModel):
    """A chat request; `docs/reference/api.md` says field by field what is done with it."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str
    # Items are checked by `gateway.xtml`: an error of each of many would take long to collect here.
    messages: Annotated[
        list[Any],
        Field(min_length=1, json_schema_extra={"items": MESSAGE_SCHEMA}),
    ]

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    logit_bias: Annotated[dict[str, Bias], BeforeValidator(_few)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    tools: Annotated[list[Any], Field(json_schema_extra={"items": {"type": "object"}})] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    response_format: JsonObject | None = None

    reasoning_effort: str | None = None
    reasoning: JsonObject | None = None
    thinking: JsonObject | None = None
    chat_template_kwargs: JsonObject | None = None

    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    priority: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    # Accepted without effect.
    metadata: JsonObject | None = None
    store: bool | None = None
    service_tier: str | None = None
    web_search_options: JsonObject | None = None
    verbosity: str | None = None
    prediction: JsonObject | None = None
    moderation: JsonObject | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: JsonObject | None = None

    # Only their harmless values are accepted; see `refuse_unsupported`.
    modalities: Annotated[list[str], Field(fail_fast=True)] | None = None
    audio: JsonObject | None = None
    functions: list[Any] | None = None
    function_call: str | JsonObject | None = None

    @field_validator("modalities")
    @classmethod
    def _text_only(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and value != ["text"]:
            raise ValueError('only ["text"] is supported: K3 writes text')
        return value

    @field_validator("audio")
    @classmethod
    def _not_offered(cls, value: JsonObject | None) -> JsonObject | None:
        if value is not None:
            raise ValueError("is not supported by K3; leave it out")
        return value

    @field_validator("functions", "function_call")
    @classmethod
    def _use_tools(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError(
                "the deprecated function fields are not supported; use `tools` and `tool_choice`"
            )
        return value

    @field_validator("stop")
    @classmethod
    def _stop_strings(cls, value: str | list[str] | None) -> str | list[str] | None:
        strings = [value] if isinstance(value, str) else value or []
        if len(strings) > 16:
            raise ValueError("at most 16 stop strings are taken")
        for text in strings:
            if not text or len(text.encode()) > 256:
                raise ValueError("each stop string must have 1 to 256 bytes")
        return value

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Fields that no API this service knows of has, here and in `stream_options`."""
        inner = (self.stream_options.model_extra or {}) if self.stream_options is not None else {}
        return (*(self.model_extra or ()), *(f"stream_options.{name}" for name in inner))


# Fields that are accepted and change nothing; named in the reply's `k3-ignored` header when they are sent.
WITHOUT_EFFECT = (
    "metadata",
    "store",
    "service_tier",
    "verbosity",
    "prediction",
    "moderation",
    "prompt_cache_retention",
    "prompt_cache_options",
)
