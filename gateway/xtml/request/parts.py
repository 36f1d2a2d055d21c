"""The content of a message: text, pictures and clips in their places (docs/format.md#parts)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from gateway.xtml.conversation import ConversationError, Detail, MediaPart, Part, Role
from gateway.xtml.reading import Reading
from gateway.xtml.request.reasoning import is_thinking_part

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_IMAGE_PARTS = ("image_url", "input_image", "image")
_VIDEO_PARTS = ("video_url", "input_video", "video")
_WITHOUT_EFFECT = ("cache_control", "annotations", "logprobs", "id")


def read_content(item: Mapping[str, Any], param: str, role: Role, reading: Reading) -> tuple[Part, ...]:
    """`content` of a chat message at `param`: a text, a list of parts, or null. Raises ConversationError."""
    content = item.get("content")
    if isinstance(content, str):
        return (content,) if content else ()
    if content is None:
        return ()
    if not isinstance(content, list):
        raise ConversationError(
            f"{param}.content must be a string, an array of parts, or null.", f"{param}.content"
        )
    return tuple(
        _part(part, f"{param}.content[{index}]", role, reading)
        for index, part in enumerate(content)
        if not (role == "assistant" and is_thinking_part(part))
    )


def shown(value: Any) -> str:
    """A value of the client's in an error message, shortened."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:60]!r}…"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array"
    return "a number" if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)


def _part(part: Any, param: str, role: Role, reading: Reading) -> Part:
    if not isinstance(part, Mapping):
        raise ConversationError(f"{param} must be an object with a `type`.", param)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _TEXT_PARTS:
        field = _TEXT_PARTS[kind]
        text = part.get(field)
        if not isinstance(text, str):
            raise ConversationError(f"{param}.{field} must be a string.", f"{param}.{field}")
        if len(part) > 2:
            reading.look_over(part, param, ("type", field), _WITHOUT_EFFECT)
        return text
    if kind in _IMAGE_PARTS or kind in _VIDEO_PARTS:
        if role == "assistant":
            raise ConversationError(
                f"{param}: pictures and videos cannot stand in assistant messages; "
                "put them in a user, system or tool message.",
                param,
            )
        return _media_part(part, kind, param, reading)
    if kind in ("input_audio", "audio", "audio_url", "file", "input_file"):
        raise ConversationError(
            f"{param}.type {kind!r} is not something Kimi K3 can read; send text, image_url or video_url.",
            f"{param}.type",
        )
    raise ConversationError(
        f"{param}.type must be text, image_url or video_url; got {shown(kind)}.", f"{param}.type"
    )


def _media_part(part: Mapping[str, Any], kind: str, param: str, reading: Reading) -> MediaPart:
    """The URL stands under the type's own name, or `image_url` / `video_url`, as text or `{"url": …}`."""
    medium = "image" if kind in _IMAGE_PARTS else "video"
    names = (kind, f"{medium}_url", medium, "url")
    field = next((name for name in names if part.get(name) is not None), f"{medium}_url")
    value = part.get(field)
    detail = part.get("detail")
    where = f"{param}.{field}"
    reading.look_over(part, param, ("type", field, "detail"), _WITHOUT_EFFECT)
    url_at = where
    if isinstance(value, Mapping):
        reading.look_over(value, where, ("url", "detail"))
        detail = value.get("detail", detail)
        value = value.get("url")
        url_at += ".url"
    if not isinstance(value, str) or not value:
        raise ConversationError(f"{url_at} must be a URL (http, https or data).", url_at)
    if detail is None:
        detail = "auto"
    if detail not in get_args(Detail):
        raise ConversationError(
            f"{where}.detail must be one of {', '.join(get_args(Detail))}; got {shown(detail)}.",
            f"{where}.detail",
        )
    return MediaPart("image" if medium == "image" else "video", value, cast(Detail, detail), where)
