"""The reproductions in docs/patches.md run as they are, on the installed release, without this project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "patches.md"


def reproduction(name: str, folder: Path) -> list[str]:
    """What the code block that starts with `# name` prints, run from an empty folder without our plugin."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (code,) = (block for block in blocks if block.startswith(f"# {name}\n"))
    (folder / name).write_text(code)
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env=os.environ | {"VLLM_PLUGINS": "none", "VLLM_LOGGING_LEVEL": "CRITICAL"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.timeout(250)
def test_gate_gap_reproduction_shows_the_defect(tmp_path):
    assert reproduction("gate_gap.py", tmp_path)[-3:] == [
        "q_a 0 of 1536 columns wrong",
        "kv_a 0 of 576 columns wrong",
        "gate 768 of 1536 columns wrong",
    ]


@pytest.mark.timeout(250)
def test_video_reproduction_shows_the_defect(tmp_path):
    assert reproduction("video_dtype.py", tmp_path)[-3:] == [
        "t = 1: torch.bfloat16",
        "t = 2: torch.float32",
        "t = 4: torch.float32",
    ]
