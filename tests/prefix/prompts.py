"""Conversations rendered with the mini checkpoint's vocabulary, for tests of prefixes without an engine."""

from __future__ import annotations

from typing import Any

from gateway.prefix.sections import Written
from gateway.xtml import Vocab, encode, from_request


def tool(name: str, description: str = "does it") -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": {"type": "object"}},
    }


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def assistant(text: str, reasoning: str | None = None, calls: list[Any] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def written(vocab: Vocab, *messages: dict[str, Any], n_moved: int = 0, **fields: Any) -> Written:
    conversation = from_request({"messages": list(messages), **fields})
    return Written(encode(conversation, vocab), conversation, n_moved)
