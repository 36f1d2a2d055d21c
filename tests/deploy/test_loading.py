"""How far loading is: counted behind vLLM's own loader, told as shards, bytes and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from engine.loading import FOLDER_VARIABLE, Loading, reported, slowest

SHARDS = (400, 400, 200)


def test_shards_bytes_and_time_left() -> None:
    half = Loading(500, SHARDS, seconds=10.0)
    assert (half.n_shards_done, half.total, half.seconds_left) == (1, 1000, 10.0)


def test_before_and_after_no_time_is_told() -> None:
    assert Loading(0, SHARDS, 1.0).seconds_left is None
    assert Loading(1000, SHARDS, 1.0).seconds_left is None
    assert Loading(990, SHARDS, 1.0, finished=True).n_shards_done == 3
    assert "preparing" in str(Loading(990, SHARDS, 1.0, finished=True))


def test_what_is_read_of_the_big_model() -> None:
    text = str(Loading(4 * 10**11, (16 * 10**9,) * 96, seconds=270.0))
    assert text == "loading weights: 25 of 96 shards, 400.0 of 1536.0 GB, about 13 min left"


def test_the_slowest_process_counts(tmp_path: Path) -> None:
    assert slowest(tmp_path) is None
    for pid, n_bytes in ((1, 700), (2, 300)):
        (tmp_path / f"{pid}.json").write_text(json.dumps(asdict(Loading(n_bytes, SHARDS, 5.0))))
    (tmp_path / "3.json").write_text("{half a fi")
    assert slowest(tmp_path) == Loading(300, SHARDS, 5.0)


# In a fork a format, since the loader stays wrapped; `get_all_weights` is vLLM's own.
LOAD = """
import multiprocessing, os, sys
from pathlib import Path
from types import SimpleNamespace
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from engine.loading import FOLDER_VARIABLE, count_loaded_bytes

def load(folder):
    folder.mkdir()
    os.environ[FOLDER_VARIABLE] = str(folder)
    count_loaded_bytes(); count_loaded_bytes()
    loader = DefaultModelLoader(LoadConfig(load_format=folder.name, use_tqdm_on_load=False))
    model = SimpleNamespace(model=sys.argv[1], revision=None)
    n_bytes = sum(t.numel() * t.element_size() for _, t in loader.get_all_weights(model, SimpleNamespace()))
    (folder / "read").write_text(str(n_bytes))

for load_format in sys.argv[3:]:
    process = multiprocessing.get_context("fork").Process(target=load, args=(Path(sys.argv[2], load_format),))
    process.start()
    process.join()
    assert process.exitcode == 0
"""
LOAD_FORMATS = ("auto", "safetensors")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A folder a load format: the count, and in `read` the bytes that came out of vLLM's iterator."""
    folder = tmp_path_factory.mktemp("loaded")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(model_folder), str(folder), *LOAD_FORMATS],
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("load_format", LOAD_FORMATS)
def test_every_byte_of_a_real_checkpoint_is_counted(
    loaded: Path, model_folder: Path, load_format: str
) -> None:
    n_read = int((loaded / load_format / "read").read_text())
    count = slowest(loaded / load_format)
    assert count is not None and count.finished and count.n_bytes == n_read
    assert count.shard_sizes == tuple(p.stat().st_size for p in sorted(model_folder.glob("*.safetensors")))
    assert 0 <= count.total - n_read < 200_000  # headers


def test_progress_is_reported_while_the_block_runs() -> None:
    said: list[str] = []
    heard = threading.Event()

    def report(text: str) -> None:
        said.append(text)
        heard.set()

    with reported(report):
        folder = Path(os.environ[FOLDER_VARIABLE])
        (folder / "1.json").write_text(json.dumps(asdict(Loading(500, SHARDS, 5.0))))
        assert heard.wait(20)
    assert said == ["loading weights: 1 of 3 shards, 0.0 of 0.0 MB, about 5 s left"]
    assert FOLDER_VARIABLE not in os.environ and not folder.exists()
