"""The bodies of errors."""

from typing import Any, Literal

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """`param` names the field at fault, `code` is for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What every status from 400 on carries, in OpenAI's form."""

    error: ErrorDetail


class AnthropicErrorDetail(BaseModel):
    """`details` only where Anthropic's SDK acts on them."""

    type: str
    message: str
    details: dict[str, Any] | None = None


class AnthropicErrorBody(BaseModel):
    """The same in Anthropic's form; `request_id` is the reply's `x-request-id`."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str
