"""A picture file in, what the vision tower reads out (docs/concepts/pictures.md)."""

from media.picture.prepare import (
    LOW_DETAIL_PATCHES,
    MAX_JPEG_SCANS,
    decode,
    patch_limit_of,
    picture_identity,
    prepare_picture,
    set_pillow_limit,
)

__all__ = [
    "LOW_DETAIL_PATCHES",
    "MAX_JPEG_SCANS",
    "decode",
    "patch_limit_of",
    "picture_identity",
    "prepare_picture",
    "set_pillow_limit",
]
