"""A checkpoint's format against the revisions that were checked: by content, whatever its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.doctor import model
from engine.revision import differences, parts
from gateway.cli import app
from tests.shared_data import shared


@pytest.fixture
def k31(tmp_path: Path, model_folder: Path) -> Path:
    """The mini checkpoint's small files, under the name of one that is not known."""
    folder = tmp_path / "Kimi-K3.1-Pro"
    shutil.copytree(model_folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def change(path: Path, edit: Callable[[Any], None]) -> None:
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))


def table(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tokenizer_config.json").read_bytes())["added_tokens_decoder"]


def test_another_name_with_the_same_format_is_not_warned_of(k31: Path) -> None:
    assert differences(k31) == []
    found = model.check_format(str(k31))
    assert found and {finding.level for finding in found} == {"ok"}


def test_the_published_tokenizer_is_known(tmp_path: Path, model_folder: Path) -> None:
    for name in ("tiktoken.model", "tokenizer_config.json"):
        shutil.copy(shared(f"tokenizer/{name}"), tmp_path)
    shutil.copy(model_folder / "preprocessor_config.json", tmp_path)
    assert differences(tmp_path) == []


def test_a_new_token_and_a_renamed_one_are_named(k31: Path) -> None:
    first = min(map(int, table(k31)))

    def edit(document: dict[str, Any]) -> None:
        rows = document["added_tokens_decoder"]
        rows[str(first + 30)] = {**rows[str(first + 3)], "content": "<|plan|>"}
        rows[str(first + 5)]["content"] = "<|separator|>"
        rows[str(first + 3)]["special"] = True
        del rows[str(first + 65)]

    change(k31 / "tokenizer_config.json", edit)
    (said,) = differences(k31)
    assert f"id {first + 30} (slot 30) is <|plan|>, not named in K3" in said
    assert f"id {first + 5} (slot 5) is <|separator|>, <|sep|> in K3" in said
    assert "<|open|> has special=true, false in K3" in said
    assert "(slot 65) is not named, <osagent_mode> in K3" in said


def test_media_settings_are_compared_key_by_key(k31: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        settings = document["media_proc_cfg"]
        settings["sample_fps"] = 4.0
        settings["transparent_bg_config"]["chessboard_square_size"] = 16
        settings["new_rule"] = True
        del settings["fixed_output_tokens"]  # null in K3, which means the same

    change(k31 / "preprocessor_config.json", edit)
    (said,) = differences(k31)
    assert said == (
        "media settings: new_rule is true, null in K3; sample_fps is 4.0, 8.0 in K3; "
        "transparent_bg_config.chessboard_square_size is 16, 8 in K3"
    )


def test_another_rank_file(k31: Path) -> None:
    with (k31 / "tiktoken.model").open("ab") as ranks:
        ranks.write(b"\n")  # the same tokens, another file
    (said,) = differences(k31)
    assert said.startswith("rank file: tiktoken.model has sha256 ")


@pytest.mark.parametrize("name", ["tiktoken.model", "tokenizer_config.json", "preprocessor_config.json"])
@pytest.mark.parametrize(
    "content", [None, "[]", "{", '{"added_tokens_decoder": {"a": 1}, "media_proc_cfg": 3}']
)
def test_what_cannot_be_read_is_said(k31: Path, name: str, content: str | None) -> None:
    (k31 / name).unlink()
    if content is not None:
        (k31 / name).write_text(content)
    assert differences(k31)


def test_format_files_against_a_checkpoint_that_works(k31: Path, tmp_path: Path) -> None:
    works = tmp_path / "works"
    shutil.copytree(k31, works)
    for name, text in {"encoder.py": "old", "gone.py": "x", "chat_template.jinja": "same"}.items():
        (works / name).write_text(text)
    for name, text in {"encoder.py": "new", "tools.py": "x", "chat_template.jinja": "same"}.items():
        (k31 / name).write_text(text)
    *_, files = parts(k31, works)
    assert [phrase.split(" (")[0] for phrase in files.differences] == [
        "encoder.py has changed",
        "gone.py is gone",
        "tools.py is new",
    ]
    assert str(works) in files.remedy and str(k31) in files.remedy
    found = model.check_format(str(k31))
    assert found and "--baseline" in found[-1].detail


def test_the_doctor_prints_the_difference_and_what_to_do(k31: Path) -> None:
    change(k31 / "preprocessor_config.json", lambda document: document["media_proc_cfg"].update(sample_fps=2))
    result = CliRunner().invoke(
        app, ["doctor", "--profile", "h200-smoke", "--model", str(k31), "--port", "0"]
    )
    assert "sample_fps is 2, 8.0 in K3" in result.output
    assert "do:  Values are read from the file and followed" in result.output
