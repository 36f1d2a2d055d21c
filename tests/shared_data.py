"""Finds data that is for tests only: the real K3 rank file and prompts with known token counts."""

import os
from pathlib import Path

import pytest


def shared(path: str) -> Path:
    """`path` under $K3_SHARED or `../shared` beside the checkout; skips the test, saying so, where absent."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    found = Path(os.environ.get("K3_SHARED", beside)) / path
    if not found.exists():
        pytest.skip(f"needs {path} under $K3_SHARED (or ../shared): real K3 data is not part of the project")
    return found
