"""`POST /v1/tokenizers/estimate-token-count` as it goes over the wire."""

from pydantic import BaseModel


class TokenCountData(BaseModel):
    """`total_tokens` equals the `usage.prompt_tokens` that the same request would report."""

    total_tokens: int
    image_tokens: int
    video_tokens: int


class TokenCount(BaseModel):
    """Moonshot's envelope."""

    data: TokenCountData
