"""How patches get into processes: the plugin, the sitecustomize shim, and the `k3 patches` command."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
QUANTIZED = {
    "vision_config": {"vt_hidden_size": 32},
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            "language_model.model.layers.3.self_attn.kv_b_proj": {"quant_algo": "FP8_PB_WO"}
        },
    },
}


@pytest.fixture
def quantized(tmp_path, monkeypatch) -> Path:
    """A folder with the config.json of a mixed-precision K3, named by $K3_MODEL."""
    (tmp_path / "config.json").write_text(json.dumps(QUANTIZED))
    monkeypatch.setenv("K3_MODEL", str(tmp_path))
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "CRITICAL")
    return tmp_path


def load_plugins_and_report(pipe) -> None:
    """What vLLM's engine core and workers do first, then what a worker answers to the front end."""
    from vllm.model_executor.layers.quantization import modelopt
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    from patches.worker import PatchReport

    marks = getattr(modelopt._Fp8PbWoPartialBlock.apply, "k3_patches", frozenset())
    pipe.send((PatchReport().k3_patch_report(), sorted(marks)))


@pytest.mark.timeout(200)
def test_spawned_engine_process_is_patched(quantized):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=load_plugins_and_report, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.poll(180)
    report, marks = ours.recv()
    process.join(30)
    assert report["pid"] == process.pid != os.getpid()
    states = {row["switch"]: row["state"] for row in report["patches"]}
    assert states["KIMI_K3_FP8_PB_GATE_GAP"] == "applied"
    assert states["KIMI_K3_NVFP4_SITU_G1_SCALE"] == "not applicable"
    assert marks == ["KIMI_K3_FP8_PB_GATE_GAP"]


SHIMMED = """
from vllm.plugins import load_general_plugins
load_general_plugins()
load_general_plugins()
"""


def with_shim(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    path = [REPOSITORY / "patches" / "sitecustomize", *paths, REPOSITORY]
    # VLLM_PLUGINS names no plugin of ours: only the shim can do it, as where nothing is installed.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "VLLM_PLUGINS": "none"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200
    )


@pytest.mark.timeout(250)
def test_shim_applies_and_prints_one_line_a_patch(quantized):
    done = with_shim(SHIMMED)
    lines = [line for line in done.stderr.splitlines() if line.startswith("Kimi-K3 runtime patch: ")]
    assert done.returncode == 0, done.stderr
    assert len(lines) == 7
    assert any("KIMI_K3_FP8_PB_GATE_GAP applied: " in line for line in lines)


def test_shim_does_nothing_without_vllm_and_runs_the_sitecustomize_it_hides(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('the container sets itself up')\n")
    done = with_shim("import sys; print('patches' in sys.modules)", tmp_path)
    assert done.stdout.splitlines() == ["the container sets itself up", "False"]


@pytest.mark.timeout(250)
def test_shim_stops_a_process_whose_switch_is_wrong(quantized, monkeypatch):
    monkeypatch.setenv("KIMI_K3_FP8_PB", "maybe")
    done = with_shim(SHIMMED)
    assert done.returncode != 0
    assert "KIMI_K3_FP8_PB='maybe': must be auto, 1 or 0" in done.stderr


@pytest.mark.timeout(250)
def test_command_prints_a_json_list(quantized):
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "patches", "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 7
    assert all(row.keys() >= {"patch", "switch", "state", "evidence", "fixes", "fixed_since"} for row in rows)


def shown(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "patches", *arguments],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_command_names_an_unreadable_checkpoint(tmp_path):
    for folder, said in ((tmp_path, "config.json"), (tmp_path / "none", "there is no model folder")):
        done = shown("--model", str(folder))
        assert done.returncode == 1
        assert done.stderr.startswith("k3 patches: ") and said in done.stderr


@pytest.mark.timeout(250)
@pytest.mark.parametrize("columns", [50, 80])
def test_what_the_command_shows_fits_the_terminal(quantized, columns):
    done = shown(COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert "KIMI_K3_FP8_PB_GATE_GAP" in done.stdout and "evidence: " in done.stdout
