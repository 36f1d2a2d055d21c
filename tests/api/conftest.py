"""A live HTTP server around the service, with a scripted engine, on a real port of loopback."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from openai import AsyncOpenAI, OpenAI

from gateway.app import build_app
from gateway.assembly import media_library
from gateway.service import Service
from gateway.settings import Settings
from gateway.xtml import Vocab
from tests.scripted import Script, ScriptedEngine


@pytest.fixture(scope="session")
def checkpoint(model_folder: Path) -> Path:
    return model_folder


@pytest.fixture(scope="session")
def vocab(checkpoint: Path) -> Vocab:
    return Vocab.load(checkpoint)


@pytest.fixture(scope="session")
def ids(vocab: Vocab) -> Callable[[str], list[int]]:
    """Token ids of a text in which the spellings of control tokens stand for the tokens."""
    names = sorted(vocab.special_ids, key=len, reverse=True)
    pattern = re.compile("(" + "|".join(re.escape(name) for name in names) + ")")

    def encode(text: str) -> list[int]:
        found: list[int] = []
        for piece in pattern.split(text):
            found += [vocab.special_ids[piece]] if piece in vocab.special_ids else vocab.encode(piece)
        return found

    return encode


@dataclass
class Live:
    """A server that runs: its service, its scripted engine, and clients for it."""

    url: str
    service: Service
    engine: ScriptedEngine
    failures: list[Exception]
    http: httpx.AsyncClient
    client: AsyncOpenAI

    @property
    def sync_client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    async def chat(self, **body: Any) -> httpx.Response:
        """POST a chat request; `messages` and `model` have defaults."""
        return await self.http.post("/v1/chat/completions", json=chat_body(**body))


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], **fields}


@asynccontextmanager
async def live_server(
    engine: ScriptedEngine, checkpoint: Path, vocab: Vocab, **settings: Any
) -> AsyncIterator[Live]:
    chosen = Settings(**settings)
    failures: list[Exception] = []

    async def start(report: Callable[[str], None]) -> ScriptedEngine:
        report("scripted")
        return engine

    service = Service(chosen, checkpoint, vocab, media_library(chosen, checkpoint), start, failures.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(build_app(service), log_config=None, timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server._serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        async with httpx.AsyncClient(base_url=url, timeout=20) as http, client:
            while (await http.get("/ready")).status_code != 200:
                await asyncio.sleep(0.01)
            try:
                yield Live(url, service, engine, failures, http, client)
            finally:
                server.should_exit = True
                await task


Server = Callable[..., Any]


@pytest.fixture
def pushes(request: pytest.FixtureRequest) -> bool:
    """Whether the scripted engine pushes its steps; `BOTH_WAYS` runs a module's tests with and without."""
    return getattr(request, "param", True)


BOTH_WAYS = pytest.mark.parametrize("pushes", [True, False], ids=["pushed", "pulled"], indirect=True)


@pytest.fixture
def server(checkpoint: Path, vocab: Vocab, pushes: bool) -> Server:
    """`async with server(script_or_function, **settings) as live:`"""

    def start(answer: Script | Callable[..., Script], **settings: Any) -> Any:
        pick = answer if callable(answer) else lambda prompt, sampling: answer
        info = settings.pop("info", None)
        engine = ScriptedEngine(pick, info) if info else ScriptedEngine(pick)
        engine.pushes = pushes
        return live_server(engine, checkpoint, vocab, **settings)

    return start


# What a well-formed thinking completion looks like (docs/format.md#completion).
END_THINK = "<|close|>think<|sep|><|open|>response<|sep|>"
END = "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get weather",
        "parameters": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
CALL = (
    '<|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>'
    '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
    "<|close|>call<|sep|>"
)
WITH_CALL = (
    f"look it up{END_THINK}<|close|>response<|sep|><|open|>tools<|sep|>{CALL}<|close|>tools<|sep|>"
    "<|close|>message<|sep|><|end_of_msg|>"
)


def events_of(text: str) -> list[str]:
    """The payloads of a stream's data frames."""
    return [line[6:] for line in text.split("\n") if line.startswith("data: ")]
