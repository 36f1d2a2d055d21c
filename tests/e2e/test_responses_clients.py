"""Clients whose default is the Responses API, each through a tool loop with the mini K3 on vLLM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError, OpenAI
from pydantic import BaseModel

from tests.e2e.conftest import Served
from tests.e2e.test_answers import ANSWERS, get_weather

GET_WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION = "What is the weather in Oslo?"
ASK: dict[str, Any] = {"model": "kimi-k3", "temperature": 0, "tools": [GET_WEATHER]}


def results(response: Any) -> list[dict[str, Any]]:
    """The results of a response's calls, as input items."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": get_weather(**json.loads(item.arguments)),
        }
        for item in response.output
        if item.type == "function_call"
    ]


def test_the_history_goes_back_as_it_came(client: OpenAI) -> None:
    first = client.responses.create(input=QUESTION, store=False, **ASK)
    history = [{"role": "user", "content": QUESTION}, *first.output, *results(first)]
    assert client.responses.create(input=history, store=False, **ASK).output_text == ANSWERS[0]


def test_the_server_keeps_the_history(client: OpenAI) -> None:
    first = client.responses.create(input=QUESTION, **ASK)
    second = client.responses.create(input=results(first), previous_response_id=first.id, **ASK)
    assert second.output_text == ANSWERS[0] and second.previous_response_id == first.id
    assert client.responses.retrieve(second.id).output == second.output
    items = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.type for item in items][:1] == ["message"] and items[-1].type == "function_call_output"
    client.responses.delete(second.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(second.id)


def test_the_stream_helper(client: OpenAI) -> None:
    with client.responses.stream(input=QUESTION, **ASK) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds and kinds[-1] == "response.completed"
    assert [json.loads(i.arguments) for i in final.output if i.type == "function_call"] == [{"city": "Oslo"}]
    with client.responses.stream(input=results(final), previous_response_id=final.id, **ASK) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert text == ANSWERS[0]


def test_parsed_answers(client: OpenAI) -> None:
    class Person(BaseModel):
        age: int
        city: str
        name: str

    question = "Return JSON with age, city and name: My name is Anna, I am 31 and I live in Oslo."
    parsed = client.responses.parse(model="kimi-k3", input=question, temperature=0, text_format=Person)
    assert parsed.output_parsed == Person(age=31, city="Oslo", name="Anna")


def test_counting_agrees_with_usage(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="kimi-k3", input=QUESTION, tools=[GET_WEATHER])
    assert client.responses.create(input=QUESTION, **ASK).usage.input_tokens == counted.input_tokens


async def test_openai_agents_by_default(served: Served) -> None:
    import agents

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    agent = agents.Agent(
        name="weather",
        model=agents.OpenAIResponsesModel(model="kimi-k3", openai_client=client),
        model_settings=agents.ModelSettings(temperature=0),
        tools=[agents.function_tool(get_weather)],
    )
    whole = await agents.Runner.run(agent, QUESTION)
    streamed = agents.Runner.run_streamed(agent, QUESTION)
    async for _ in streamed.stream_events():
        pass
    assert whole.final_output == streamed.final_output == ANSWERS[0]
    await client.close()


async def test_pydantic_ai_by_default(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai import Agent

    monkeypatch.setenv("OPENAI_BASE_URL", f"{served.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    agent = Agent("openai:kimi-k3", tools=[get_weather], model_settings={"temperature": 0})
    whole = await agent.run(QUESTION)
    async with agent.run_stream(QUESTION) as streamed:
        text = await streamed.get_output()
    assert whole.output == text == ANSWERS[0]


async def test_langchain_with_responses(served: Served) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(
        model="kimi-k3",
        base_url=f"{served.url}/v1",
        api_key="none",
        temperature=0,
        use_responses_api=True,
    ).bind_tools([GET_WEATHER])
    first = await chat.ainvoke([HumanMessage(QUESTION)])
    (call,) = first.tool_calls
    result = ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])
    second = await chat.ainvoke([HumanMessage(QUESTION), first, result])
    chunks = [chunk async for chunk in chat.astream([HumanMessage(QUESTION), first, result])]
    assert second.text == "".join(chunk.text for chunk in chunks) == ANSWERS[0]
