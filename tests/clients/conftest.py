"""Clients that people use, against a live server; its engine is scripted, for the exact reply matters."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from engine.types import EnginePrompt, Sampling
from tests.api.conftest import (  # noqa: F401
    END,
    END_THINK,
    WITH_CALL,
    checkpoint,
    ids,
    pushes,
    server,
    vocab,
)
from tests.scripted import Script

ANSWER = "It will rain in Oslo."


@pytest.fixture
def weather_agent(ids: Callable[[str], list[int]]) -> Callable[[EnginePrompt, Sampling], Script]:  # noqa: F811
    """Calls get_weather(city, days) once; answers when the prompt has a tool result."""
    result = ids('<|open|>message role="tool"')
    call, answer = ids(WITH_CALL), ids(f"I know{END_THINK}{ANSWER}{END}")

    def pick(prompt: EnginePrompt, sampling: Sampling) -> Script:
        seen = any(
            list(prompt.ids[i : i + len(result)]) == result
            for i in range(len(prompt.ids))
            if prompt.ids[i] == result[0]
        )
        return Script(answer if seen else call, per_step=3)

    return pick


AiSdk = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="session")
def ai_sdk(tmp_path_factory: pytest.TempPathFactory) -> AiSdk:
    """Runs a script of node/ with an address and a provider.

    Skips, saying so, where node or the npm registry is missing.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("node") / "client"
    shutil.copytree(Path(__file__).with_name("node"), folder)
    install = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True, timeout=200
    )
    if install.returncode:
        pytest.skip(f"npm ci failed (no network?): {install.stderr[-500:]}")

    async def run(url: str, provider: str, script: str = "agent.mjs") -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *("node", script, f"{url}/v1", provider),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return json.loads(output)

    return run
