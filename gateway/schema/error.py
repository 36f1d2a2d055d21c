"""OpenAI's error body."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    """`param` names the field at fault, `code` is for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What every status from 400 on carries."""

    error: ErrorDetail
