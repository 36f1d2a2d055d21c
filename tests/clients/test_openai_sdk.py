"""The `openai` package: sync, async, the stream helper, typed errors."""

import asyncio
import json

import openai
import pytest
from pydantic import BaseModel

from tests.api.conftest import END, END_THINK, WEATHER, Server
from tests.clients.conftest import ANSWER
from tests.scripted import Script

USER = [{"role": "user", "content": "Weather in Oslo?"}]


async def test_a_tool_loop_sync_and_async(server: Server, weather_agent) -> None:
    async with server(weather_agent) as live:

        async def ask(messages: list) -> object:
            return await live.client.chat.completions.create(
                model="kimi-k3", messages=messages, tools=[WEATHER]
            )

        def ask_sync(messages: list) -> object:
            return live.sync_client.chat.completions.create(
                model="kimi-k3", messages=messages, tools=[WEATHER]
            )

        for asker in (ask, lambda messages: asyncio.to_thread(ask_sync, messages)):
            first = (await asker(USER)).choices[0]
            assert first.finish_reason == "tool_calls"
            (call,) = first.message.tool_calls
            assert json.loads(call.function.arguments) == {"city": "Oslo", "days": 3}
            result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
            # The whole message goes back, reasoning included, as the SDK dumps it.
            second = (await asker([*USER, first.message.model_dump(), result])).choices[0]
            assert second.message.content == ANSWER
            assert second.message.reasoning_content == "I know"


async def test_the_stream_helper(server: Server, weather_agent) -> None:
    async with (
        server(weather_agent) as live,
        live.client.chat.completions.stream(
            model="kimi-k3", messages=USER, tools=[WEATHER], stream_options={"include_usage": True}
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    assert final.choices[0].finish_reason == "tool_calls"
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments)["city"] == "Oslo"
    assert final.usage.total_tokens > 0


async def test_parsed_answers(server: Server, ids) -> None:
    class Answer(BaseModel):
        rain: bool

    async with server(Script(ids(f'r{END_THINK}{{"rain":true}}{END}'))) as live:
        parsed = await live.client.chat.completions.parse(
            model="kimi-k3", messages=USER, response_format=Answer
        )
        assert live.engine.requests[0][1].structural_tag
    assert parsed.choices[0].message.parsed == Answer(rain=True)


async def test_errors_have_their_types(server: Server) -> None:
    async with server(Script([1]), api_keys=["k"]) as live:
        with pytest.raises(openai.AuthenticationError):
            await live.client.models.list()
        good = live.client.with_options(api_key="k")
        with pytest.raises(openai.NotFoundError):
            await good.chat.completions.create(model="x", messages=USER)
        with pytest.raises(openai.BadRequestError) as error:
            await good.chat.completions.create(model="kimi-k3", messages=USER, temperature=9)
    assert error.value.param == "temperature"
