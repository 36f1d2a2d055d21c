import copy
import json
from pathlib import Path
from typing import Any

import pytest

from media.config import K3_MEDIA_CONFIG, MediaConfig, MediaConfigError

# The published block (docs/format.md#media-settings).
BLOCK: dict[str, Any] = {
    "config_type": "media_proc.processors.moonvit.MoonViTMediaProcessorConfig",
    "in_patch_limit": 65536,
    "patch_size": 14,
    "merge_kernel_size": 2,
    "patch_limit_on_one_side": 512,
    "fixed_output_tokens": None,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "in_patch_limit_each_frame": 16384,
    "in_patch_limit_video": 655360,
    "sample_fps": 8.0,
    "temporal_merge_kernel_size": 4,
    "timestamp_mode": "hh:mm:ss.fff",
    "transparent_bg_config": {
        "pattern": "chessboard",
        "chessboard_square_size": 8,
        "chessboard_square_on_top_left": True,
        "chessboard_white_value": 255,
        "chessboard_gray_value": 180,
    },
    "transparent_bg_fill_stage": "after_resize",
}


def write(folder: Path, document: object) -> Path:
    (folder / "preprocessor_config.json").write_text(json.dumps(document))
    return folder


def test_the_published_block_gives_the_built_in_values(tmp_path: Path) -> None:
    loaded = MediaConfig.load(write(tmp_path, {"media_proc_cfg": BLOCK}))
    assert loaded == K3_MEDIA_CONFIG
    assert loaded.version == K3_MEDIA_CONFIG.version


def test_other_values_are_followed_and_change_the_version() -> None:
    block = copy.deepcopy(BLOCK)
    block["transparent_bg_config"]["chessboard_gray_value"] = 200
    block["max_num_frames_each_video"] = 480
    config = MediaConfig.from_block(block)
    assert (config.board.gray, config.max_frames) == (200, 480)
    assert config.version != K3_MEDIA_CONFIG.version


@pytest.mark.parametrize("key", [k for k in BLOCK if k not in ("config_type", "fixed_output_tokens")])
def test_a_missing_key_is_named_instead_of_guessed(key: str) -> None:
    block = {k: v for k, v in BLOCK.items() if k != key}
    with pytest.raises(MediaConfigError, match=key):
        MediaConfig.from_block(block)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"patch_size": 16}, "vision tower has 14"),
        ({"in_patch_limit": 0}, "in_patch_limit must be a positive integer"),
        ({"in_patch_limit": "many"}, "in_patch_limit must be a positive integer"),
        ({"sample_fps": -1}, "sample_fps must be positive"),
        ({"transparent_bg_fill_stage": "never"}, "transparent_bg_fill_stage"),
        ({"fixed_output_tokens": 256}, "fixed_output_tokens"),
        ({"transparent_bg_config": {**BLOCK["transparent_bg_config"], "pattern": "stripes"}}, "stripes"),
    ],
)
def test_values_that_cannot_be_followed_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(MediaConfigError, match=words):
        MediaConfig.from_block({**BLOCK, **change})


def test_a_folder_without_usable_settings_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MediaConfigError, match=r"preprocessor_config\.json is missing"):
        MediaConfig.load(tmp_path)
    with pytest.raises(MediaConfigError, match="media_proc_cfg"):
        MediaConfig.load(write(tmp_path, []))
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(MediaConfigError, match="not valid JSON"):
        MediaConfig.load(tmp_path)
