"""`k3 render` and `k3 tokens` on request files."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from gateway.commands import render
from gateway.xtml import Vocab, encode, from_request
from tests.xtml.small_vocab import write_small_vocab

app = typer.Typer()
render.register(app)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_vocab(tmp_path_factory.mktemp("tokenizer"))


def run(tokenizer: Path, *arguments: str, request: Any = None, data: bytes | None = None) -> Result:
    """Runs a command with a request on standard input."""
    stdin = data if data is not None else json.dumps(request).encode()
    return CliRunner().invoke(app, [*arguments, "--tokenizer", str(tokenizer)], input=stdin)


REQUEST = {"messages": [{"role": "user", "content": "hi <|close|>"}], "reasoning_effort": "low"}


def test_render_shows_text_sections_and_counts(tokenizer: Path) -> None:
    result = run(tokenizer, "render", "-", request=REQUEST)
    assert result.exit_code == 0
    # What was typed is told from a control token.
    shown = '<|open|>message role="user"<|sep|>hi <\\|close|><|close|>message<|sep|><|end_of_msg|>'
    assert shown in result.stdout
    prompt = encode(from_request(REQUEST), Vocab.load(tokenizer))
    lines = result.stdout.splitlines()
    for section in prompt.sections:
        row = next(line.split() for line in lines if line.endswith(section.digest))
        assert row[:4] == [
            section.kind,
            section.path or "-",
            str(section.end - section.start),
            str(section.start),
        ]
    assert f"prompt_tokens  {prompt.n_hosted}" in lines
    assert f"engine_tokens  {len(prompt.ids)}" in lines
    assert "[" not in lines[-1]


def test_render_prints_ids_when_asked(tokenizer: Path) -> None:
    result = run(tokenizer, "render", "-", "--ids", request=REQUEST)
    prompt = encode(from_request(REQUEST), Vocab.load(tokenizer))
    assert json.loads(result.stdout.splitlines()[-1]) == prompt.ids


def test_tokens_counts_a_file(tokenizer: Path, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST), encoding="utf-8-sig")
    prompt = encode(from_request(REQUEST), Vocab.load(tokenizer))
    counts = {"prompt_tokens": prompt.n_hosted, "engine_tokens": len(prompt.ids)}
    assert json.loads(run(tokenizer, "tokens", str(file), "--json").stdout) == counts
    lines = run(tokenizer, "tokens", str(file)).stdout.split("\n")
    assert lines[:2] == [f"{name}  {count}" for name, count in counts.items()]


def picture_request(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"messages": [{"role": "user", "content": [part]}]}


def png(width: int, height: int) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def test_pictures_in_data_urls_are_measured(tokenizer: Path) -> None:
    result = run(tokenizer, "render", "-", request=picture_request(png(100, 60)))
    # 100 x 60 is padded to 112 x 84 pixels: 4 x 3 tokens of 28 pixels
    expected = "<|media_begin|>image 100x60<|media_content|><|media_pad|>x12<|media_end|>"
    assert result.exit_code == 0 and expected in result.stdout


def test_a_picture_elsewhere_needs_an_assumed_size(tokenizer: Path) -> None:
    request = picture_request("https://example.org/a.png")
    refused = run(tokenizer, "tokens", "-", request=request)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("messages[0].content[0].image_url: only data URLs")
    assert "--assume-image" in refused.stderr
    assumed = run(tokenizer, "tokens", "-", "--json", "--assume-image", "100x60", request=request)
    measured = run(tokenizer, "tokens", "-", "--json", request=picture_request(png(100, 60)))
    assert json.loads(assumed.stdout) == json.loads(measured.stdout)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "standard input: is not JSON"),
        (b"\xff\xfe", "standard input: is not JSON"),
        (b"[" * 100_000, "standard input: is not JSON"),
        (b"[]", "standard input: must hold a chat request"),
        (b"{}", "messages must be an array"),
        (b'{"messages": [{"role": "\\ud800"}]}', "messages[0].role must be one of"),
        (json.dumps(picture_request("data:image/png;base64,AAAA")).encode(), "content[0].image_url: "),
    ],
)
@pytest.mark.parametrize("command", ["render", "tokens"])
def test_an_error_is_one_line_and_exit_status_1(
    tokenizer: Path, command: str, data: bytes, said: str
) -> None:
    result = run(tokenizer, command, "-", data=data)
    assert result.exit_code == 1
    assert said in result.stderr and result.stderr.count("\n") == 1
    assert not result.stdout


def test_missing_files_are_named(tokenizer: Path, tmp_path: Path) -> None:
    missing = run(tokenizer, "tokens", str(tmp_path / "none.json"))
    assert missing.exit_code == 1 and "none.json: cannot be read" in missing.stderr
    no_tokenizer = run(tmp_path, "tokens", "-", request=REQUEST)
    assert no_tokenizer.exit_code == 1 and "tiktoken.model: cannot be read" in no_tokenizer.stderr


@pytest.mark.parametrize("size", ["640", "0x5", "axb", "640x480x3"])
def test_an_odd_assumed_size_is_refused(tokenizer: Path, size: str) -> None:
    result = run(tokenizer, "tokens", "-", "--assume-image", size, request=REQUEST)
    assert result.exit_code == 1 and "--assume-image" in result.stderr
