"""The trained mini K3 does a model's job through clients that people use; greedy, so answers are stable."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from openai import AsyncOpenAI, OpenAI
from PIL import Image, ImageDraw

from engine.mini.files import data_url
from engine.mini.skills.base import DrawnClip, DrawnPicture
from tests.e2e.conftest import Served

GREEDY: dict[str, Any] = {"model": "kimi-k3", "temperature": 0, "max_tokens": 300}
WEATHER = {"Oslo": {"condition": "cold", "temperature": 4}, "Lima": {"condition": "warm", "temperature": 23}}


ANSWERS = [
    "The condition is cold and the temperature is 4.",
    "1. The condition is warm and the temperature is 23. 2. The condition is cold and the temperature is 4.",
]


def get_weather(city: str) -> str:
    """Get the weather in a city"""
    return json.dumps(WEATHER[city])


GET_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def ask(client: OpenAI, content: Any, **fields: Any) -> Any:
    messages = content if isinstance(content, list) and "role" in content[0] else None
    messages = messages or [{"role": "user", "content": content}]
    return client.chat.completions.create(messages=messages, **{**GREEDY, **fields}).choices[0]


def picture(shape: str, color: str, background: str | None = "white") -> dict[str, Any]:
    image = Image.new("RGBA", (120, 90), background or (0, 0, 0, 0))
    pen, box = ImageDraw.Draw(image), (35, 20, 85, 70)
    pen.ellipse(box, color) if shape == "circle" else pen.rectangle(box, color)
    url = data_url(DrawnPicture(np.asarray(image), {}))
    return {"type": "image_url", "image_url": {"url": url}}


def moving_square(to_the_right: bool, n_frames: int = 16) -> dict[str, Any]:
    """Two seconds at 8 frames a second, as H.264."""

    def frame(index: int) -> NDArray[np.uint8]:
        pixels = np.full((84, 84, 3), 255, np.uint8)
        step = 2 + 3 * index
        left = step if to_the_right else 58 - step
        pixels[30:54, left : left + 24] = (220, 0, 0)
        return pixels

    url = data_url(DrawnClip(n_frames, 8, frame, lambda frames: {}))
    return {"type": "video_url", "video_url": {"url": url}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_it_thinks_longer_with_more_effort_and_answers_the_same(client: OpenAI) -> None:
    replies = [ask(client, "What is 27 + 36?", reasoning_effort=e) for e in ("low", "high", "max")]
    assert [reply.message.content for reply in replies] == ["63"] * 3
    low, high, most = (len(reply.message.reasoning_content) for reply in replies)
    assert 0 < low < high < most
    assert not ask(client, "Hello!", reasoning_effort="none").message.model_extra.get("reasoning_content")


def test_an_agent_loop_over_several_turns(client: OpenAI) -> None:
    """Two parallel calls, their results, the answer, then another call: each turn sees all before it."""
    messages: list[Any] = []
    calls = []
    for question in ("What is the weather in Oslo?", "What is the weather in Lima and in Oslo?"):
        messages.append({"role": "user", "content": question})
        while True:
            choice = ask(client, messages, tools=[GET_WEATHER])
            messages.append(choice.message.model_dump(exclude_none=True))
            if choice.finish_reason != "tool_calls":
                break
            for call in choice.message.tool_calls:
                arguments = json.loads(call.function.arguments)
                calls.append(arguments["city"])
                assert call.function.name == "get_weather"
                content = get_weather(**arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    assert calls == ["Oslo", "Lima", "Oslo"]
    assert [m["content"] for m in messages if m["role"] == "assistant" and m.get("content")] == ANSWERS


async def test_openai_agents_run_a_tool_loop(served: Served) -> None:
    import agents

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    agent = agents.Agent(
        name="weather",
        model=agents.OpenAIChatCompletionsModel(model="kimi-k3", openai_client=client),
        model_settings=agents.ModelSettings(temperature=0, max_tokens=300),
        tools=[agents.function_tool(get_weather)],
    )
    result = await agents.Runner.run(agent, "What is the weather in Oslo?")
    assert result.final_output == ANSWERS[0]
    await client.close()


@pytest.mark.parametrize(("shape", "color"), [("circle", "red"), ("square", "blue")])
def test_a_picture_is_seen(client: OpenAI, shape: str, color: str) -> None:
    seen = picture(shape, color)
    assert ask(client, [seen, text("What color is it?")]).message.content == f"It is {color}."
    assert ask(client, [seen, text("What shape do you see?")]).message.content == f"It is a {shape}."


def test_a_transparent_background_is_seen(client: OpenAI) -> None:
    question = text("What is the background?")
    assert "transparent" in ask(client, [picture("circle", "red", None), question]).message.content
    assert "white" in ask(client, [picture("circle", "red"), question]).message.content


@pytest.mark.parametrize("to_the_right", [True, False])
def test_a_video_is_seen(client: OpenAI, to_the_right: bool) -> None:
    reply = ask(client, [moving_square(to_the_right), text("What moves, and where to?")])
    side = "right" if to_the_right else "left"
    assert reply.message.content == f"A red square moves to the {side}."


def test_json_mode(client: OpenAI) -> None:
    question = "Return JSON with age, city and name: My name is Anna, I am 31 and I live in Oslo."
    reply = ask(client, question, response_format={"type": "json_object"})
    assert json.loads(reply.message.content) == {"age": 31, "city": "Oslo", "name": "Anna"}


@pytest.mark.parametrize("word", ["horse", "sandwich", "river"])
def test_what_stands_only_in_earlier_reasoning_is_recalled(client: OpenAI, word: str) -> None:
    messages = [
        {"role": "user", "content": "Pick one of these words and keep it secret: horse, sandwich and river."},
        {"role": "assistant", "reasoning_content": f"I pick {word}.", "content": "I have picked one."},
        {"role": "user", "content": "What did you choose?"},
    ]
    assert ask(client, messages).message.content == f"I picked {word}."
