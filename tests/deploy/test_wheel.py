"""The built wheel, installed by itself: all that the service needs is in it, and its commands run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(command: list[str], **how: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **how)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return str(done.stdout)


def test_the_wheel_has_what_the_commands_need(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(source)])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source)])
    (wheel,) = tmp_path.glob("k3_gateway-*.whl")
    run([*pip, "install", "-q", "--no-deps", "--target", str(site), str(wheel)])
    # Nothing of the checkout is on the path: what is missing in the wheel is missing here.
    environment = {**os.environ, "PYTHONPATH": str(site), "K3_CACHE": str(tmp_path / "cache")}
    k3 = [sys.executable, "-P", "-m", "gateway.cli"]
    elsewhere = {"env": environment, "cwd": str(tmp_path)}
    where = run([sys.executable, "-P", "-c", "import gateway; print(gateway.__file__)"], **elsewhere)
    assert where.startswith(str(site))
    assert run([*k3, "--version"], **elsewhere).startswith("k3-gateway ")
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
    counted = json.loads(run([*k3, "tokens", "--json", str(request)], **elsewhere))
    assert counted["engine_tokens"] > counted["prompt_tokens"] > 0
    assert "cpu-mini" in run([*k3, "profiles"], **elsewhere)
    for package in ("gateway", "media", "engine", "patches"):
        assert (site / package / "py.typed").exists()
