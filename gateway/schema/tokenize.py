"""`/tokenize` and `/detokenize` as they go over the wire, in vLLM's form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TokenizeRequest(BaseModel):
    """A text, or the messages of a chat request. `return_token_strs` adds each token's text."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, fail_fast=True)] | None = None
    tools: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either `prompt` or `messages`")
        return self


class DetokenizeRequest(BaseModel):
    """Token ids."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]


class Tokenized(BaseModel):
    """`tokens` are those of the prompt that the engine would get."""

    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(BaseModel):
    prompt: str
