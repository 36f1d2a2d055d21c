"""What `POST /v1/responses` is asked and what must come back: the coverage is in this table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.api.conftest import CALL, END, END_THINK, WITH_CALL

_START = ["response.created", "response.in_progress"]
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


def _part(name: str, opener: str = "response.content_part") -> list[str]:
    part = [f"{opener}.added", f"response.{name}.delta", f"response.{name}.done", f"{opener}.done"]
    return [_ADDED, *part, _DONE]


REASONING = _part("reasoning_text")
SUMMARY = _part("reasoning_summary_text", "response.reasoning_summary_part")
TEXT = _part("output_text")
ARGUMENTS = [_ADDED, "response.function_call_arguments.delta", "response.function_call_arguments.done", _DONE]
INPUT = [_ADDED, "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", _DONE]

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get weather",
    "parameters": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Apply a patch"}
CREW = {
    "type": "namespace",
    "name": "crew",
    "description": "Other agents",
    "tools": [
        {
            "type": "function",
            "name": "ask",
            "parameters": {
                "type": "object",
                "properties": {"what": {"type": "string"}},
                "required": ["what"],
            },
        }
    ],
}
SCHEMA = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}


@dataclass(frozen=True)
class Case:
    """`script` is the completion in spelled-out ids; `ask` is what the request has besides model and input.

    events: types in order after `created` and `in_progress`, repeats in a row once
    items:  types of the output
    """

    name: str
    script: str
    events: list[str]
    items: list[str]
    ask: dict[str, Any] = field(default_factory=dict)
    status: str = "completed"

    @property
    def all_events(self) -> list[str]:
        return [*_START, *self.events, f"response.{self.status}"]


def call_of(tool: str, key: str, value: str) -> str:
    """A completion that thinks, then makes one call with one string argument."""
    return (
        f"look{END_THINK}<|close|>response<|sep|><|open|>tools<|sep|>"
        f'<|open|>call tool="{tool}" index="1"<|sep|><|open|>argument key="{key}" type="string"<|sep|>{value}'
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
        "<|close|>message<|sep|><|end_of_msg|>"
    )


TWO_CALLS = WITH_CALL.replace(CALL, CALL + CALL.replace('index="1"', 'index="2"').replace("Oslo", "Rome"))
WITH_TEXT = WITH_CALL.replace(f"{END_THINK}<|close|>", f"{END_THINK}I look.<|close|>")

CASES = [
    Case("text", f"why{END_THINK}answer{END}", [*REASONING, *TEXT], ["reasoning", "message"]),
    Case(
        "text without thinking",
        f"answer{END}",
        TEXT,
        ["message"],
        {"reasoning": {"effort": "none"}},
    ),
    Case(
        "a summary of the reasoning",
        f"why{END_THINK}answer{END}",
        [*SUMMARY, *TEXT],
        ["reasoning", "message"],
        {"reasoning": {"summary": "auto"}},
    ),
    Case(
        "as Codex asks",
        WITH_CALL,
        [*SUMMARY, *ARGUMENTS],
        ["reasoning", "function_call"],
        {
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tools": [WEATHER],
        },
    ),
    Case("a call", WITH_CALL, [*REASONING, *ARGUMENTS], ["reasoning", "function_call"], {"tools": [WEATHER]}),
    Case(
        "a call after text",
        WITH_TEXT,
        [*REASONING, *TEXT, *ARGUMENTS],
        ["reasoning", "message", "function_call"],
        {"tools": [WEATHER]},
    ),
    Case(
        "two calls",
        TWO_CALLS,
        [*REASONING, *ARGUMENTS, *ARGUMENTS],
        ["reasoning", "function_call", "function_call"],
        {"tools": [WEATHER], "parallel_tool_calls": True},
    ),
    Case(
        "a custom call",
        call_of("apply_patch", "input", "*** Begin\nline"),
        [*REASONING, *INPUT],
        ["reasoning", "custom_tool_call"],
        {"tools": [PATCH]},
    ),
    Case(
        "a hosted tool is left out",
        f"why{END_THINK}answer{END}",
        [*REASONING, *TEXT],
        ["reasoning", "message"],
        {"tools": [{"type": "web_search"}, WEATHER]},
    ),
    Case(
        "JSON by a schema",
        f'why{END_THINK}{{"rain":true}}{END}',
        [*REASONING, *TEXT],
        ["reasoning", "message"],
        {"text": {"format": {"type": "json_schema", "name": "w", "schema": SCHEMA, "strict": True}}},
    ),
    Case(
        "log probabilities",
        f"why{END_THINK}answer{END}",
        [*REASONING, *TEXT],
        ["reasoning", "message"],
        {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    ),
    Case(
        "cut in the reasoning",
        "why and why and why and why and why",
        REASONING,
        ["reasoning"],
        {"max_output_tokens": 3},
        "incomplete",
    ),
    Case(
        "cut in the text",
        f"why{END_THINK}answer and answer and answer and answer and answer and answer{END}",
        [*REASONING, *TEXT],
        ["reasoning", "message"],
        {"max_output_tokens": 14},
        "incomplete",
    ),
]

# Every event that this API can send (docs/reference of the Responses API); `failed` has a test of its own.
EVENTS = {event for case in CASES for event in case.all_events}
