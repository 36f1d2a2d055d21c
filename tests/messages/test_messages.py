"""`/v1/messages` as Anthropic's SDK sees it; a scripted engine says what the tests want."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import pytest

from tests.api.conftest import END, END_THINK, WITH_CALL, Live, Server
from tests.scripted import Script

Ids = Callable[[str], list[int]]
WEATHER = {
    "name": "get_weather",
    "description": "Get weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
}
USER: list[Any] = [{"role": "user", "content": "hi"}]


def client(live: Live) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=live.url, api_key="none", max_retries=0)


async def test_a_whole_reply(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"think{END_THINK}hello{END}"), n_cached=3)) as live:
        message = await client(live).messages.create(model="kimi-k3", max_tokens=50, messages=USER)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].text == "hello"  # type: ignore[union-attr]
    assert message.stop_reason == "end_turn" and message.model == "kimi-k3"
    usage = message.usage
    assert usage.cache_read_input_tokens == 3 and usage.input_tokens > 0


@pytest.mark.parametrize("per_step", [1, 7, 1000])
async def test_a_stream_adds_up_to_the_whole_reply(server: Server, ids: Ids, per_step: int) -> None:
    async with server(Script(ids(WITH_CALL), per_step=per_step)) as live:
        ask: dict[str, Any] = {"model": "kimi-k3", "max_tokens": 90, "messages": USER, "tools": [WEATHER]}
        whole = await client(live).messages.create(**ask)
        async with client(live).messages.stream(**ask) as stream:
            streamed = await stream.get_final_message()
    assert whole.stop_reason == streamed.stop_reason == "tool_use"
    call, again = whole.content[-1], streamed.content[-1]
    assert call.type == again.type == "tool_use"
    assert call.input == again.input == {"city": "Oslo", "days": 3}
    assert whole.usage.output_tokens == streamed.usage.output_tokens


async def test_counting_agrees_with_usage(server: Server, ids: Ids) -> None:
    ask: dict[str, Any] = {"model": "kimi-k3", "messages": USER, "tools": [WEATHER], "system": "Be brief."}
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        counted = await client(live).messages.count_tokens(**ask)
        message = await client(live).messages.create(max_tokens=9, **ask)
    assert counted.input_tokens == message.usage.input_tokens


async def test_errors_are_anthropics(server: Server) -> None:
    async with server(Script([1]), api_keys=["secret"]) as live:
        with pytest.raises(anthropic.AuthenticationError):
            await client(live).messages.create(model="kimi-k3", max_tokens=9, messages=USER)
        headers = {"x-api-key": "secret"}
        reply = await live.http.post("/v1/messages", json={"model": "kimi-k3"}, headers=headers)
        missing = await live.http.get("/v1/messages/nothing", headers=headers)
    assert reply.status_code == 400
    assert reply.json()["type"] == "error" and reply.json()["error"]["type"] == "invalid_request_error"
    assert "messages" in reply.json()["error"]["message"] and reply.json()["request_id"]
    assert missing.json()["error"]["type"] == "not_found_error"


async def test_a_full_context_is_said_in_the_words_that_agents_know(server: Server) -> None:
    async with server(Script([1])) as live:
        long: list[Any] = [{"role": "user", "content": "word " * 40_000}]
        with pytest.raises(
            anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 32768 maximum"
        ):
            await client(live).messages.create(model="kimi-k3", max_tokens=9, messages=long)


async def test_nothing_is_said_where_a_prompt_is_only_prewarmed(server: Server, ids: Ids) -> None:
    async with server(Script(ids("some text"))) as live:
        message = await client(live).messages.create(model="kimi-k3", max_tokens=0, messages=USER)
        assert live.engine.requests[0][1].max_tokens == 1
    assert message.content == [] and message.usage.output_tokens == 0


async def test_the_prompt_of_claude_code_keeps_its_prefix(server: Server, ids: Ids) -> None:
    """Its billing line changes from turn to turn, and reminders stand in the middle."""
    prompts: list[list[int]] = []
    history: list[Any] = [*USER, {"role": "system", "content": [{"type": "text", "text": "Remember."}]}]
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        for turn in range(3):
            system = [
                {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.{turn};"},
                {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            ]
            reply: httpx.Response = await live.http.post(
                "/v1/messages",
                json={"model": "kimi-k3", "max_tokens": 9, "system": system, "messages": history},
            )
            assert "system[0]" in reply.headers["k3-ignored"]
            prompts.append(list(live.engine.requests[-1][0].ids))
            history = [
                *(m if isinstance(m["content"], str) else {**m, "content": "Remember."} for m in history[:2]),
                *history[2:],
                {"role": "assistant", "content": reply.json()["content"]},
                {"role": "user", "content": f"turn {turn}"},
            ]
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before)] == before
