"""Clients whose default is Responses or Messages run a tool loop; the engine is scripted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.conftest import WEATHER, Server
from tests.clients.conftest import ANSWER

QUESTION = "Weather in Oslo?"


def get_weather(city: str, days: int) -> str:
    """Get weather.

    Args:
        city: where
        days: how many
    """
    assert (city, days) == ("Oslo", 3)
    return "rain"


async def test_openai_agents(server: Server, weather_agent: Any) -> None:
    import agents

    agents.set_tracing_disabled(True)
    async with server(weather_agent) as live:
        model = agents.OpenAIResponsesModel(model="kimi-k3", openai_client=live.client)
        agent = agents.Agent(name="a", model=model, tools=[agents.function_tool(get_weather)])
        whole = await agents.Runner.run(agent, QUESTION)
        streamed = agents.Runner.run_streamed(agent, QUESTION)
        async for _ in streamed.stream_events():
            pass
    assert whole.final_output == streamed.final_output == ANSWER


async def test_pydantic_ai(server: Server, weather_agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai import Agent

    async with server(weather_agent) as live:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{live.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        agent = Agent("openai:kimi-k3", tools=[get_weather])
        whole = await agent.run(QUESTION)
        async with agent.run_stream(QUESTION) as streamed:
            text = await streamed.get_output()
    assert whole.output == text == ANSWER


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_langchain(server: Server, weather_agent: Any, api: str) -> None:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    async with server(weather_agent) as live:
        chat: Any
        if api == "responses":
            chat = ChatOpenAI(
                model="kimi-k3", base_url=f"{live.url}/v1", api_key="none", use_responses_api=True
            )
        else:
            chat = ChatAnthropic(model="kimi-k3", base_url=live.url, api_key="none", max_tokens=500)
        chat = chat.bind_tools([WEATHER])
        question = HumanMessage(QUESTION)
        first = await chat.ainvoke([question])
        (call,) = first.tool_calls
        assert call["args"] == {"city": "Oslo", "days": 3}
        history = [question, first, ToolMessage("rain", tool_call_id=call["id"])]
        second = await chat.ainvoke(history)
        chunks = [chunk async for chunk in chat.astream(history)]
    assert second.text == "".join(chunk.text for chunk in chunks) == ANSWER


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ai_sdk(server: Server, weather_agent: Any, ai_sdk: Any) -> None:
    """The npm packages `@ai-sdk/openai` (Responses) and `@ai-sdk/anthropic`."""
    async with server(weather_agent) as live:
        for provider in ("openai", "anthropic"):
            result = await ai_sdk(live.url, provider)
            assert result["text"] == result["streamed"] == ANSWER, result
            assert result["calls"] == result["streamedCalls"] == [{"city": "Oslo", "days": 3}]
            assert result["usage"]["outputTokens"] > 0


async def test_the_anthropic_tool_runner(server: Server, weather_agent: Any) -> None:
    """It asks the server to hold the conversation, and goes on without when told that it does not."""
    from anthropic import Anthropic, beta_tool

    async with server(weather_agent) as live:

        def run() -> Any:
            with Anthropic(base_url=live.url, api_key="none", max_retries=0) as client:
                return client.beta.messages.tool_runner(
                    model="kimi-k3",
                    max_tokens=500,
                    messages=[{"role": "user", "content": QUESTION}],
                    tools=[beta_tool(get_weather)],
                ).until_done()

        message = await asyncio.to_thread(run)
    assert message.content[-1].text == ANSWER
