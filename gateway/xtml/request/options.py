"""Thinking, effort and response format of a request (docs/format.md#effort)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.xtml.conversation import ConversationError, Effort, ResponseFormat
from gateway.xtml.reading import Reading

# None turns thinking off. K3 knows low, high and max only (docs/format.md#effort); SDKs send the others.
_EFFORTS: dict[str, Effort | None] = {
    "none": None,
    "off": None,
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
_DEFAULT_EFFORT: Effort = "max"
_REASONING_WITHOUT_EFFECT = ("summary", "generate_summary", "exclude", "max_tokens")


def read_thinking(body: Mapping[str, Any], reading: Reading | None = None) -> tuple[bool, Effort | None]:
    """Whether to think, and the effort to note in the prompt (None where thinking is off).

    The effort is the first given of `thinking.effort`, `reasoning_effort`, `reasoning.effort` and
    `chat_template_kwargs.thinking_effort`, else `max`. Thinking is off if that is `none` or `off`, or if the
    first given of `thinking.type`, `reasoning.enabled`, `chat_template_kwargs.thinking` and
    `chat_template_kwargs.enable_thinking` says so. Beside `thinking.type: disabled` its `effort` and `keep`
    say nothing. Raises ConversationError, also where `thinking.type: enabled` stands beside an effort of
    none.
    """
    thinking = _object(body, "thinking")
    reasoning = _object(body, "reasoning")
    template = _object(body, "chat_template_kwargs")
    if reading is not None:
        reading.look_over(thinking, "thinking", ("type", "effort", "keep"))
        reading.look_over(reasoning, "reasoning", ("effort", "enabled"), _REASONING_WITHOUT_EFFECT)
        used = ("thinking", "enable_thinking", "thinking_effort")
        reading.look_over(template, "chat_template_kwargs", used)
    if thinking.get("type") == "disabled":
        for name in ("effort", "keep"):
            if reading is not None and thinking.get(name) is not None:
                reading.leave_out(f"thinking.{name}")
        thinking = {"type": "disabled"}
    if thinking.get("keep") not in (None, "all"):
        raise ConversationError(
            "thinking.keep must be all or absent: the reasoning of earlier turns is always kept.",
            "thinking.keep",
        )
    efforts = [
        _effort(source, field, param)
        for source, field, param in (
            (thinking, "effort", "thinking.effort"),
            (body, "reasoning_effort", "reasoning_effort"),
            (reasoning, "effort", "reasoning.effort"),
            (template, "thinking_effort", "chat_template_kwargs.thinking_effort"),
        )
    ]
    effort = next((value for value in efforts if value is not None), _DEFAULT_EFFORT)
    switches = (
        _thinking_type(thinking),
        _switch(reasoning, "enabled", "reasoning.enabled"),
        _switch(template, "thinking", "chat_template_kwargs.thinking"),
        _switch(template, "enable_thinking", "chat_template_kwargs.enable_thinking"),
    )
    on = next((value for value in switches if value is not None), True)
    if switches[0] and _EFFORTS[effort] is None:
        raise ConversationError(
            f"thinking.type is enabled, but the effort is {effort}; send one of them.", "thinking.type"
        )
    applied = _EFFORTS[effort] if on else None
    return applied is not None, applied


def read_response_format(value: Any) -> ResponseFormat:
    """`text`, `json_object`, or `json_schema` with a name and a schema. Raises ConversationError."""
    if value is None:
        return ResponseFormat()
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in ("text", "json_object"):
        return ResponseFormat(kind)
    if kind != "json_schema":
        raise ConversationError(
            "response_format.type must be text, json_object or json_schema.", "response_format.type"
        )
    param = "response_format.json_schema"
    given = value.get("json_schema")
    if not isinstance(given, Mapping):
        raise ConversationError(f"{param} must be an object with `name` and `schema`.", param)
    if not isinstance(given.get("name"), str) or not given["name"]:
        raise ConversationError(f"{param}.name must be a non-empty string.", f"{param}.name")
    if not isinstance(given.get("schema"), dict):
        raise ConversationError(f"{param}.schema must be a JSON schema object.", f"{param}.schema")
    strict = given.get("strict")
    strict = True if strict is None else strict
    if not isinstance(strict, bool):
        raise ConversationError(f"{param}.strict must be true or false.", f"{param}.strict")
    return ResponseFormat("json_schema", given["schema"], strict)


def _object(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = body.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConversationError(f"{field} must be an object.", field)
    return value


def _effort(source: Mapping[str, Any], field: str, param: str) -> str | None:
    value = source.get(field)
    if value is not None and (not isinstance(value, str) or value not in _EFFORTS):
        raise ConversationError(f"{param} must be one of {', '.join(_EFFORTS)}.", param)
    return value


def _switch(source: Mapping[str, Any], field: str, param: str) -> bool | None:
    value = source.get(field)
    if value is not None and not isinstance(value, bool):
        raise ConversationError(f"{param} must be true or false.", param)
    return value


def _thinking_type(thinking: Mapping[str, Any]) -> bool | None:
    value = thinking.get("type")
    if value is None:
        return None
    if value not in ("enabled", "disabled"):
        raise ConversationError("thinking.type must be enabled or disabled.", "thinking.type")
    return bool(value == "enabled")
