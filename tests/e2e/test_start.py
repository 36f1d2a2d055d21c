"""Start-up and death: what is wrong is said, with what to do, and the exit status is not zero."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.conftest import ROOT, Served, start, stop, until_ready


def fails(*arguments: str, **environment: str) -> str:
    """The output of a `k3 serve` that must end by itself with a failure."""
    result = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "serve", "--port", "0", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert result.returncode == 1, result.stdout + result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("k3 serve: "), result.stderr
    return last


def until_ended(processes: list[psutil.Process], seconds: float = 20) -> None:
    """Fails if one of them goes on; an orphan that nobody waits for stays a zombie."""

    def lives(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if lives(process)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def test_no_such_model(tmp_path: Path) -> None:
    assert "no model folder" in fails("--model", str(tmp_path / "missing"))


def test_a_folder_that_holds_no_k3(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert "llama" in fails("--model", str(tmp_path))


def test_no_such_profile() -> None:
    assert "cpu-mini" in fails("--profile", "nope")


def test_a_wrong_setting() -> None:
    assert "K3_MAX_BODY_BYTES" in fails(K3_MAX_BODY_BYTES="much")


def test_an_unknown_engine_argument() -> None:
    assert "max_modellen" in fails("--engine-arg", "max_modellen=5")


def test_a_profile_that_needs_gpus_where_there_are_none() -> None:
    message = fails("--profile", "b300x8", PATH=str(Path(sys.executable).parent))
    assert "8 GPU(s)" in message and "--model" in message and "k3 doctor --profile b300x8" in message


def test_an_address_of_another_machine() -> None:
    message = fails("--host", "192.0.2.1")
    assert "no such address" in message and "--host" in message
    assert "no such address" in fails("--host", "no-such-host.invalid")


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        message = fails("--port", str(taken.getsockname()[1]))
    assert "--port" in message


def test_not_enough_memory() -> None:
    assert "GiB" in fails("--engine-arg", f"kv_cache_memory_bytes={2**50}")


def test_a_plugin_that_may_not_load() -> None:
    assert "VLLM_PLUGINS" in fails(VLLM_PLUGINS="something_else")


@pytest.mark.timeout(200)
def test_an_engine_that_dies_ends_the_process(tmp_path: Path, model_folder: Path) -> None:
    served = start(tmp_path / "log")
    try:
        until_ready(served)
        children = psutil.Process(served.process.pid).children(recursive=True)
        (engine,) = [child for child in children if "EngineCore" in " ".join(child.cmdline())]
        engine.kill()
        assert served.wait(30) == 1
        assert " ERROR gateway.service: engine dead: the engine died" in served.log.read_text()
        until_ended(children)
    finally:
        stop(served)


def endless_reply(served: Served) -> AbstractContextManager[httpx.Response]:
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    body |= {"max_tokens": 30_000, "logit_bias": {"300": 100}, "temperature": 0}
    return httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=60)


@pytest.mark.timeout(200)
def test_ctrl_c_ends_running_replies_with_an_error(tmp_path: Path, model_folder: Path) -> None:
    """The signal goes to the whole process group, as a terminal sends it; no reply may look finished."""
    served = start(tmp_path / "log", new_group=True)
    try:
        until_ready(served)
        with endless_reply(served) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            os.killpg(served.process.pid, signal.SIGINT)
            last = [line for line in lines if line][-1]
        assert "error" in json.loads(last.removeprefix("data: "))
        assert served.wait(40) == 0
    finally:
        stop(served)


@pytest.mark.timeout(200)
def test_a_second_ctrl_c_does_not_wait_for_replies(tmp_path: Path, model_folder: Path) -> None:
    served = start(tmp_path / "log", new_group=True)
    try:
        until_ready(served)
        children = psutil.Process(served.process.pid).children(recursive=True)
        with endless_reply(served) as response, pytest.raises(httpx.TransportError):
            for n_lines, _ in enumerate(response.iter_lines()):
                if n_lines in (10, 100):
                    os.killpg(served.process.pid, signal.SIGINT)
        served.wait(40)
        until_ended(children)
    finally:
        stop(served)


def test_a_settings_file_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "k3.toml").write_text("port = = 5")
    assert "k3.toml" in fails("--config", str(tmp_path / "k3.toml"))


def test_a_cache_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "K3_CACHE" in fails(K3_CACHE=str(tmp_path / "file" / "cache"))


@pytest.mark.timeout(200)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_while_it_starts(tmp_path: Path, model_folder: Path, number: int) -> None:
    served = start(tmp_path / "log")
    assert httpx.get(f"{served.url}/ready").status_code == 503
    children = psutil.Process(served.process.pid).children(recursive=True)
    served.process.send_signal(number)
    assert served.wait(30) == 0
    until_ended(children)
