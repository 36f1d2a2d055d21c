"""JSON that the model writes, through the whole service: no status but 200, no torn stream (R1).

The engine is scripted; all else is real.
"""

import json
from collections.abc import Callable

import msgspec
import pytest

from tests.api.conftest import END, END_THINK, WEATHER, Server, events_of
from tests.scripted import Script

ODD = {
    "half a surrogate pair": '"\\ud83d"',
    "half a pair in a key": '{"\\ude42": ["\\ud83d"]}',
    "5,000 digits": "9" * 5000,
    "no double": "-1e999",
    "raw NUL": '"a\x00b\nc"',
    "escaped NUL": '"\\u0000"',
    "deep": "[" * 1000 + "]" * 1000,
    "deeper than is read": '{"a":' * 400 + "1" + "}" * 400,
    "open": '{"a": ["',
}
BROKEN = ("deep", "deeper than is read", "open")  # no JSON even with the best repair


def completion(value: str, way: str) -> str:
    key = value.strip('"{}[]:')[:30].replace('"', "&quot;")
    body = {
        "number": f'<|open|>argument key="days" type="number"<|sep|>{value}<|close|>argument<|sep|>',
        "string": f'<|open|>argument key="days" type="string"<|sep|>{value}<|close|>argument<|sep|>',
        "key": f'<|open|>argument key="{key}" type="string"<|sep|>x<|close|>argument<|sep|>',
        "block": f'<|open|>json<|sep|>{{"days": {value}}}<|close|>json<|sep|>',
        "undeclared": f'<|open|>json<|sep|>{{"days": {value}}}<|close|>json<|sep|>',
    }[way]
    name = "nope" if way == "undeclared" else "get_weather"
    call = f'<|open|>tools<|sep|><|open|>call tool="{name}" index="1"<|sep|>{body}<|close|>call<|sep|>'
    return f"r{END_THINK}<|close|>response<|sep|>{call}<|close|>tools<|sep|>" + END.partition("<|sep|>")[2]


@pytest.mark.parametrize("way", ["number", "string", "key", "block", "undeclared"])
async def test_odd_json_is_answered(server: Server, ids: Callable[[str], list[int]], way: str) -> None:
    for what, value in ODD.items():
        async with server(Script(ids(completion(value, way)), per_step=7)) as live:
            response = await live.chat(tools=[WEATHER])
            streamed = await live.chat(tools=[WEATHER], stream=True)
        assert response.status_code == streamed.status_code == 200, (what, response.text)
        choice = msgspec.json.decode(response.content)["choices"][0]
        assert choice["finish_reason"] == "tool_calls", (what, choice)
        [call] = choice["message"]["tool_calls"]
        arguments = call["function"]["arguments"]
        if not (way in ("block", "undeclared") and what in BROKEN):
            assert isinstance(json.loads(arguments), dict)
            assert msgspec.json.decode(arguments.encode()) == json.loads(arguments)
        events = events_of(streamed.text)
        assert events[-1] == "[DONE]", (what, events[-1])
        chunks = [msgspec.json.decode(event.encode()) for event in events[:-1]]
        pieces = [call for c in chunks for call in c["choices"][0]["delta"].get("tool_calls", ())]
        assert "".join(piece["function"]["arguments"] for piece in pieces) == arguments
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("way", ["number", "string", "key", "block", "undeclared"])
async def test_odd_json_is_answered_as_a_message(
    server: Server, ids: Callable[[str], list[int]], way: str
) -> None:
    """Anthropic's form holds arguments as an object: broken ones are the text in `invalid_arguments`."""
    function = WEATHER["function"]
    tool = {"name": function["name"], "input_schema": function["parameters"]}
    body = {"model": "kimi-k3", "max_tokens": 9000, "tools": [tool]}
    body["messages"] = [{"role": "user", "content": "hi"}]
    for what, value in ODD.items():
        async with server(Script(ids(completion(value, way)), per_step=7)) as live:
            response = await live.http.post("/v1/messages", json=body)
            streamed = await live.http.post("/v1/messages", json={**body, "stream": True})
        assert response.status_code == streamed.status_code == 200, (what, response.text)
        message = msgspec.json.decode(response.content)
        [call] = [block for block in message["content"] if block["type"] == "tool_use"]
        assert message["stop_reason"] == "tool_use"
        broken = way in ("block", "undeclared") and what in BROKEN
        assert (list(call["input"]) == ["invalid_arguments"]) == broken, (what, call)
        events = [json.loads(event) for event in events_of(streamed.text)]
        assert events[-1]["type"] == "message_stop", (what, events[-1])
        pieces = [
            event["delta"].get("partial_json", "")
            for event in events
            if "index" in event and "delta" in event
        ]
        assert json.loads("".join(pieces)) == call["input"]
