"""Anthropic's clients, each through a tool loop with the mini K3 on vLLM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError, beta_tool

from tests.e2e.conftest import Served
from tests.e2e.test_answers import ANSWERS, get_weather

GET_WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION: dict[str, Any] = {"role": "user", "content": "What is the weather in Oslo?"}
ASK: dict[str, Any] = {
    "model": "kimi-k3",
    "max_tokens": 300,
    "tools": [GET_WEATHER],
    "extra_body": {"temperature": 0},  # the SDK has no parameter of this name any more
}


@pytest.fixture(scope="module")
def anthropic(served: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def results(message: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": get_weather(**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ],
    }


def test_create(anthropic: Anthropic) -> None:
    first = anthropic.messages.create(messages=[QUESTION], **ASK)
    assert first.stop_reason == "tool_use"
    history = [QUESTION, {"role": "assistant", "content": first.content}, results(first)]
    second = anthropic.messages.create(messages=history, **ASK)
    assert second.content[-1].text == ANSWERS[0] and second.stop_reason == "end_turn"


def test_the_stream_helper(anthropic: Anthropic) -> None:
    with anthropic.messages.stream(messages=[QUESTION], **ASK) as stream:
        kinds = {event.type for event in stream}
        first = stream.get_final_message()
    assert {"thinking", "input_json", "content_block_stop", "message_stop"} <= kinds
    history = [QUESTION, {"role": "assistant", "content": first.content}, results(first)]
    with anthropic.messages.stream(messages=history, **ASK) as stream:
        assert "".join(stream.text_stream) == ANSWERS[0]


def test_the_tool_runner(anthropic: Anthropic) -> None:
    asked: list[str] = []

    @beta_tool(name="get_weather", description="Get the weather in a city")
    def weather(city: str) -> str:
        asked.append(city)
        return get_weather(city)

    runner = anthropic.beta.messages.tool_runner(
        model="kimi-k3", max_tokens=300, messages=[QUESTION], tools=[weather], extra_body={"temperature": 0}
    )
    # The schema that the SDK writes has more in it than the mini was trained on: its words may be odd.
    assert runner.until_done().content[-1].text and asked == ["Oslo"]


def test_counting_agrees_with_usage(anthropic: Anthropic) -> None:
    counted = anthropic.messages.count_tokens(model="kimi-k3", messages=[QUESTION], tools=[GET_WEATHER])
    usage = anthropic.messages.create(messages=[QUESTION], **ASK).usage
    parts = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    assert sum(part or 0 for part in parts) == counted.input_tokens


def test_models(anthropic: Anthropic) -> None:
    (model,) = anthropic.models.list().data
    assert (model.id, model.type) == ("kimi-k3", "model")
    assert anthropic.models.retrieve("kimi-k3").created_at == model.created_at


def test_errors_have_their_types(anthropic: Anthropic) -> None:
    with pytest.raises(BadRequestError) as error:
        anthropic.messages.create(messages=[{**QUESTION, "content": "word " * 60_000}], **ASK)
    assert error.value.body["error"]["message"].startswith("prompt is too long: ")


async def test_langchain_anthropic(served: Served) -> None:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage

    chat = ChatAnthropic(
        model="kimi-k3", base_url=served.url, api_key="none", temperature=0, max_tokens=300
    ).bind_tools([GET_WEATHER])
    question = HumanMessage(QUESTION["content"])
    first = await chat.ainvoke([question])
    (call,) = first.tool_calls
    history = [question, first, ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])]
    second = await chat.ainvoke(history)
    chunks = [chunk async for chunk in chat.astream(history)]
    assert second.text == "".join(chunk.text for chunk in chunks) == ANSWERS[0]
    assert json.dumps(first.usage_metadata)
