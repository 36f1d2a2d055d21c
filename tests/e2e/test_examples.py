"""The scripts in examples/, run as a reader runs them, against `k3 serve` with the mini checkpoint."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import ROOT, Served

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_picture(served: Served, tmp_path: Path) -> None:
    from PIL import Image

    address = {"K3_BASE_URL": f"{served.url}/v1"}
    assert run("picture.py", **address).startswith("It is red.\n")
    Image.new("RGB", (100, 80), "blue").save(tmp_path / "blue.png")
    printed = run("picture.py", str(tmp_path / "blue.png"), "What color is it?", **address)
    assert re.fullmatch(r".+\n\d+ \+ \d+ tokens\n", printed)


def test_tool_loop(served: Served) -> None:
    printed = run("tool_loop.py", K3_BASE_URL=f"{served.url}/v1")
    assert "The condition is warm and the temperature is 23." in printed
    assert "The condition is cold and the temperature is 4." in printed


def test_video(served: Served) -> None:
    answer, counts = run("video.py", K3_BASE_URL=f"{served.url}/v1").splitlines()
    assert answer == "A red square moves to the right."
    assert re.fullmatch(r"[1-9]\d* of \d+ prompt tokens are video", counts)


def test_pinned_prefix(served: Served) -> None:
    pinned, *asked = run("pinned_prefix.py", K3_BASE_URL=f"{served.url}/v1").splitlines()
    tokens = int(re.search(r"\d+", pinned)[0])  # type: ignore[index]
    assert tokens > 0 and len(asked) == 2
    assert all(int(line.split()[0]) >= tokens for line in asked)


def test_format_library(model_folder: Path) -> None:
    printed, without_folder = (
        re.sub("call_[A-Za-z0-9]{24}", "CALL_ID", text)
        for text in (run("format_library.py", str(model_folder)), run("format_library.py"))
    )
    assert printed == without_folder
    assert "reasoning 'A call.', content 'Looking.', finish tool_calls" in printed
    assert 'look({"at":"left"})' in printed


def test_every_example_is_listed_and_run_here() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == set(re.findall(r"\]\(([a-z_]+\.py)\)", (EXAMPLES / "README.md").read_text()))
    assert names == set(re.findall(r'run\("([a-z_]+\.py)"', Path(__file__).read_text()))
