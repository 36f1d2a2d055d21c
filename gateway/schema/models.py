"""`/v1/models` as it goes over the wire."""

from typing import Literal

from pydantic import BaseModel


class Model(BaseModel):
    """A served name. `root` is the checkpoint; the context's lengths are null until the engine is up.

    The `supports_*` fields are those that Moonshot's own agents configure themselves by.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int | None
    context_length: int | None
    supports_reasoning: bool
    supports_image_in: bool
    supports_video_in: bool
    supports_thinking_type: Literal["both"]


class ModelList(BaseModel):
    """All served names."""

    object: Literal["list"]
    data: list[Model]


class AnthropicModel(BaseModel):
    """A served name as Anthropic's SDK reads it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int | None
    max_tokens: int | None


class AnthropicModelList(BaseModel):
    """All served names, on one page."""

    data: list[AnthropicModel]
    first_id: str
    last_id: str
    has_more: Literal[False]
