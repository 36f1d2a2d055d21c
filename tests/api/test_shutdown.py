"""What is not done when the patience at shutdown is over ends with an error, not a torn connection."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gateway.errors import Unavailable
from gateway.schema.chat import ChatRequest
from gateway.wire.chat.request import read_chat
from tests.api.conftest import BOTH_WAYS, END, END_THINK, Server, chat_body
from tests.api.test_disconnect import SilentHost, until
from tests.scripted import Script

pytestmark = BOTH_WAYS

Ids = Callable[[str], list[int]]


def is_stopping(response: httpx.Response) -> bool:
    return response.status_code == 503 and response.json()["error"]["code"] == "server_stopping"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_that_waits_for_a_picture_never_reaches_the_engine(server: Server, stream: bool) -> None:
    async with SilentHost() as silent, server(Script([1]), media_allowed_hosts=[silent.host]) as live:
        waiting = asyncio.create_task(live.chat(messages=silent.messages, stream=stream))
        await silent.asked.wait()
        await live.service.end_requests()
        assert is_stopping(await waiting)
        assert not live.engine.requests
        await until(lambda: live.service.admission.running == 0)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat_body()),
        ("/v1/chat/completions", chat_body(stream=True)),
        ("/v1/prefixes/explain?probe=true", chat_body()),
        ("/v1/prefixes", {"name": "coder", "system": "You are a careful engineer. " * 60}),
    ],
)
async def test_what_waits_for_the_engine_ends(
    server: Server, ids: Ids, path: str, body: dict[str, Any]
) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"), hold=asyncio.Event())
    async with server(script, pin_budget_tokens=5000) as live:
        waiting = asyncio.create_task(live.http.post(path, json=body))
        await until(lambda: bool(live.engine.running))
        await live.service.end_requests()
        assert is_stopping(await waiting)
        await until(lambda: not live.engine.running)
        assert len(live.engine.requests) == 1


async def test_nothing_new_starts_in_the_engine(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        request = read_chat(ChatRequest.model_validate(chat_body()))
        generation = await live.service.generations().begin(request)
        await live.service.end_requests()
        assert is_stopping(await live.chat())
        assert is_stopping(await live.chat(stream=True))
        with pytest.raises(Unavailable, match="stopping"):
            await anext(generation.progress())
        assert not live.engine.requests


@pytest.mark.timeout(20)
async def test_a_reply_that_the_engine_aborts_ends_with_the_same_error(server: Server, ids: Ids) -> None:
    stall = asyncio.Event()
    script = Script(ids(f"thinking{END_THINK}b"), finish_reason="abort", stall=stall)
    async with server(script) as live:
        frames = []
        body = chat_body(stream=True)
        async with live.http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if "reasoning_content" in line and not stall.is_set():
                    await live.service.end_requests()
                    stall.set()
                frames += [line[6:]] if line.startswith("data: ") else []
        assert len(live.engine.aborted) >= 1
    assert json.loads(frames[-1])["error"]["code"] == "server_stopping"


@pytest.mark.timeout(20)
async def test_a_body_that_is_still_being_sent(server: Server) -> None:
    async with server(Script([1])) as live:
        host, port = live.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
        writer.write(head + b"content-length: 900\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")  # 100: the server has begun to read
        writer.write(b"{")
        await live.service.end_requests()
        answer = await reader.readuntil(b"server_stopping")
        writer.close()
    assert answer.startswith(b"HTTP/1.1 503")
