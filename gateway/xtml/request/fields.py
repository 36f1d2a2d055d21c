"""Fields of JSON objects, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.xtml.conversation import ConversationError

Json = Mapping[str, Any]


def object_at(value: Any, param: str) -> Json:
    """The object at `param`, empty where there is none. Raises ConversationError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConversationError(f"{param} must be an object.", param)
    return value


def string_of(block: Json, field: str, param: str) -> str:
    """The string `field` of the object at `param`. Raises ConversationError."""
    value = block.get(field)
    if not isinstance(value, str):
        raise ConversationError(f"{param}.{field} must be a string.", f"{param}.{field}")
    return value
