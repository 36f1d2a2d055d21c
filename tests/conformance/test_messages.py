"""`POST /v1/messages` against the anthropic SDK's types, streamed and whole; a scripted engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from anthropic.types import Message

from engine.types import EngineError
from tests.api.conftest import END, END_THINK, Server
from tests.conformance.frames import stream_of
from tests.conformance.messages_cases import CASES, WEATHER, Case
from tests.conformance.messages_reader import MessagesReader
from tests.conformance.strict import problems
from tests.scripted import Script

Ids = Callable[[str], list[int]]
PATHS = ["/v1/messages", "/anthropic/v1/messages"]


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Weather in Oslo?"}]
    return {"model": "kimi-k3", "max_tokens": 1000, "messages": messages, **fields}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_streamed_and_whole(server: Server, ids: Ids, case: Case) -> None:
    """The stream is in order and adds up to the whole reply, but for ids and signatures."""
    async with server(Script(ids(case.script), per_step=2)) as live:
        streamed = await live.http.post("/v1/messages?beta=true", json=body(stream=True, **case.ask))
        whole = await live.http.post("/v1/messages", json=body(**case.ask))
    reader = MessagesReader(stream_of(streamed))
    assert not reader.wrong, "\n".join(reader.wrong)
    assert reader.seen == case.all_events
    assert whole.status_code == 200, whole.text
    reply = whole.json()
    assert problems(Message, reply) == []
    Message.model_validate(reply, strict=True)
    assert [block["type"] for block in reply["content"]] == case.blocks
    assert (reply["stop_reason"], reply["stop_sequence"]) == (case.stop_reason, case.stop_sequence)
    assert unnamed(reader.message) == unnamed(reply)
    for message in (reply, reader.message):
        assert message["id"].startswith("msg_")
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert all(re.fullmatch("[A-Za-z0-9_-]+", call) for call in calls) and len(set(calls)) == len(calls)


def unnamed(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what differs from one request to the next."""
    content = [
        {key: value for key, value in block.items() if key not in ("id", "signature")}
        for block in message["content"]
    ]
    return {key: value for key, value in message.items() if key not in ("id", "usage")} | {"content": content}


async def test_an_engine_error_is_an_error_event(server: Server, ids: Ids) -> None:
    script = Script(ids(f"why{END_THINK}answer{END}"), error=EngineError("broken"), error_after=4)
    async with server(script) as live:
        streamed = await live.http.post("/v1/messages", json=body(stream=True))
        whole = await live.http.post("/v1/messages", json=body())
    reader = MessagesReader(stream_of(streamed))
    assert not reader.wrong, "\n".join(reader.wrong)
    assert reader.error is not None and reader.error["type"] == "api_error" and reader.error["message"]
    assert whole.status_code >= 500 and whole.json()["error"]["type"] == "api_error"


BAD: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("no budget", {"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
    ("no messages", {"messages": []}, 400, "invalid_request_error", "messages"),
    ("another model", {"model": "other"}, 404, "not_found_error", "other"),
    ("another role", {"messages": [{"role": "robot", "content": "x"}]}, 400, "invalid_request_error", "role"),
    (
        "a tool that is not declared",
        {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}},
        400,
        "invalid_request_error",
        "tool_choice",
    ),
    (
        "a PDF",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                        }
                    ],
                }
            ]
        },
        400,
        "invalid_request_error",
        "PDF",
    ),
    (
        "too long",
        {"messages": [{"role": "user", "content": "word " * 40_000}]},
        400,
        "invalid_request_error",
        "prompt is too long: ",
    ),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "fields", "status", "kind", "said"), BAD, ids=[row[0] for row in BAD])
async def test_a_refusal_says_what_is_wrong(
    server: Server,
    name: str,
    fields: dict[str, Any],
    status: int,
    kind: str,
    said: str,
    stream: bool,
) -> None:
    del name
    for path in PATHS:
        async with server(Script([1])) as live:
            answer = await live.http.post(path, json=body(stream=stream, **fields))
        assert answer.status_code == status, answer.text
        error = answer.json()
        assert error["type"] == "error" and error["request_id"]
        assert error["error"]["type"] == kind and said in error["error"]["message"]


async def test_counts_add_up_and_agree_with_count_tokens(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"why{END_THINK}answer{END}"), n_cached=16)) as live:
        for fields in ({}, {"tools": [WEATHER]}, {"system": "Be brief."}):
            asked = body(**fields)
            usage = (await live.http.post("/v1/messages", json=asked)).json()["usage"]
            streamed = MessagesReader(
                stream_of(await live.http.post("/v1/messages", json=body(stream=True, **fields)))
            )
            del asked["max_tokens"]
            for path in PATHS:
                counted = (await live.http.post(f"{path}/count_tokens", json=asked)).json()["input_tokens"]
                for one in (usage, streamed.message["usage"]):
                    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
                    assert sum(one[part] for part in parts) == counted


async def test_refused_without_a_key_and_known_by_either_header(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"why{END_THINK}answer{END}")), api_keys=["k"]) as live:
        for headers, status in (({}, 401), ({"x-api-key": "k"}, 200), ({"authorization": "Bearer k"}, 200)):
            answer = await live.http.post("/v1/messages", json=body(), headers=headers)
            assert answer.status_code == status, answer.text
            if status == 401:
                assert answer.json()["error"]["type"] == "authentication_error"
