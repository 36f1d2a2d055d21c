"""How patches get into processes: the plugin, the sitecustomize shim, and the `k3 patches` command."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app

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
    assert states["KIMI_K3_FP8_PB_GATE_GAP"] == states["KIMI_K3_PREFIX_BLOCK_COPY"] == "applied"
    assert states["KIMI_K3_NVFP4_SITU_G1_SCALE"] == "not applicable"
    assert marks == ["KIMI_K3_FP8_PB_GATE_GAP"]


# The error leaves vLLM's loader, so it ends the process unless somebody catches it, as here.
SHIMMED = """
import os
from vllm.plugins import load_general_plugins
try:
    load_general_plugins()
except Exception as error:
    print("STOPPED BY", error)
del os.environ["KIMI_K3_FP8_PB"]
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
def test_shim_stops_at_a_wrong_switch_and_else_applies_and_prints_one_line_a_patch(quantized, monkeypatch):
    monkeypatch.setenv("KIMI_K3_FP8_PB", "maybe")
    done = with_shim(SHIMMED)
    assert done.returncode == 0, done.stderr
    assert "STOPPED BY KIMI_K3_FP8_PB='maybe': must be auto, 1 or 0" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("Kimi-K3 runtime patch: ")]
    assert len(lines) == 8
    assert any("KIMI_K3_FP8_PB_GATE_GAP applied: " in line for line in lines)


def test_shim_does_nothing_without_vllm_and_runs_the_sitecustomize_it_hides(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('the container sets itself up')\n")
    done = with_shim("import sys; print('patches' in sys.modules)", tmp_path)
    assert done.stdout.splitlines() == ["the container sets itself up", "False"]


# In a process of its own, which is patched afterwards.
COMMAND = """
import json, sys
from typer.testing import CliRunner
from gateway.cli import app

def k3_patches(model, *arguments, columns=80):
    environment = {"K3_MODEL": model, "COLUMNS": str(columns)}
    result = CliRunner().invoke(app, ["patches", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout

unquantized, quantized = sys.argv[1:]
told = {"unquantized": json.loads(k3_patches(unquantized, "--json"))}
told["imported"] = sorted(sys.modules)
told["quantized"] = json.loads(k3_patches(quantized, "--json"))
told["text"] = {columns: k3_patches(quantized, columns=columns) for columns in (50, 80)}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `k3 patches` prints for an unquantised and a mixed-precision checkpoint."""
    folders = []
    for config in ({"vision_config": {"vt_hidden_size": 32}}, QUANTIZED):
        folders.append(tmp_path_factory.mktemp("model"))
        (folders[-1] / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *folders], cwd=REPOSITORY, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(250)
def test_unquantised_k3_needs_the_block_copy_only_and_imports_no_quantisation(told):
    states = {row["switch"]: row["state"] for row in told["unquantized"]}
    assert states.pop("KIMI_K3_PREFIX_BLOCK_COPY") == "applied"
    assert set(states.values()) == {"not applicable", "off"}
    assert "vllm.model_executor.layers.quantization.modelopt" not in told["imported"]


@pytest.mark.timeout(250)
def test_command_prints_a_json_list(told):
    rows = told["quantized"]
    assert len(rows) == 8
    assert all(row.keys() >= {"patch", "switch", "state", "evidence", "fixes", "fixed_since"} for row in rows)


@pytest.mark.timeout(250)
@pytest.mark.parametrize("columns", [50, 80])
def test_what_the_command_shows_fits_the_terminal(told, columns):
    text = told["text"][str(columns)]
    assert max(map(len, text.splitlines())) <= columns
    assert "KIMI_K3_FP8_PB_GATE_GAP" in text and "evidence: " in text


def test_command_names_an_unreadable_checkpoint(tmp_path, monkeypatch):
    # The command sets them where they are not.
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    monkeypatch.setenv("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    for folder, said in ((tmp_path, "config.json"), (tmp_path / "none", "there is no model folder")):
        result = CliRunner().invoke(app, ["patches", "--model", str(folder)])
        assert result.exit_code == 1
        assert result.stderr.startswith("k3 patches: ") and said in result.stderr
