"""The OpenAI SDK and raw HTTP against a real server process with real vLLM."""

import base64
import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import jsonschema
import openai
import pytest
from openai import OpenAI
from PIL import Image, ImageDraw

from gateway.xtml import Vocab
from tests.e2e.conftest import Served

USER = [{"role": "user", "content": "Hello!"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "required": ["city", "days"],
            "properties": {"city": {"enum": ["Oslo", "Paris"]}, "days": {"enum": [1, 2, 3]}},
            "additionalProperties": False,
        },
    },
}


def picture_url(colour: str = "red", kind: str = "PNG") -> str:
    image = Image.new("RGB", (120, 90), "white")
    ImageDraw.Draw(image).ellipse((20, 20, 80, 80), fill=colour)
    data = io.BytesIO()
    image.save(data, kind)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(data.getvalue()).decode()


def test_the_same_answer_whole_and_streamed(client: OpenAI) -> None:
    fields = {"model": "kimi-k3", "messages": USER, "temperature": 0, "max_tokens": 48}
    whole = client.chat.completions.create(**fields)
    reasoning = content = ""
    usage = None
    for chunk in client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **fields
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            content += choice.delta.content or ""
    message = whole.choices[0].message
    assert (message.reasoning_content or "", message.content or "") == (reasoning, content)
    assert reasoning or content
    assert whole.usage.completion_tokens == usage.completion_tokens <= 48
    assert whole.usage.prompt_tokens == usage.prompt_tokens > 0


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_picture_in_the_prompt(client: OpenAI, kind: str) -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": picture_url(kind=kind)}},
    ]
    reply = client.chat.completions.create(
        model="kimi-k3", messages=[{"role": "user", "content": content}], max_tokens=8
    )
    # 120x90 pixels are padded to 140x112: 5 x 4 tokens of 28 pixels
    assert reply.usage.prompt_tokens_details.image_tokens == 20
    assert reply.usage.completion_tokens > 0


def test_a_forced_call_follows_its_schema(client: OpenAI, model_folder: Path) -> None:
    # Free text may stand before the call; an untrained checkpoint would not end it by itself.
    close = Vocab.load(model_folder).close
    reply = client.chat.completions.create(
        model="kimi-k3",
        messages=USER,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning_effort="none",
        logit_bias={str(close): 100},
        max_tokens=400,
        seed=1,
    )
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])


def test_a_json_schema_is_followed(client: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"enum": ["yes", "no"]}, "sure": {"type": "boolean"}},
        "required": ["answer", "sure"],
        "additionalProperties": False,
    }
    reply = client.chat.completions.create(
        model="kimi-k3",
        messages=USER,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        reasoning_effort="none",
        max_tokens=200,
    )
    assert reply.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(reply.choices[0].message.content), schema)


def test_logprobs_n_and_seed(client: OpenAI) -> None:
    fields = {
        "model": "kimi-k3",
        "messages": USER,
        "reasoning_effort": "none",
        "n": 2,
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 3,
        "max_tokens": 6,
    }
    first = client.chat.completions.create(**fields)
    again = client.chat.completions.create(**fields)
    assert [c.index for c in first.choices] == [0, 1]
    for choice in first.choices:
        entries = choice.logprobs.content
        assert all(len(entry.top_logprobs) >= 3 and entry.logprob <= 0 for entry in entries)
    assert [c.message.content for c in first.choices] == [c.message.content for c in again.choices]


def test_the_second_turn_finds_the_first_in_the_cache(client: OpenAI) -> None:
    messages = [{"role": "user", "content": "Tell me about rivers and lakes. " * 40}]
    fields = {"model": "kimi-k3", "max_tokens": 4, "temperature": 0}
    first = client.chat.completions.create(messages=messages, **fields)
    again = client.chat.completions.create(messages=messages, **fields)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens >= 128


def test_requests_are_logged_and_answered_probes_are_not(served: Served) -> None:
    assert httpx.get(f"{served.url}/v1/models").status_code == 200
    assert httpx.get(f"{served.url}/ready").status_code == 200
    lines = served.log.read_text().splitlines()
    assert any('"GET /v1/models HTTP/1.1" 200' in line for line in lines)
    assert not any('"GET /ready HTTP/1.1" 200' in line for line in lines)


def test_frames_of_a_raw_stream(served: Served) -> None:
    body = {"model": "kimi-k3", "messages": USER, "stream": True, "max_tokens": 5}
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[0][6:])["choices"][0]["delta"]["role"] == "assistant"
    assert json.loads(lines[-2][6:])["choices"][0]["finish_reason"] in ("stop", "length")


def metric(served: Served, name: str) -> float:
    """The value of one sample of `/metrics`."""
    text = httpx.get(f"{served.url}/metrics").text
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)), 0.0)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_clients_that_leave_are_aborted_and_free_their_places(served: Served) -> None:
    """Thirty-two requests that would not end by themselves fill the engine, and leave: all are aborted."""
    endless = {"100": 100}  # one ordinary token again and again
    body = {"model": "kimi-k3", "messages": USER, "stream": True, "max_tokens": 30_000, "logit_bias": endless}
    leave = threading.Event()

    def hold() -> None:
        with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=60) as response:
            for _ in response.iter_lines():
                if leave.is_set():
                    return

    before = metric(served, 'k3_requests_total{outcome="aborted"}')
    threads = [threading.Thread(target=hold) for _ in range(32)]
    for thread in threads:
        thread.start()
    wait_for(lambda: metric(served, "k3_requests_running ") == 32)
    leave.set()
    for thread in threads:
        thread.join(30)
    wait_for(lambda: metric(served, "k3_requests_running ") == 0)
    assert metric(served, 'k3_requests_total{outcome="aborted"}') == before + 32
    reply = served.client.chat.completions.create(model="kimi-k3", messages=USER, max_tokens=3)
    assert reply.usage.completion_tokens > 0


def test_the_engine_says_how_it_is_patched(served: Served) -> None:
    overview = httpx.get(f"{served.url}/v1/engine/patches").json()
    assert overview["agreed"] and len(overview["data"]) == 8
    assert [rank["rank"] for rank in overview["ranks"]] == [0]
    assert {row["state"] for row in overview["data"]} <= {"not applicable", "off", "already fixed", "applied"}


def test_typed_errors(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=USER)
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="kimi-k3", messages=[{"role": "user", "content": "x " * 40_000}])
    assert error.value.code == "context_length_exceeded" and error.value.param == "messages"
