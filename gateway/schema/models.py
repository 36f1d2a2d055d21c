"""`/v1/models` as it goes over the wire."""

from typing import Literal

from pydantic import BaseModel


class Model(BaseModel):
    """A served name. `root` is the checkpoint; `max_model_len` is null until the engine is up."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int | None


class ModelList(BaseModel):
    """All served names."""

    object: Literal["list"]
    data: list[Model]
