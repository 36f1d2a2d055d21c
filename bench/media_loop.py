"""How long fifty big pictures hold up the event loop: `python -m bench.media_loop`.

Photos of noise, some 8 MB each, come at the same time as data URLs and over HTTP. A prober asks the loop
every millisecond; the longest time between two answers is what everybody else would have waited.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import Awaitable, Callable

import numpy as np
from PIL import Image

from media.fetch import Fetcher, FetchPolicy
from media.store import MediaLibrary
from tests.media.files import encode

N_PICTURES = 50
SIDE = 2600  # pixels


def big_pictures() -> list[bytes]:
    """Files that all differ, made from one."""
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    photo = encode(Image.fromarray(pixels), "JPEG", quality=95)
    return [photo + bytes([n]) for n in range(N_PICTURES)]


async def longest_hold(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """(seconds that the loop was held at the longest, seconds that `work` took)."""
    longest = 0.0

    async def probe() -> None:
        nonlocal longest
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last - 0.001), now

    probing = asyncio.create_task(probe())
    started = time.perf_counter()
    await work()
    taken = time.perf_counter() - started
    probing.cancel()
    return longest, taken


async def serve(pictures: list[bytes]) -> None:
    """The other site, in a process of its own; prints its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = pictures[int(head.split()[1][1:])]
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 65_536):
            writer.write(body[start : start + 65_536])
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def main() -> None:
    pictures = await asyncio.to_thread(big_pictures)
    urls = await asyncio.to_thread(
        lambda: ["data:image/jpeg;base64," + base64.b64encode(data).decode() for data in pictures]
    )
    site = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.media_loop", "serve", stdout=asyncio.subprocess.PIPE
    )
    assert site.stdout is not None
    port = int(await site.stdout.readline())
    print(f"{N_PICTURES} pictures of {len(pictures[0]) / 1e6:.1f} MB at once")
    print("| from | longest hold of the loop | all prepared in |\n|---|---|---|")
    web = [f"http://127.0.0.1:{port}/{n}" for n in range(N_PICTURES)]
    held, _ = await longest_hold(lambda: asyncio.sleep(5))
    print(f"| nothing (what else the machine does) | {held * 1000:.0f} ms | |")
    for name, wanted in (("data URLs", urls), ("the same again", urls), ("HTTP", web)):
        if name != "the same again":
            library = MediaLibrary(fetcher=Fetcher(FetchPolicy(allow=(f"127.0.0.1:{port}",))))

        async def all_of(library: MediaLibrary = library, wanted: list[str] = wanted) -> None:
            await asyncio.gather(*(library.picture(url, "low", salt="tenant") for url in wanted))

        held, taken = await longest_hold(all_of)
        print(f"| {name} | {held * 1000:.0f} ms | {taken:.1f} s |")
        if name != "data URLs":
            await library.aclose()
    site.kill()
    await site.wait()


if __name__ == "__main__":
    asyncio.run(serve(big_pictures()) if sys.argv[1:] == ["serve"] else main())
