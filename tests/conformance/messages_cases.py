"""What `POST /v1/messages` is asked and what must come back: the coverage is in this table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.api.conftest import END, END_THINK, WITH_CALL
from tests.conformance.responses_cases import SCHEMA, TWO_CALLS, WITH_TEXT

_START, _STOP = "content_block_start", "content_block_stop"
THINKING = [_START, "thinking_delta", _STOP]
TEXT = [_START, "text_delta", _STOP]
TOOL = [_START, "input_json_delta", _STOP]

WEATHER = {
    "name": "get_weather",
    "description": "Get weather",
    "input_schema": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
}


@dataclass(frozen=True)
class Case:
    """`script` is the completion in spelled-out ids; `ask` is what the request has besides the least.

    events: types between message_start and message_delta, repeats in a row once
    blocks: types of the content
    """

    name: str
    script: str
    events: list[str]
    blocks: list[str]
    ask: dict[str, Any] = field(default_factory=dict)
    stop_reason: str = "end_turn"
    stop_sequence: str | None = None

    @property
    def all_events(self) -> list[str]:
        return ["message_start", *self.events, "message_delta", "message_stop"]


ANSWER = f"why{END_THINK}answer{END}"
CASES = [
    Case("text", ANSWER, [*THINKING, *TEXT], ["thinking", "text"]),
    Case("text without thinking", f"answer{END}", TEXT, ["text"], {"thinking": {"type": "disabled"}}),
    Case(
        "as Claude Code asks",
        WITH_CALL,
        [*THINKING, *TOOL],
        ["thinking", "tool_use"],
        {
            "thinking": {"type": "adaptive", "display": "updates"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "metadata": {"user_id": "u"},
            "tools": [{**WEATHER, "cache_control": {"type": "ephemeral"}}],
        },
        "tool_use",
    ),
    Case("a call", WITH_CALL, [*THINKING, *TOOL], ["thinking", "tool_use"], {"tools": [WEATHER]}, "tool_use"),
    Case(
        "a call after text",
        WITH_TEXT,
        [*THINKING, *TEXT, *TOOL],
        ["thinking", "text", "tool_use"],
        {"tools": [WEATHER]},
        "tool_use",
    ),
    Case(
        "two calls",
        TWO_CALLS,
        [*THINKING, *TOOL, *TOOL],
        ["thinking", "tool_use", "tool_use"],
        {"tools": [WEATHER]},
        "tool_use",
    ),
    Case(
        "a server tool is left out",
        ANSWER,
        [*THINKING, *TEXT],
        ["thinking", "text"],
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}, WEATHER]},
    ),
    Case(
        "JSON by a schema",
        f'why{END_THINK}{{"rain":true}}{END}',
        [*THINKING, *TEXT],
        ["thinking", "text"],
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    Case(
        "a stop sequence",
        f"why{END_THINK}one two three{END}",
        [*THINKING, *TEXT],
        ["thinking", "text"],
        {"stop_sequences": [" three"]},
        "stop_sequence",
        " three",
    ),
    Case(
        "cut in the text",
        f"why{END_THINK}answer and answer and answer and answer and answer and answer{END}",
        [*THINKING, *TEXT],
        ["thinking", "text"],
        {"max_tokens": 14},
        "max_tokens",
    ),
    Case(
        "a budget for thinking",
        ANSWER,
        [*THINKING, *TEXT],
        ["thinking", "text"],
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    ),
]
