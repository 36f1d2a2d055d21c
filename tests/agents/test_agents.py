"""Real agents work through a session: they read a file, edit it and run it. The engine is scripted."""

from __future__ import annotations

import pytest

from tests.agents import programs
from tests.agents.conftest import RunAgent
from tests.agents.session import ANSWER, program
from tests.prefix.cached_engine import UNIT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    ("agent", "n_edits"),
    [
        (programs.codex, 6),
        (programs.claude_code, 6),
        (programs.kimi_code, 6),
        (programs.opencode, 1),
        (programs.qwen_code, 1),
        (programs.pi, 1),
    ],
)
async def test_an_agent_finishes_its_session(
    run_agent: RunAgent, agent: programs.Agent, n_edits: int
) -> None:
    """20 or 5 turns: results and thinking come back in each prompt, the prompt before is a prefix hit, and
    the right file is on disk."""
    ran = await run_agent(agent, n_edits)
    assert not ran.session.problems, f"{ran.session.problems}\n{ran}"
    assert ran.file == program(n_edits, "done"), str(ran)
    assert ANSWER in ran.output and ran.status == 0, str(ran)
    assert len(ran.session.turns) == 3 + 3 * n_edits, str(ran)
    lengths = [length for length, _ in ran.session.turns]
    for before, (_, cached) in zip(lengths, ran.session.turns[1:], strict=False):
        assert cached >= (before - UNIT) // UNIT * UNIT, str(ran)


async def test_claude_code_compacts_when_the_context_is_full(run_agent: RunAgent) -> None:
    """It thinks that the context is larger than it is, and learns it from the error."""
    ran = await run_agent(programs.claude_code, 6, max_model_len=60_000, n_comments=200)
    assert not ran.session.problems, f"{ran.session.problems}\n{ran}"
    assert ran.session.n_compacted >= 1, str(ran)
    assert ran.file == program(6, "done", 200), str(ran)
    assert ANSWER in ran.output and ran.status == 0, str(ran)


async def test_codex_reports_a_full_context(run_agent: RunAgent) -> None:
    """At once: it does not send the same again."""
    ran = await run_agent(programs.codex, 6, max_model_len=30_000, n_comments=200)
    assert not ran.session.problems, f"{ran.session.problems}\n{ran}"
    assert ran.status == 1 and "ran out of room in the model's context window" in ran.output, str(ran)
