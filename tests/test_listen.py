"""The socket that `k3 serve` listens on."""

import asyncio
import socket

import pytest

from gateway.commands.serve import _listen


@pytest.mark.parametrize("new_loop", ["asyncio", "uvloop"])
def test_events_of_a_stream_are_sent_at_once(new_loop: str) -> None:
    """Nagle's algorithm is off on accepted connections, whichever loop serves them."""

    async def serve() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            seen.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with _listen("127.0.0.1", 0) as listener:
            async with await asyncio.start_server(accepted, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                found = await seen
                writer.close()
        return found

    factory = pytest.importorskip("uvloop").new_event_loop if new_loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(serve()) == 1
