"""A place for an agent, and running it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.xtml import Vocab
from tests.agents.engine import AgentEngine
from tests.agents.programs import MODULES, Agent, Place, environment
from tests.agents.session import FILE, TASK, Session, program, steps
from tests.api.conftest import checkpoint, live_server, vocab

__all__ = ["checkpoint", "vocab"]


@dataclass
class Ran:
    """What is left of an agent's run."""

    status: int
    output: str
    errors: str
    session: Session
    file: str

    def __str__(self) -> str:
        return f"status {self.status}\n{self.session.turns}\n{self.output[-6000:]}\n{self.errors[-4000:]}"


RunAgent = Callable[..., Awaitable[Ran]]


@pytest.fixture
def run_agent(checkpoint: Path, vocab: Vocab, tmp_path: Path) -> RunAgent:
    """`await run_agent(programs.codex, n_edits=6)`; skips where the agents are not installed."""
    if not (MODULES / ".installed").exists():
        pytest.skip("the agents are not installed; `make test-agents` does it (1.6 GB)")

    async def run(agent: Agent, n_edits: int, max_model_len: int = 400_000, n_comments: int = 0) -> Ran:
        folder, home = tmp_path / "work", tmp_path / "home"
        for new in (folder, home):
            new.mkdir()
        (folder / FILE).write_text(program(n_edits, n_comments=n_comments))
        session = Session(steps(n_edits), folder)
        engine = AgentEngine(vocab, session, max_model_len)
        async with live_server(engine, checkpoint, vocab, api_keys=["agent-key"]) as live:
            place = Place(home, folder, live.url)
            start = agent(place, TASK)
            process = await asyncio.create_subprocess_exec(
                *start.command,
                cwd=folder,
                env=environment(place, start),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            try:
                output, errors = await asyncio.wait_for(process.communicate(), 250)
            except TimeoutError:
                process.kill()
                output, errors = await process.communicate()
            assert not live.failures, live.failures
        text = (folder / FILE).read_text()
        return Ran(process.returncode or 0, output.decode(), errors.decode(), session, text)

    return run
