"""`k3 see` on clips: what it prints, and the contact sheet."""

from pathlib import Path

import numpy as np
import typer
from PIL import Image
from typer.testing import CliRunner

from gateway.commands import see
from media.clip import prepare_clip
from media.preview import CHUNK_COLOUR, contact_sheet, is_clip
from tests.media.clips import numbered, numbered_clip, read_number

app = typer.Typer()
see.register(app)
app.command("other")(lambda: None)  # with one command typer would not ask for its name


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["see", *map(str, arguments)])
    return result.exit_code, result.output


def test_sizes_tokens_and_prompt_are_printed(tmp_path):
    path = tmp_path / "clip.mp4"
    path.write_bytes(numbered_clip(31, width=320, height=240, audio=True))
    code, output = run(path)
    assert code == 0
    assert "320 x 240 pixels, 1.033 s" in output
    assert "8 frames in 2 chunks" in output
    assert "108 a chunk, 216 in all" in output  # docs/format.md#clip-examples
    assert "00:00:00.566<|media_begin|>video<|media_content|><|media_pad|> x 108<|media_end|>" in output
    assert "1 audio track was ignored" in output


def test_a_bad_clip_ends_with_its_reason(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(numbered_clip(5)[:400])
    code, output = run(tmp_path / "clip.mp4")
    assert code == 1
    assert "index" in output and "Traceback" not in output


def test_the_sheet_shows_every_sampled_frame_in_its_chunk(tmp_path):
    data = numbered_clip(31, width=112, height=84)
    sheet = np.asarray(contact_sheet(prepare_clip(data)))
    # Borders are the only thing in this colour; they enclose the chunks.
    border = (sheet == CHUNK_COLOUR).all(axis=2)
    columns = np.flatnonzero(border.all(axis=0) | (border.sum(axis=0) > border.sum(axis=0).max() * 0.9))
    assert len(columns) == 4 * 3  # left and right of two chunks, three pixels wide
    numbers = []
    for chunk in range(2):
        left = columns[chunk * 6]
        for frame in range(4):
            x, y = left + 3 + 4 + frame * (112 + 4), 4 + 3 + 4 + 14
            numbers.append(read_number(sheet[y : y + 84, x : x + 112]))
    assert numbers == [0, 4, 9, 13, 17, 21, 26, 30]


def test_the_sheet_is_written(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(numbered_clip(31))
    code, output = run(tmp_path / "clip.mp4", "--out", tmp_path / "seen")
    assert code == 0 and "clip.seen.png" in output.replace("\n", "")
    with Image.open(tmp_path / "seen" / "clip.seen.png") as sheet:
        assert sheet.width > 2 * 4 * 112


def test_only_gifs_that_move_are_clips(tmp_path):
    still, other = (Image.fromarray(numbered(i)) for i in (1, 2))
    still.save(tmp_path / "still.gif")
    still.save(tmp_path / "moving.gif", save_all=True, append_images=[other])
    assert not is_clip((tmp_path / "still.gif").read_bytes())
    assert is_clip((tmp_path / "moving.gif").read_bytes())
    assert is_clip(numbered_clip(2))
    assert not is_clip(b"\x89PNG\r\n\x1a\n")
