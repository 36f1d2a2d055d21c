"""Random completions through every wire format: a stream and the whole reply say the same, nothing raises.

The engine is scripted with ids that a model might write on its worst day; the rest is real. One exception, D4
(docs/decisions.md#d4): where the answer was written as thinking, a stream has sent it as reasoning already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.xtml import Vocab
from tests.api.conftest import Live, Server
from tests.conformance.frames import frames
from tests.conformance.messages_reader import MessagesReader
from tests.conformance.responses_reader import ResponsesReader
from tests.scripted import Script
from tests.xtml.random_ids import TOOLS, RandomIds
from tests.xtml.stream_client import is_json


def faults(wrong: list[str]) -> list[str]:
    """Extension fields are tested where the formats are."""
    return [fault for fault in wrong if not fault.endswith("has no such field")]


@dataclass
class Got:
    """What a client has at the end: texts, runnable calls, how it ended, the error's code."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ending: str | None = None
    error: str | None = None
    wrong: list[str] = field(default_factory=list)


async def chat(live: Live, stream: bool) -> Got:
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
    response = await live.http.post("/v1/chat/completions", json={**body, "stream": stream})
    if response.status_code != 200:
        return Got(error=response.json()["error"]["code"])
    if not stream:
        [choice] = response.json()["choices"]
        message = choice["message"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())]
        return Got(
            message.get("reasoning_content", ""), message["content"] or "", calls, choice["finish_reason"]
        )
    got, opened = Got(), {}  # type: ignore[var-annotated]
    for _, chunk in frames(response.text):
        if chunk == "[DONE]":
            break
        if "error" in chunk:
            return Got(error=chunk["error"]["code"])
        for choice in chunk["choices"]:
            delta = choice["delta"]
            got.reasoning += delta.get("reasoning_content", "")
            got.content += delta.get("content") or ""
            got.ending = choice["finish_reason"] or got.ending
            for call in delta.get("tool_calls", ()):
                known = opened.setdefault(call["index"], [call["function"].get("name"), ""])
                known[1] += call["function"]["arguments"]
    got.calls = [(name, text) for name, text in opened.values() if got.ending != "length" or is_json(text)]
    return got


async def messages(live: Live, stream: bool) -> Got:
    tools = [
        {"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})}
        for t in TOOLS
    ]
    body = {"model": "kimi-k3", "max_tokens": 9000, "messages": [{"role": "user", "content": "x"}]}
    body |= {"tools": tools, "thinking": {"type": "enabled", "budget_tokens": 5000}, "stream": stream}
    response = await live.http.post("/v1/messages", json=body)
    if response.status_code != 200:
        return Got(error=response.json()["error"]["message"])
    message = response.json() if not stream else {}
    wrong: list[str] = []
    if stream:
        reader = MessagesReader(frames(response.text))
        if reader.error is not None:
            return Got(error=reader.error["message"])
        message, wrong = reader.message, reader.wrong
    got = Got(ending=message["stop_reason"], wrong=wrong)
    for block in message["content"]:
        match block["type"]:
            case "thinking":
                got.reasoning += block["thinking"]
            case "text":
                got.content += block["text"]
            case "tool_use":
                got.calls.append((block["name"], block["input"]))
    return got


async def responses(live: Live, stream: bool) -> Got:
    tools = [
        {"type": "function", "strict": False, "parameters": {"type": "object"}, **tool["function"]}
        for tool in TOOLS
    ]
    body = {"model": "kimi-k3", "input": "x", "tools": tools, "stream": stream, "store": False}
    response = await live.http.post("/v1/responses", json=body)
    if response.status_code != 200:
        return Got(error=response.json()["error"]["message"])
    final = response.json() if not stream else {}
    wrong: list[str] = []
    if stream:
        reader = ResponsesReader(frames(response.text))
        final, wrong = reader.final or {}, reader.wrong
        if final.get("error"):
            return Got(error=final["error"]["message"])  # its codes are a list that the API fixes
        if any(part["why"] == "cut_call" for part in final.get("k3_unparsed", ())):
            wrong = []  # the item of a call that was cut stays open; clients show only what is done
    got = Got(ending=str(final["incomplete_details"] or final["status"]), wrong=wrong)
    for item in final["output"]:
        match item["type"]:
            case "reasoning":
                got.reasoning += "".join(part["text"] for part in item.get("content") or ())
            case "message":
                got.content += "".join(part["text"] for part in item["content"])
            case _ if item["status"] == "completed":
                got.calls.append((item["name"], item["arguments"]))
    return got


FORMATS: dict[str, Callable[[Live, bool], Awaitable[Got]]] = {
    "chat": chat,
    "messages": messages,
    "responses": responses,
}


async def check(server: Server, vocab: Vocab, wire: str, seed: int, n: int) -> None:
    source = RandomIds(vocab, seed)
    script = Script()
    seen = dict.fromkeys(["calls", "errors", "answers in thinking"], 0)
    async with server(lambda prompt, sampling: script) as live:
        for _ in range(n):
            ids = source.one()
            script = Script(
                ids,
                per_step=source.random.choice([1, 3, 7]),
                finish_reason=source.random.choice(["stop", "length"]),
            )
            whole, streamed = await FORMATS[wire](live, False), await FORMATS[wire](live, True)
            where = (seed, ids, whole, streamed)
            assert faults(streamed.wrong) == [], where
            assert whole.error == streamed.error, where
            assert (whole.content, whole.ending) == (streamed.content, streamed.ending), where
            assert whole.calls == streamed.calls, where
            if whole.reasoning != streamed.reasoning:
                assert streamed.reasoning.startswith(whole.content.rstrip("\N{REPLACEMENT CHARACTER}")), where
                seen["answers in thinking"] += 1
            seen["calls"] += len(whole.calls)
            seen["errors"] += whole.error is not None
        assert live.failures == []
    assert min(seen.values()) > 0, seen


@pytest.mark.parametrize("wire", FORMATS)
async def test_stream_and_whole_reply_say_the_same(server: Server, vocab: Vocab, wire: str) -> None:
    await check(server, vocab, wire, 70, 80)


@pytest.mark.slow
@pytest.mark.parametrize("wire", FORMATS)
async def test_stream_and_whole_reply_say_the_same_2_000_times(
    server: Server, vocab: Vocab, wire: str
) -> None:
    await check(server, vocab, wire, 71, 2_000)
