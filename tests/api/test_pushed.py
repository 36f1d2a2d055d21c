"""Streams whose steps the engine pushes, and readers that are slow."""

from __future__ import annotations

import asyncio
import json
import socket

from tests.api.conftest import END, END_THINK, Server, chat_body, events_of
from tests.scripted import Script

N_WORDS = 32_000


async def test_a_reader_that_does_not_read_gets_everything_in_fewer_frames(server: Server, ids) -> None:
    """The server keeps ids for it, not frames: 32,000 frames would be 6 MB, more than any socket buffers."""
    text = "x" * N_WORDS
    script = Script([*ids(END_THINK), *(ids("x") * N_WORDS), *ids(END)])
    async with server(script) as live:
        host, port = live.url.removeprefix("http://").split(":")
        body = json.dumps(chat_body(stream=True, max_tokens=N_WORDS + 100)).encode()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        await reader.readuntil(b"\r\n\r\n")
        while live.engine.running:
            await asyncio.sleep(0.01)
        received = (await reader.read(-1)).decode()
        writer.close()
    chunks = [json.loads(data) for data in events_of(received) if data != "[DONE]"]
    pieces = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert "".join(pieces) == text
    assert len(pieces) < N_WORDS
    assert "data: [DONE]" in received
