"""Agent frameworks run a tool loop: a call, its result, the answer."""

import asyncio
import os

import pytest

from tests.api.conftest import WEATHER, Server
from tests.clients.conftest import ANSWER


def get_weather(city: str, days: int) -> str:
    """Get weather.

    Args:
        city: where
        days: how many
    """
    assert (city, days) == ("Oslo", 3)
    return "rain"


async def test_openai_agents(server: Server, weather_agent) -> None:
    import agents

    agents.set_tracing_disabled(True)
    async with server(weather_agent) as live:
        model = agents.OpenAIChatCompletionsModel(model="kimi-k3", openai_client=live.client)
        agent = agents.Agent(name="a", model=model, tools=[agents.function_tool(get_weather)])
        whole = await agents.Runner.run(agent, "Weather in Oslo?")
        streamed = agents.Runner.run_streamed(agent, "Weather in Oslo?")
        async for _ in streamed.stream_events():
            pass
    assert whole.final_output == streamed.final_output == ANSWER


async def test_pydantic_ai(server: Server, weather_agent) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.moonshotai import MoonshotAIProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    async with server(weather_agent) as live:
        for provider in (
            OpenAIProvider(openai_client=live.client),
            MoonshotAIProvider(openai_client=live.client),
        ):
            agent = Agent(OpenAIChatModel("kimi-k3", provider=provider), tools=[get_weather])
            whole = await agent.run("Weather in Oslo?")
            async with agent.run_stream("Weather in Oslo?") as streamed:
                text = await streamed.get_output()
            assert whole.output == text == ANSWER


async def test_langchain(server: Server, weather_agent) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    async with server(weather_agent) as live:
        chat = ChatOpenAI(
            model="kimi-k3", base_url=f"{live.url}/v1", api_key="none", stream_usage=True
        ).bind_tools([WEATHER])
        question = HumanMessage("Weather in Oslo?")
        first = await chat.ainvoke([question])
        chunks = [chunk async for chunk in chat.astream([question])]
        (call,) = first.tool_calls
        second = await chat.ainvoke([question, first, ToolMessage("rain", tool_call_id=call["id"])])
    streamed = chunks[0]
    for chunk in chunks[1:]:
        streamed += chunk
    assert call["args"] == streamed.tool_calls[0]["args"] == {"city": "Oslo", "days": 3}
    assert streamed.usage_metadata["total_tokens"] > 0
    assert second.content == ANSWER


async def test_litellm(server: Server, weather_agent) -> None:
    # litellm asks for a price list on import unless told to use its own copy.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm = await asyncio.to_thread(__import__, "litellm")

    async with server(weather_agent) as live:

        async def ask(**fields: object) -> object:
            return await litellm.acompletion(
                model="openai/kimi-k3", api_base=f"{live.url}/v1", api_key="none", tools=[WEATHER], **fields
            )

        messages: list = [{"role": "user", "content": "Weather in Oslo?"}]
        first = await ask(messages=messages)
        message = first.choices[0].message
        assert message.reasoning_content == "look it up"
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
        second = await ask(messages=[*messages, message.model_dump(), result])
        chunks = [chunk async for chunk in await ask(messages=messages, stream=True)]
        rebuilt = litellm.stream_chunk_builder(chunks, messages=messages)
    assert second.choices[0].message.content == ANSWER
    assert rebuilt.choices[0].message.tool_calls[0].function.name == "get_weather"
    assert rebuilt.choices[0].message.reasoning_content == "look it up"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ai_sdk(server: Server, weather_agent, ai_sdk) -> None:
    """The npm packages `ai` with `@ai-sdk/openai-compatible` and `@ai-sdk/moonshotai`."""
    async with server(weather_agent) as live:
        for provider in ("openai-compatible", "moonshotai"):
            result = await ai_sdk(live.url, provider)
            assert result["text"] == result["streamed"] == ANSWER, result
            assert result["reasoning"] == "I know"
            assert result["calls"] == result["streamedCalls"] == [{"city": "Oslo", "days": 3}]
            assert result["usage"]["outputTokens"] > 0
