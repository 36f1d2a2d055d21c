"""An earlier turn's reasoning, under the names that gateways and SDKs give it (docs/decisions.md#r20).

| where | who writes it so |
|---|---|
| `reasoning_content`, `reasoning` | Moonshot, this service; vLLM |
| `reasoning_details` | OpenRouter: `{"type": "reasoning.text", "text"}`, or with `summary` |
| `thinking_blocks` | LiteLLM: `{"type": "thinking", "thinking"}` |
| parts of `content` | `{"type": "thinking", "thinking"}` or `{"type": "reasoning", "text"}` |

The first of them with any text is the turn's reasoning; the others repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.xtml.conversation import ConversationError
from gateway.xtml.reading import Reading

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_PART_TYPES = ("thinking", "reasoning", "redacted_thinking")
_TEXT_FIELDS = ("thinking", "text", "reasoning", "summary")


def is_thinking_part(part: Any) -> bool:
    """Whether a part of an assistant message's content is reasoning."""
    return isinstance(part, Mapping) and part.get("type") in _PART_TYPES


def read_reasoning(item: Mapping[str, Any], param: str, reading: Reading) -> str | None:
    """The reasoning of an assistant message, None where there is none. Raises ConversationError."""
    found: str | None = None
    for field in ("reasoning_content", "reasoning"):
        value = item.get(field)
        if value is not None and not isinstance(value, str):
            raise ConversationError(f"{param}.{field} must be a string.", f"{param}.{field}")
        found = found or value
    for field in ("reasoning_details", "thinking_blocks"):
        value = item.get(field)
        if value is not None and not isinstance(value, list):
            raise ConversationError(f"{param}.{field} must be an array of objects.", f"{param}.{field}")
        found = found or _joined(value or [], f"{param}.{field}", reading)
    content = item.get("content")
    if not found and isinstance(content, list):
        found = "".join(
            _text_of(part, f"{param}.content[{index}]", reading)
            for index, part in enumerate(content)
            if is_thinking_part(part)
        )
    return found or None


def _joined(blocks: list[Any], param: str, reading: Reading) -> str:
    return "".join(_text_of(block, f"{param}[{index}]", reading) for index, block in enumerate(blocks))


def _text_of(block: Any, param: str, reading: Reading) -> str:
    """The text of one block; a sealed one of another service has none that could be read, and is named."""
    if not isinstance(block, Mapping):
        raise ConversationError(f"{param} must be an object with a `type`.", param)
    for field in _TEXT_FIELDS:
        value = block.get(field)
        if isinstance(value, str):
            return value
        if isinstance(value, list):  # text parts inside a thinking part
            texts = [part.get("text") for part in value if isinstance(part, Mapping)]
            return "".join(text for text in texts if isinstance(text, str))
        if value is not None:
            raise ConversationError(f"{param}.{field} must be a string.", f"{param}.{field}")
    reading.leave_out(param)
    return ""
