"""A client that goes away aborts its request, in every phase, once (docs/decisions.md#g01)."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from PIL import Image

from gateway.api import body
from tests.api.conftest import BOTH_WAYS, END, END_THINK, Live, Server, chat_body
from tests.scripted import Script

pytestmark = BOTH_WAYS

Ids = Callable[[str], list[int]]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state of the server; the test's own time limit ends it if it never comes."""
    while not condition():
        await asyncio.sleep(0.005)


class SilentHost:
    """A web server that never answers. `asked` once it was; `messages` of a chat with a picture from it."""

    async def __aenter__(self) -> SilentHost:
        self.asked = asyncio.Event()
        self._server = await asyncio.start_server(self._never_answer, "127.0.0.1", 0)
        self.host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        content = [{"type": "image_url", "image_url": {"url": f"http://{self.host}/x.png"}}]
        self.messages = [{"role": "user", "content": content}]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _never_answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked.set()
        await reader.read()  # until the fetcher hangs up
        writer.close()


async def leave(live: Live, when: Callable[[], bool], **body: object) -> None:
    """Send a request on a connection of its own and close that when `when` becomes true."""
    async with httpx.AsyncClient(base_url=live.url, timeout=20) as client:
        task = asyncio.create_task(client.post("/v1/chat/completions", json=chat_body(**body)))
        await until(when)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.timeout(20)
@pytest.mark.parametrize("stream", [False, True])
async def test_while_the_prompt_is_prefilled(server: Server, ids: Ids, stream: bool) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"), hold=asyncio.Event())
    async with server(script) as live:
        await leave(live, lambda: bool(live.engine.running), stream=stream)
        await until(lambda: not live.engine.running)
        assert len(live.engine.aborted) == 1
        await until(lambda: live.service.admission.running == 0)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("stream", [False, True])
async def test_while_tokens_come(server: Server, ids: Ids, stream: bool) -> None:
    script = Script(ids("thinking " * 5000), pause=0.001)
    async with server(script) as live:
        if stream:
            async with httpx.AsyncClient(base_url=live.url, timeout=20) as client:
                body = chat_body(stream=True)
                async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                    async for line in response.aiter_lines():
                        if "reasoning_content" in line:
                            break
        else:
            await leave(live, lambda: bool(live.engine.running))
        await until(lambda: not live.engine.running)
        assert len(live.engine.aborted) == 1
        await until(lambda: live.service.admission.running == 0)


@pytest.mark.timeout(20)
async def test_while_a_silent_stream_waits(server: Server, ids: Ids) -> None:
    """After the headers were sent, with nothing to send: only the closed connection tells."""
    script = Script(ids(f"a{END_THINK}b{END}"), hold=asyncio.Event())
    async with server(script, keep_alive_seconds=0.02) as live:
        async with httpx.AsyncClient(base_url=live.url, timeout=20) as client:
            body = chat_body(stream=True)
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                assert response.status_code == 200
        await until(lambda: not live.engine.running)
        assert len(live.engine.aborted) == 1


@pytest.mark.timeout(20)
async def test_while_a_picture_is_fetched(server: Server, ids: Ids) -> None:
    """The engine never hears of the request."""
    async with SilentHost() as silent, server(Script([1]), media_allowed_hosts=[silent.host]) as live:
        await leave(live, silent.asked.is_set, messages=silent.messages)
        await until(lambda: live.service.admission.running == 0)
        assert not live.engine.requests


async def test_a_picture_in_the_prompt_reaches_the_engine_in_its_place(
    server: Server, ids: Ids, vocab
) -> None:
    png = io.BytesIO()
    Image.new("RGB", (640, 480), "red").save(png, "PNG")
    url = "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
    content = [
        {"type": "text", "text": "before"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "after"},
    ]
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        reply = (await live.chat(messages=[{"role": "user", "content": content}])).json()
        prompt, _ = live.engine.requests[0]
    (placed,) = prompt.media
    assert placed.item.grid == (1, 36, 46) and placed.item.n_tokens == 414
    pads = [i for i, token in enumerate(prompt.ids) if token == vocab.media_pad]
    assert pads == list(range(placed.offset, placed.offset + 414))
    assert reply["usage"]["prompt_tokens_details"]["image_tokens"] == 414


@pytest.mark.timeout(20)
@pytest.mark.parametrize("header", [b"content-encoding: gzip", b"k3-test: larger than allowed"])
async def test_while_a_refused_body_is_read_to_its_end(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, header: bytes
) -> None:
    """Nothing failed, so the log tells of no error."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def watched(stream: AsyncIterator[bytes]) -> None:
        begun.set()
        try:
            await drain(stream)
        finally:
            ended.set()

    drain = body._drain
    monkeypatch.setattr(body, "_drain", watched)
    async with server(Script([1]), max_body_bytes=4096) as live:
        host, port = live.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n"
        writer.write(head + header + b"\r\n\r\n" + b" " * 1000)
        await begun.wait()
        writer.close()
        await ended.wait()
    # The server has ended, and with it what it does for this request.
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
