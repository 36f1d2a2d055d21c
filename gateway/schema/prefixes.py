"""`/v1/prefixes` as it goes over the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PinEffort = Literal["low", "high", "max", "none"]


class PinRequest(BaseModel):
    """A prefix to pin: tools, system prompt and leading messages as a chat request has them.

    `efforts`: those the prefix is for, since K3 reads the effort before the system prompt; `none` is thinking
    off. `ttl`: seconds, forever if left out. `tenant`: `own`, `shared`, or without API keys a `user`.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    tools: list[Any] | None = None
    system: str | None = None
    messages: list[Any] | None = None
    efforts: Annotated[list[PinEffort], Field(min_length=1, max_length=4)] = ["max"]
    ttl: Annotated[float, Field(gt=0)] | None = None
    tenant: str | None = None

    @field_validator("name")
    @classmethod
    def _fits_a_path(cls, value: str) -> str:
        if value in (".", ".."):
            raise ValueError("`.` and `..` cannot stand in a URL's path; choose another name")
        return value

    @model_validator(mode="after")
    def _says_something(self) -> PinRequest:
        if not (self.tools or self.system or self.messages):
            raise ValueError("there is nothing to pin: give tools, system or messages")
        if len(set(self.efforts)) != len(self.efforts):
            raise ValueError("efforts must differ from each other")
        return self


class PinRank(BaseModel):
    """`cached_tokens`: by the engine, when it was last asked; `prefills`: how often it was computed."""

    rank: int
    warm: bool
    cached_tokens: int | None
    prefills: int
    error: str | None


class PinState(BaseModel):
    """`tokens`: what a request that begins with the prefix reads from the cache while it is warm."""

    effort: str
    tokens: int
    ranks: list[PinRank]


class Pinned(BaseModel):
    """A pinned prefix. `expires`: seconds since 1970, null for never."""

    object: Literal["prefix"]
    name: str
    tenant: Literal["own", "shared"]
    tokens: int
    expires: float | None
    from_settings: bool
    efforts: list[PinState]


class PinnedList(BaseModel):
    """The caller's pins and the shared ones. `budget_tokens` is for all tenants together."""

    object: Literal["list"]
    data: list[Pinned]
    budget_tokens: int
    taken_tokens: int
    changes: dict[str, int]
    lost_tokens: dict[str, int]


class Lost(BaseModel):
    """Tokens that were not read from the cache though something like them was there before.

    `eviction` is null where the engine was not asked.
    """

    change: int
    boundary: int
    eviction: int | None


class ExplainedSection(BaseModel):
    """A section of the prompt; `known`: an earlier prompt began with it and all before it."""

    kind: str
    path: str
    tokens: int
    end: int
    known: bool


class Explained(BaseModel):
    """Where a prompt's tokens would come from. `cached_tokens` is null where the engine was not asked."""

    prompt_tokens: int
    shared_tokens: int
    possible_tokens: int
    cached_tokens: int | None
    changed: str | None
    rank: int
    unit: int
    lost: Lost
    sections: list[ExplainedSection]
