"""The checker itself: it finds what the SDKs' own parsing lets pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.responses import Response

from tests.conformance.strict import problems

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.0,
    "model": "kimi-k3",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": False}],
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        }
    ],
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "kimi-k3",
    "content": [{"type": "text", "text": "hi", "citations": None}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def test_good_replies_have_no_problems() -> None:
    assert problems(Response, RESPONSE) == []
    assert problems(Message, MESSAGE) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("output", 0, "content", 0, "annotations"), None, "is not a list"),
        (("output", 0, "content", 0, "text"), 1, "is not a str"),
        (("output", 0, "content", 0, "type"), "text", "none of the union's"),
        (("output", 0, "status"), "done", "is not one of"),
        (("output", 0, "type"), "assistant", "none of the union's"),
        (("tool_choice",), {"type": "function"}, "missing"),
        (("tools", 0, "strict"), 1, "is not a bool"),
        (("new",), 1, "no such field"),
    ],
)
def test_a_bad_value_is_found(path: tuple[Any, ...], value: Any, said: str) -> None:
    reply = copy.deepcopy(RESPONSE)
    place: Any = reply
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert said in " ".join(problems(Response, reply))


@pytest.mark.parametrize(
    "path", [("id",), ("output",), ("output", 0, "id"), ("output", 0, "content", 0, "text")]
)
def test_a_missing_field_is_found(path: tuple[Any, ...]) -> None:
    reply = copy.deepcopy(RESPONSE)
    place: Any = reply
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    assert "missing" in " ".join(problems(Response, reply))
