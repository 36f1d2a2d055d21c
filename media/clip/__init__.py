"""A clip in, what the vision tower reads out (docs/concepts/video.md). Loads PyAV, which is large."""

from media.clip.prepare import (
    TEXT_TOKENS_PER_CHUNK,
    ClipPlan,
    chunk_identity,
    plan_clip,
    prepare_clip,
)

__all__ = ["TEXT_TOKENS_PER_CHUNK", "ClipPlan", "chunk_identity", "plan_clip", "prepare_clip"]
