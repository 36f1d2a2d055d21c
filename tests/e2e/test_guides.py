"""Every command with curl in the guides is run as it stands, on a service of its own address."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.e2e.conftest import ROOT, Served

GUIDES = ("start.md", "serve.md")
BLOCK = re.compile(r"^```sh\n(curl .*?)^```", re.M | re.S)
COMMANDS = [
    pytest.param(block, id=f"{name}-{number}")
    for name in GUIDES
    for number, block in enumerate(BLOCK.findall((ROOT / "docs/guides" / name).read_text()), 1)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guides_works(served: Served, command: str) -> None:
    assert command.count("localhost:8000") == 1
    done = subprocess.run(
        ["sh", "-c", command.replace("localhost:8000", served.url)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert "error" not in reply
    if '"partial"' in command:  # the mini checkpoint was not taught to go on with words
        return
    for choice in reply.get("choices", []):
        assert choice["message"].get("content") or choice["message"].get("tool_calls"), reply


def test_the_guides_have_commands() -> None:
    assert len(COMMANDS) > 6
