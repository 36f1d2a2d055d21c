"""A folder that shadows one of the project's packages is named, on the command line and in vLLM's plugin."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(code: list[str], shadow: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{shadow}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-P", *code], capture_output=True, text=True, env=environment, cwd=shadow
    )


@pytest.mark.parametrize("name", ["media", "engine", "patches"])
@pytest.mark.parametrize("with_init", [True, False])
def test_the_command_says_which_folder_shadows_which_package(
    tmp_path: Path, name: str, with_init: bool
) -> None:
    (tmp_path / name).mkdir()
    if with_init:
        (tmp_path / name / "__init__.py").write_text("")
    ran = run(["-m", "gateway.cli", "--version"], tmp_path)
    if not with_init:  # a folder without __init__ gives way to a package further down the path
        assert ran.returncode == 0, ran.stderr
        return
    assert ran.returncode == 1
    assert str(tmp_path / name) in ran.stderr and f"'{name}'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_vllms_plugin_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "__init__.py").write_text("")
    ran = run(["-c", "from gateway.shadows import register; register()"], tmp_path)
    assert ran.returncode == 1 and "ShadowedPackageError" in ran.stderr
    assert str(tmp_path / "patches") in ran.stderr


def test_the_plugin_is_the_one_that_looks() -> None:
    (point,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="k3_gateway")
    assert point.value == "gateway.shadows:register"
