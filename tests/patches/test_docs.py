"""The reproductions in docs/findings run as they are, on the installed release, without this project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FINDINGS = Path(__file__).resolve().parents[2] / "docs/findings"
NAMES = ("gate_gap.py", "video_dtype.py", "block_copy.py")
# Each as a main module of its own; one process, since importing vLLM is what takes the time.
RUN = """
import runpy, sys
for name in sys.argv[1:]:
    print("#", name)
    runpy.run_path(name, run_name="__main__")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the code block that starts with `# name` prints, run from an empty folder without our plugin."""
    folder = tmp_path_factory.mktemp("reproductions")
    for name in NAMES:
        document = FINDINGS / name.replace("_", "-").replace(".py", ".md")
        blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
        (code,) = (block for block in blocks if block.startswith(f"# {name}\n"))
        (folder / name).write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", RUN, *NAMES],
        cwd=folder,
        env=os.environ | {"VLLM_PLUGINS": "none", "VLLM_LOGGING_LEVEL": "CRITICAL"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    _, *outputs = re.split(r"^# \w+\.py\n", done.stdout, flags=re.M)
    return {name: output.splitlines() for name, output in zip(NAMES, outputs, strict=True)}


@pytest.mark.timeout(250)
def test_gate_gap_reproduction_shows_the_defect(printed):
    assert printed["gate_gap.py"][-3:] == [
        "q_a 0 of 1536 columns wrong",
        "kv_a 0 of 576 columns wrong",
        "gate 768 of 1536 columns wrong",
    ]


@pytest.mark.timeout(250)
def test_video_reproduction_shows_the_defect(printed):
    assert printed["video_dtype.py"][-3:] == [
        "t = 1: torch.bfloat16",
        "t = 2: torch.float32",
        "t = 4: torch.float32",
    ]


@pytest.mark.timeout(250)
def test_block_copy_reproduction_shows_the_defect(printed):
    assert printed["block_copy.py"][-2:] == [
        "KDA first: 706 of 768 tokens copied",
        "MLA first: 768 of 768 tokens copied",
    ]
