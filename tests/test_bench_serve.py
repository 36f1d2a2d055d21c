"""Parts of `bench.serve` that could be wrong without a sign: what is counted, and the exponents."""

from __future__ import annotations

import asyncio

import pytest

from bench.serve.load import FORMATS, Refused, ask, body
from bench.serve.report import exponent

CHUNKS = {
    "chat": (
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"b"}}]}\n\n',
        b'data: {"choices":[],"usage":{"completion_tokens":7}}\n\ndata: [DONE]\n\n',
    ),
    "responses": (
        b'event: response.created\ndata: {"type":"response.created","usage":null}\n\n',
        b'data: {"type":"response.reasoning_text.delta","delta":"a"}\n\n',
        b'data: {"type":"response.output_text.delta","delta":"b"}\n\n',
        b'data: {"type":"response.completed","response":{"usage":{"output_tokens":7}}}\n\n',
    ),
    "messages": (
        b'data: {"type":"message_start","message":{"usage":{"output_tokens":0}}}\n\n',
        b'data: {"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"a"}}\n\n',
        b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"b"}}\n\n',
        b'data: {"type":"message_delta","usage":{"output_tokens":7}}\n\n',
    ),
}


async def answered(form: str, status: str, pieces: list[bytes]):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await ask(port, FORMATS[form], [body(FORMATS[form], [{"role": "user", "content": "hi"}], 7)])


@pytest.mark.parametrize("form", CHUNKS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_frames_with_text_are_counted_however_they_are_cut(form, size):
    data = b"".join(CHUNKS[form])
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    (reply,) = await answered(form, "200 OK", pieces)
    assert (reply.n_frames, reply.n_tokens) == (2, 7)
    assert reply.asked < reply.first <= reply.end


async def test_a_refusal_is_an_error_that_names_its_status():
    with pytest.raises(Refused, match="404"):
        await answered("chat", "404 Not Found", [b"{}"])


def test_exponents():
    assert exponent([(1, 5), (10, 50), (100, 500)]) == pytest.approx(1)
    assert exponent([(1, 5), (10, 5)]) == pytest.approx(0)
