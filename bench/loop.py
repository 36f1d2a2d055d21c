"""How long one request keeps all others waiting: `python -m bench.loop`.

The service (its engine scripted, so that only the front end works) and a prober are processes of their own.
While a large body is sent and answered, the prober asks `/health` every two milliseconds. The longest of its
waits is what any other client could have felt; what it waits while nothing happens is the machine's own part.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import uvicorn
from PIL import Image

from engine.mini.build import checkpoint_dir
from engine.types import EngineInfo
from gateway.app import build_app
from gateway.assembly import media_library
from gateway.service import Service
from gateway.settings import Settings
from gateway.xtml import Vocab
from tests.media.files import encode
from tests.scripted import Script, ScriptedEngine

CONTEXT = 1_048_576
GOAL_MS = 50
ASK = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def chat(messages: bytes, rest: bytes = b"") -> bytes:
    return b'{"model":"kimi-k3","max_tokens":1,"messages":[%b]%b}' % (messages, rest)


def listed(item: object, n: int) -> bytes:
    return b",".join([json.dumps(item).encode()] * n)


def tools(n: int, n_properties: int) -> bytes:
    properties = {f"p{i}": {"type": "string", "description": "what it is for"} for i in range(n_properties)}
    parameters = {"type": "object", "properties": properties}
    declared = (
        {"type": "function", "function": {"name": f"f{i}", "parameters": parameters}} for i in range(n)
    )
    return b",".join(json.dumps(tool).encode() for tool in declared)


def pictures(n: int) -> bytes:
    """One user message with `n` photos of some 3 MB, each a file of its own."""
    pixels = np.random.default_rng(0).integers(0, 256, (1600, 1600, 3), np.uint8)
    photo = encode(Image.fromarray(pixels), "JPEG", quality=95)
    urls = ("data:image/jpeg;base64," + base64.b64encode(photo + bytes([i])).decode() for i in range(n))
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in urls]
    return json.dumps({"role": "user", "content": parts}).encode()


USER = {"role": "user", "content": "a"}
USER_JSON = json.dumps(USER).encode()
TEXT = {"type": "text", "text": "a"}

BODIES: dict[str, Callable[[], bytes]] = {
    "1,000,000 messages": lambda: chat(listed(USER, 1_000_000)),
    "100,000 messages": lambda: chat(listed(USER, 100_000)),
    "10,000 messages": lambda: chat(listed(USER, 10_000)),
    "1,000,000 parts": lambda: chat(b'{"role":"user","content":[%b]}' % listed(TEXT, 1_000_000)),
    "10,000 parts": lambda: chat(b'{"role":"user","content":[%b]}' % listed(TEXT, 10_000)),
    "20 MB of tools": lambda: chat(USER_JSON, b',"tools":[%b]' % tools(1000, 300)),
    "1,000 tools, 3 MB": lambda: chat(USER_JSON, b',"tools":[%b]' % tools(1000, 45)),
    "a million unknown keys": lambda: chat(
        USER_JSON, b"," + b",".join(b'"k%d":1' % i for i in range(1_000_000))
    ),
    "128 MB of text": lambda: chat(b'{"role":"user","content":"%b"}' % (b"hello world " * 11_184_810)),
    "3 MB of text": lambda: chat(b'{"role":"user","content":"%b"}' % (b"hello world " * 262_144)),
    "50 pictures of 3 MB": lambda: chat(pictures(50)),
    "10,000 wrong types": lambda: chat(b",".join([b"1"] * 10_000)),
    "1,000 long turns": lambda: chat(listed({"role": "user", "content": "a long story " * 200}, 1000)),
}


async def serve() -> None:
    """The service; prints its port."""
    folder = checkpoint_dir()
    vocab = Vocab.load(folder)
    engine = ScriptedEngine(
        lambda prompt, sampling: Script(vocab.encode("a")),
        EngineInfo("scripted", "scripted", "scripted", max_model_len=CONTEXT),
    )
    settings = Settings()

    async def start(report: Callable[[str], None]) -> ScriptedEngine:
        return engine

    service = Service(settings, folder, vocab, media_library(settings, folder), start, lambda error: None)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(build_app(service), log_config=None))
    print(listener.getsockname()[1], flush=True)
    await server.serve([listener])


def probe(port: int) -> None:
    """Prints, for each line on standard input, the longest wait since the last one, in milliseconds."""
    import select

    connection = socket.create_connection(("127.0.0.1", port))
    longest = 0.0
    while True:
        asked = time.perf_counter()
        connection.sendall(ASK)
        received = b""
        while b"}" not in received:
            received += connection.recv(65_536)
        longest = max(longest, time.perf_counter() - asked)
        if select.select([sys.stdin], [], [], 0.002)[0]:
            if not sys.stdin.readline():
                return
            print(longest * 1000, flush=True)
            longest = 0.0


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.loop", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def longest_wait(prober: subprocess.Popen[str]) -> float:
    assert prober.stdin is not None and prober.stdout is not None
    prober.stdin.write("\n")
    prober.stdin.flush()
    return float(prober.stdout.readline())


def post(port: int, body: bytes) -> str:
    """The status, and of an error what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/chat/completions", body)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    said = str(answer.get("error", {}).get("message", ""))
    return f"{response.status} {said[:90]}".replace("|", "\\|")


def main(only: str = "") -> int:
    with child("serve") as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with child("probe", str(port)) as prober:
            post(port, chat(USER_JSON))
            longest_wait(prober)
            time.sleep(3)
            print(f"| body | MB | answered in | longest wait of /health (goal {GOAL_MS} ms) | answer |")
            print("|---|---|---|---|---|")
            print(f"| nothing for 3 s | | | {longest_wait(prober):.0f} ms | |")
            worst = 0.0
            for name, make in BODIES.items():
                if only not in name:
                    continue
                body = make()
                longest_wait(prober)
                started = time.perf_counter()
                answer = post(port, body)
                taken = time.perf_counter() - started
                waited = longest_wait(prober)
                worst = max(worst, waited)
                print(
                    f"| {name} | {len(body) / 1e6:.1f} | {taken:.2f} s | {waited:.0f} ms | {answer} |",
                    flush=True,
                )
    return int(worst > GOAL_MS)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            asyncio.run(serve())
        case ["probe", port]:
            probe(int(port))
        case _:
            sys.exit(main(*sys.argv[1:2]))
