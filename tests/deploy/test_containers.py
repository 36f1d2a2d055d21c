"""Dockerfile and docker-compose.yml: linted, valid, and what they say is run as plain processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
SERVICES = ("k3-cpu", "k3-b300x8")


def tool(name: str) -> str:
    """A tool of requirements/dev.txt; skips the test, saying so, where that is not installed."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed: pip install -r requirements/dev.txt")
    return found


def interpolated(text: str) -> str:
    """`${NAME:-default}` as with no variable set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def service(name: str) -> dict[str, Any]:
    return yaml.safe_load(interpolated(COMPOSE.read_text()))["services"][name]


def stage(target: str) -> str:
    """The Dockerfile's instructions of one target."""
    return re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.M)[
        {"cpu-environment": 1, "cpu": 2, "gpu": 3}[target]
    ]


def image_environment(target: str) -> dict[str, str]:
    joined = stage(target).replace("\\\n", " ")
    return {
        name: value
        for line in re.findall(r"^ENV (.*)$", joined, re.M)
        for name, value in re.findall(r"(\w+)=(\S+)", line)
    }


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run([tool("hadolint"), str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_follows_its_schema() -> None:
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_locked_down(name: str) -> None:
    settings = service(name)
    assert settings["read_only"] is True
    assert settings["user"].split(":")[0] != "0"
    assert settings["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in settings["security_opt"]
    assert settings["ports"] == ["127.0.0.1:8000:8000"]
    assert {"k3_api_keys", "hf_token"} <= set(settings["secrets"])
    assert any(volume.endswith(":/cache") for volume in settings["volumes"])


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_images_write_to_the_cache_only(target: str) -> None:
    written = re.compile(r"(_CACHE|_ROOT|HOME|_CACHE_DIR|_CACHE_PATH|_BASE)$")
    named = image_environment(target).items()
    folders = [value for name, value in named if written.search(name) and not name.startswith("PIP_")]
    assert folders and all(folder.startswith("/cache") for folder in folders)
    assert "\nUSER 10001" in stage(target)


def test_the_health_check_waits_for_the_load() -> None:
    """18 minutes are normal; until the start period is over, a failed check does not count."""
    assert service("k3-b300x8")["healthcheck"]["start_period"] == "45m"


def test_profiles_in_compose_exist() -> None:
    from engine.profiles import PROFILES

    for name in SERVICES:
        command = service(name)["command"]
        assert command[command.index("--profile") + 1] in PROFILES
    devices = service("k3-b300x8")["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["count"] == PROFILES["b300x8"].requires.gpus_per_node


@pytest.mark.timeout(240)
def test_the_cpu_service_as_plain_processes(tmp_path: Path, model_folder: Path, free_port: int) -> None:
    """Compose's command, environment, secrets and health check; only folders and the port are moved."""
    settings = service("k3-cpu")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "k3_api_keys").write_text("sk-one\nsk-two\n")
    environment = {**image_environment("cpu"), **settings["environment"]}
    environment = {
        name: value.replace("/cache", str(tmp_path / "cache")).replace("/run/secrets", str(secrets))
        for name, value in environment.items()
        if name != "PATH"
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "K3_PORT": str(free_port),
        "K3_SECRETS_FOLDER": str(secrets),
        "TMPDIR": str(tmp_path),
    }
    elsewhere = tmp_path / "cache"
    elsewhere.mkdir()
    check = settings["healthcheck"]["test"]
    assert check[0] == "CMD"

    def healthy() -> bool:
        return subprocess.run(check[1:], env=environment, capture_output=True, timeout=60).returncode == 0

    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["k3", *settings["command"]], env=environment, cwd=elsewhere, stdout=out, stderr=out
        )
    try:
        assert not healthy()  # it starts yet
        deadline = time.monotonic() + 180
        while not ready(free_port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        assert healthy()
        assert refused_without_key(free_port)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not healthy()
    assert "engine arguments" in log.read_text() and "loading weights: " in log.read_text()


def ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    except httpx.TransportError:  # it does not listen yet
        return False


def refused_without_key(port: int) -> bool:
    url = f"http://127.0.0.1:{port}/v1/models"
    without = httpx.get(url).status_code
    with_key = httpx.get(url, headers={"authorization": "Bearer sk-two"}).status_code
    return (without, with_key) == (401, 200)
