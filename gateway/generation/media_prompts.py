"""What a prompt says about prepared pictures and clips: the one place where `media` and `xtml` meet."""

from __future__ import annotations

from gateway.xtml import MediaPrompt, MediaSpan
from media.types import Clip, MediaItem, Picture


def media_items(media: Picture | Clip) -> list[MediaItem]:
    """Inputs of the vision tower in prompt order: one of a picture, one of each chunk of a clip."""
    return [media.item] if isinstance(media, Picture) else [chunk.item for chunk in media.chunks]


def media_prompt(media: Picture | Clip) -> MediaPrompt:
    """The placeholders of a picture or of a clip's chunks (docs/format.md#picture-prompt, #clip-prompt)."""
    if isinstance(media, Picture):
        spans: tuple[MediaSpan, ...] = (picture_span(media.width, media.height, media.item.n_tokens),)
    else:
        spans = tuple(MediaSpan(chunk.timestamp, "video", chunk.item.n_tokens) for chunk in media.chunks)
    return MediaPrompt(spans, "".join(item.identity for item in media_items(media)))


def picture_span(width: int, height: int, n_tokens: int) -> MediaSpan:
    """A picture of the given original size in pixels."""
    return MediaSpan("", f"image {width}x{height}", n_tokens)


def shown_prompt(span: MediaSpan) -> str:
    """A span's prompt text for people; the placeholders are counted, not spelled out."""
    return (
        f"{span.lead}<|media_begin|>{span.label}<|media_content|><|media_pad|> x {span.n_tokens}<|media_end|>"
    )
