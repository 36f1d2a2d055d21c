"""`k3 serve` as people run it: a process of its own, the mini checkpoint, real vLLM, a real port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

ROOT = Path(__file__).resolve().parents[2]
_PORT = re.compile(r"listening on http://[^:]+:(\d+)")


@dataclass
class Served:
    """A running `k3 serve`."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def wait(self, seconds: float) -> int:
        """Wait for the process to end by itself; its exit status."""
        return self.process.wait(seconds)


def start(log: Path, *arguments: str, new_group: bool = False, **environment: str) -> Served:
    """Start `k3 serve` on a free port; returns once it listens, long before the engine is up."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "--port", "0", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=new_group,
        )
    deadline = time.monotonic() + 60
    while (found := _PORT.search(log.read_text(errors="replace"))) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"k3 serve did not listen:\n{log.read_text(errors='replace')}")
        time.sleep(0.05)
    return Served(process, log, f"http://127.0.0.1:{found[1]}")


def until_ready(served: Served, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while httpx.get(f"{served.url}/ready").status_code != 200:
        assert served.process.poll() is None and time.monotonic() < deadline, served.log.read_text()
        time.sleep(0.1)


def stop(served: Served) -> int:
    if served.process.poll() is None:
        served.process.send_signal(signal.SIGTERM)
    return served.wait(30)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Iterator[Served]:
    running = start(tmp_path_factory.mktemp("serve") / "log")
    try:
        until_ready(running)
        yield running
    finally:
        stop(running)


@pytest.fixture(scope="session")
def client(served: Served) -> OpenAI:
    return served.client
