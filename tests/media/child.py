"""Runs code in a fresh Python, where memory can be measured and a crash ends nothing else."""

import os
import subprocess
import sys
from pathlib import Path

PREPARE = """
import sys
from media.types import MediaError
from media.clip import prepare_clip
from tests.media.clips import peak_memory
before = peak_memory()
try:
    print("frames", prepare_clip(open(sys.argv[1], "rb").read()).n_frames)
except MediaError as error:
    print("refused", error)
print(peak_memory() - before)
"""


def run_child(code: str, *arguments: str) -> list[str]:
    """Lines that a fresh Python prints; raises if it fails or takes over a minute."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def prepare_in_child(path: Path) -> tuple[str, int]:
    """("frames N" or "refused WORDS", bytes that preparing the clip took at its peak)."""
    outcome, taken = run_child(PREPARE, str(path))
    return outcome, int(taken)
