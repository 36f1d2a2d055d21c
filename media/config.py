"""The checkpoint's media settings: `media_proc_cfg` of `preprocessor_config.json`.

See docs/format.md#media-settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from media.navit import MERGE, PATCH

# Counts up with every change of the code that changes prepared values; part of every media identity.
PREPARATION_VERSION = 2

FillStage = Literal["before_resize", "after_resize"]

# How this package names what the checkpoint's block names.
_KEYS = {
    "patch_size": "patch_size",
    "merge_size": "merge_kernel_size",
    "patch_limit": "in_patch_limit",
    "side_limit": "patch_limit_on_one_side",
    "frame_patch_limit": "in_patch_limit_each_frame",
    "video_patch_limit": "in_patch_limit_video",
    "sample_fps": "sample_fps",
    "frames_per_chunk": "temporal_merge_kernel_size",
    "timestamp_mode": "timestamp_mode",
    "max_frames": "max_num_frames_each_video",
    "image_mean": "image_mean",
    "image_std": "image_std",
    "fill_stage": "transparent_bg_fill_stage",
}
_BOARD_KEYS = {
    "square": "chessboard_square_size",
    "white_first": "chessboard_square_on_top_left",
    "white": "chessboard_white_value",
    "gray": "chessboard_gray_value",
}
_OPTIONAL = {"max_frames"}


class MediaConfigError(ValueError):
    """The checkpoint's media settings are missing or are not ones that this package can follow."""


@dataclass(frozen=True, slots=True)
class Board:
    """The chessboard under transparent pictures: squares of `square` pixels of the values `white` and `gray`.

    `white_first`: the top-left square is the white one.
    """

    square: int = 8
    white_first: bool = True
    white: int = 255
    gray: int = 180


@dataclass(frozen=True)
class MediaConfig:
    """How pictures and video are prepared. The defaults are the published K3 checkpoint's values
    (docs/format.md#media-settings).

    patch_size:        side of an image patch, pixels
    merge_size:        image patches per side that become one token
    patch_limit:       image patches of a picture, before padding (soft, docs/format.md#picture-size)
    side_limit:        image patches on one side
    frame_patch_limit: image patches of one video frame
    video_patch_limit: image patches of all sampled frames of a video
    sample_fps:        sampled frames per second
    frames_per_chunk:  sampled frames that are pooled into one input
    max_frames:        sampled frames of a video; None where the checkpoint sets no limit
    image_mean, image_std: per channel, of values scaled to 0..1; applied in the engine, not here
    fill_stage:        whether transparency meets the chessboard before or after the resize
    """

    patch_size: int = PATCH
    merge_size: int = MERGE
    patch_limit: int = 65_536
    side_limit: int = 512
    frame_patch_limit: int = 16_384
    video_patch_limit: int = 655_360
    sample_fps: float = 8.0
    frames_per_chunk: int = 4
    timestamp_mode: str = "hh:mm:ss.fff"
    max_frames: int | None = None
    image_mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    image_std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    fill_stage: FillStage = "after_resize"
    board: Board = field(default_factory=Board)

    @classmethod
    def load(cls, folder: Path | str) -> MediaConfig:
        """Read `preprocessor_config.json` of a checkpoint. Raises MediaConfigError."""
        path = Path(folder) / "preprocessor_config.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise MediaConfigError(
                f"{path} is missing: a K3 checkpoint says there how pictures are prepared"
            ) from error
        except ValueError as error:
            raise MediaConfigError(f"{path} is not valid JSON: {error}") from error
        block = document.get("media_proc_cfg") if isinstance(document, dict) else None
        if not isinstance(block, dict):
            raise MediaConfigError(f"{path} has no `media_proc_cfg` object")
        return cls.from_block(block)

    @classmethod
    def from_block(cls, block: Mapping[str, Any]) -> MediaConfig:
        """Read a `media_proc_cfg` block. Raises MediaConfigError.

        A missing key is an error: the reference's own defaults differ from the shipped values
        (docs/format.md#media-settings).
        """
        missing = [key for name, key in _KEYS.items() if name not in _OPTIONAL and key not in block]
        board = block.get("transparent_bg_config")
        if not isinstance(board, Mapping):
            missing.append("transparent_bg_config")
        else:
            missing += [f"transparent_bg_config.{key}" for key in _BOARD_KEYS.values() if key not in board]
        if missing:
            raise MediaConfigError(f"media_proc_cfg lacks {', '.join(missing)}")
        assert isinstance(board, Mapping)
        if board.get("pattern") != "chessboard":
            raise MediaConfigError(
                f"transparent_bg_config.pattern is {board.get('pattern')!r}, only 'chessboard' is known"
            )
        if block.get("fixed_output_tokens") is not None:
            raise MediaConfigError("media_proc_cfg.fixed_output_tokens is set; K3 checkpoints leave it null")
        values = {name: block[key] for name, key in _KEYS.items() if block.get(key) is not None}
        for name in ("image_mean", "image_std"):
            values[name] = tuple(values[name])
        config = cls(**values, board=Board(**{name: board[key] for name, key in _BOARD_KEYS.items()}))
        config._check()
        return config

    def _check(self) -> None:
        counts = [f.name for f in fields(self) if f.type == "int"]
        for name in counts:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MediaConfigError(
                    f"media_proc_cfg.{_KEYS[name]} must be a positive integer, not {value!r}"
                )
        if (self.patch_size, self.merge_size) != (PATCH, MERGE):
            raise MediaConfigError(
                f"media_proc_cfg has patch_size {self.patch_size} and merge_kernel_size {self.merge_size}; "
                f"K3's vision tower has {PATCH} and {MERGE}"
            )
        if not isinstance(self.sample_fps, int | float) or self.sample_fps <= 0:
            raise MediaConfigError(f"media_proc_cfg.sample_fps must be positive, not {self.sample_fps!r}")
        if self.fill_stage not in ("before_resize", "after_resize"):
            raise MediaConfigError(
                f"media_proc_cfg.transparent_bg_fill_stage must be 'before_resize' or 'after_resize', "
                f"not {self.fill_stage!r}"
            )

    @property
    def token_pixels(self) -> int:
        """Side in pixels of the square that one token stands for."""
        return self.patch_size * self.merge_size

    @cached_property
    def version(self) -> str:
        """16 hex digits over all that decides prepared values: these settings and PREPARATION_VERSION."""
        text = json.dumps([PREPARATION_VERSION, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


K3_MEDIA_CONFIG = MediaConfig()
