"""The files that docs/guides/agents.md tells people to write are those with which the agents were run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/agents.md"
BLOCK = re.compile(r"^`~/(\S+)`:\n\n```(toml|json)\n(.*?)^```", re.M | re.S)
READ = {"toml": tomllib.loads, "json": json.loads}
AGENTS = {
    "Claude Code": programs.claude_code,
    "Codex": programs.codex,
    "Kimi Code": programs.kimi_code,
    "opencode": programs.opencode,
    "Qwen Code": programs.qwen_code,
    "pi": programs.pi,
}


def within(part: Any, whole: Any) -> bool:
    """Whether all that `part` says, `whole` says too."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


@pytest.mark.parametrize("heading", AGENTS)
def test_the_guide_has_the_settings_of_the_test(heading: str, tmp_path: Path) -> None:
    section = GUIDE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    place = programs.Place(home=tmp_path, folder=tmp_path, url="http://localhost:8000")
    start = AGENTS[heading](place, "task")
    files, variables = BLOCK.findall(section), re.findall(r"\b([A-Z][A-Z0-9_]+)=(\S+)", section)
    assert files or variables
    for path, language, text in files:
        assert within(READ[language](text), READ[language]((tmp_path / path).read_text()))
    for name, value in variables:
        assert start.environment[name] == value
