"""Starting, dying and not starting: what is said, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import threading

import psutil
import pytest

from engine.client import Engine
from engine.errors import EngineStartError
from engine.lean import Collected
from engine.profiles import PROFILES, get_profile
from engine.types import EngineDead, EnginePrompt, Sampling
from tests.engine.prompts import random_ids, run

CPU_MINI = get_profile("cpu-mini")


async def refusal(model, profile=CPU_MINI, overrides=None) -> EngineStartError:
    with pytest.raises(EngineStartError) as caught:
        await Engine.start(profile, model, overrides)
    assert caught.value.remedy
    return caught.value


async def test_a_model_folder_that_is_not_there(tmp_path):
    assert "no model folder" in (await refusal(tmp_path / "missing")).message


async def test_a_folder_without_config(tmp_path):
    assert "config.json" in (await refusal(tmp_path)).message


async def test_a_config_that_is_not_json(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert "not JSON" in (await refusal(tmp_path)).message


async def test_another_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert "'llama'" in (await refusal(tmp_path)).message


async def test_a_checkpoint_without_weights(tmp_path, model_folder):
    shutil.copy(model_folder / "config.json", tmp_path)
    assert "safetensors" in (await refusal(tmp_path)).message


async def test_an_allow_list_without_the_plugin(model_folder, monkeypatch):
    monkeypatch.setenv("VLLM_PLUGINS", "another,one")
    error = await refusal(model_folder)
    assert "VLLM_PLUGINS" in error.message
    assert "k3_gateway" in error.remedy


async def test_a_plugin_that_is_not_installed(model_folder, monkeypatch):
    from importlib import metadata

    monkeypatch.setattr(metadata, "entry_points", lambda **kwargs: metadata.EntryPoints())
    assert "pip install" in (await refusal(model_folder)).remedy


async def test_too_little_memory(model_folder):
    error = await refusal(model_folder, overrides={"kv_cache_memory_bytes": 10**14})
    assert "memory" in error.message


async def test_an_argument_that_vllm_does_not_have(model_folder):
    assert "no_such_argument" in (await refusal(model_folder, overrides={"no_such_argument": 1})).message


async def test_an_argument_that_vllm_refuses(model_folder):
    assert "max_model_len" in (await refusal(model_folder, overrides={"max_model_len": -5})).message


def test_an_unknown_profile_names_the_known_ones():
    with pytest.raises(EngineStartError, match="cpu-mini"):
        get_profile("b200x8")


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_profiles_use_arguments_that_vllm_has(profile):
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert set(profile.merged()) <= {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    assert profile.merged({"max_num_seqs": 3})["max_num_seqs"] == 3
    for text in (profile.summary, profile.needs, profile.memory, profile.source):
        assert text


def engine_processes() -> set[psutil.Process]:
    return {
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "EngineCore" in child.name()
    }


async def test_a_start_that_is_cancelled_leaves_no_engine(model_folder, monkeypatch):
    """The thread cannot be interrupted; what it brings up must be taken down again."""
    from engine import launch

    may_finish, taken_down = threading.Event(), threading.Event()

    class LateEngine:
        def shutdown(self) -> None:
            taken_down.set()

    def launch_late(*args):
        may_finish.wait(30)
        return LateEngine()

    monkeypatch.setattr(launch, "launch", launch_late)
    starting = asyncio.create_task(Engine.start(CPU_MINI, model_folder))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    may_finish.set()
    assert await asyncio.to_thread(taken_down.wait, 30)


async def test_a_killed_engine_is_reported_and_an_ended_one_leaves_no_process(model_folder, vocab):
    """One engine of its own: started with progress, killed under a running request, shut down twice."""
    before = engine_processes()
    phases: list[str] = []
    small = {"kv_cache_memory_bytes": 256 * 2**20, "max_model_len": 4096}
    doomed = await Engine.start(CPU_MINI, model_folder, small, progress=phases.append)
    assert phases[0] == "checking the model"
    assert phases[-1] == "ready"
    assert doomed.info.max_model_len == 4096
    (process,) = engine_processes() - before

    prompt = EnginePrompt(ids=random_ids(20, 1, vocab))
    endless = Sampling(max_tokens=4000, ignore_eos=True)
    steps = doomed.generate(prompt, endless, "under-way")
    await anext(steps)
    pushed = Collected()
    assert doomed.can_push(endless)
    await doomed.push(prompt, endless, "pushed", pushed)
    process.kill()
    with pytest.raises(EngineDead):
        async for _ in steps:
            pass
    with pytest.raises(EngineDead):
        await asyncio.wait_for(pushed.done, timeout=30)
    reason = await asyncio.wait_for(doomed.wait_dead(), timeout=30)
    assert reason == "the engine process was ended by SIGKILL"
    with pytest.raises(EngineDead):
        await doomed.check_health()
    with pytest.raises(EngineDead):
        await run(doomed, prompt, endless, "too-late")

    await doomed.shutdown()
    await doomed.shutdown()
    assert engine_processes() == before
    with pytest.raises(EngineDead):
        await run(doomed, prompt, endless, "after-shutdown")
