from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from gateway.commands.see import register
from media.preview import GRID_COLOUR
from tests.media.clips import numbered_clip
from tests.media.files import encode, noise, oriented

runner = CliRunner()


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # the command lifts it
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)
    return app


def test_sizes_tokens_and_prompt_text_are_printed(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(noise("RGB", 8000, 100), "JPEG", exif=oriented(6)))
    result = runner.invoke(app, ["see", str(path)])
    assert result.exit_code == 0
    for words in ("100 x 8000", "89 x 7168", "112 x 7168", "8 x 512 = 4096", "4 x 256 = 1024"):
        assert words in result.output
    assert "<|media_begin|>image 100x8000<|media_content|><|media_pad|> x 1024<|media_end|>" in result.output


def test_what_the_model_sees_is_written_with_its_grid(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    path.write_bytes(encode(Image.new("RGBA", (40, 30), (0, 0, 0, 0)), "PNG"))
    result = runner.invoke(app, ["see", str(path), "--out", str(tmp_path / "seen")])
    assert result.exit_code == 0
    seen = np.asarray(Image.open(tmp_path / "seen" / "logo.seen.png"))
    assert seen.shape == (56, 56, 3)
    assert all(tuple(seen[y, x]) == GRID_COLOUR for y, x in ((0, 5), (28, 5), (5, 0), (5, 28)))
    assert (seen[1, 1].tolist(), seen[1, 9].tolist(), seen[40, 45].tolist()) == (
        [255, 255, 255],
        [180, 180, 180],
        [0, 0, 0],
    )


def test_detail_is_honoured(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(noise("L", 1920, 1080), "PNG"))
    assert "= 264" in runner.invoke(app, ["see", str(path), "--detail", "low"]).output
    result = runner.invoke(app, ["see", str(path), "--detail", "xyz"])
    assert result.exit_code == 1 and "detail must be" in result.output


@pytest.mark.parametrize("data, words", [(b"<html>", "an HTML page"), (None, "No such file"), (b"", "empty")])
def test_what_cannot_be_read_fails_with_a_message(
    app: typer.Typer, tmp_path: Path, data: bytes | None, words: str
) -> None:
    path = tmp_path / "a.png"
    if data is not None:
        path.write_bytes(data)
    result = runner.invoke(app, ["see", str(path)])
    assert result.exit_code == 1 and words in result.output and "Traceback" not in result.output


def test_a_checkpoint_without_picture_settings_fails_with_a_message(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(noise("L", 10, 10), "PNG"))
    result = runner.invoke(app, ["see", str(path), "--model", str(tmp_path)])
    assert result.exit_code == 1 and "preprocessor_config.json" in result.output


@pytest.mark.parametrize("clip", [False, True])
def test_a_folder_that_cannot_be_written_fails_with_a_message(
    app: typer.Typer, tmp_path: Path, clip: bool
) -> None:
    path = tmp_path / "a"
    path.write_bytes(numbered_clip(2) if clip else encode(noise("L", 10, 10), "PNG"))
    (tmp_path / "taken").write_bytes(b"")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        result = runner.invoke(app, ["see", str(path), "--out", str(folder)])
        assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
        assert "taken" in result.output


def test_a_gif_that_claims_too_many_pixels_fails_with_a_message(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\2\2\1\0;")
    result = runner.invoke(app, ["see", str(path)])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    assert "65535x65535 pixels" in result.output or "too many pixels" in result.output
