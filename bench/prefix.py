"""How much of what could come from the prefix cache does; on the mini checkpoint, `make bench-prefix`.

session: 30 turns of an agent with tools and small pictures, in a cache that holds them
repair:  the same with a client that drops reasoning_content, with history repair off and on
pin:     a pinned prefix under floods of unrelated prompts ten times the cache
stock:   the session through vLLM's own server, as far as that goes

Possible are, for each turn, the tokens up to the end of the last thing the model said, at most the prompt
less one, floored to the cache's unit: all that the engine has computed before.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageDraw

from bench.render import Session
from engine.client import Engine
from engine.mini.build import checkpoint_dir
from engine.profiles import COMMON_ENVIRONMENT, get_profile
from gateway.app import build_app
from gateway.assembly import media_library
from gateway.generation.rendering import Renderer
from gateway.schema.chat import ChatRequest
from gateway.service import Service
from gateway.settings import Settings
from gateway.xtml import Vocab

N_TURNS = 30
MAX_TOKENS = 64
N_TRIES = 40
SMALL_CACHE = {"kv_cache_memory_bytes": 16 * 2**20, "max_model_len": 1024}
PIN_WORDS = 120
FLOOD_PARALLEL = 2


@dataclass
class Tally:
    """Tokens over the turns of a session."""

    prompt: int = 0
    possible: int = 0
    cached: int = 0
    per_turn: list[tuple[int, int]] = field(default_factory=list)

    def add(self, n_prompt: int, possible: int, cached: int) -> None:
        self.prompt += n_prompt
        self.possible += possible
        self.cached += min(cached, possible)
        self.per_turn.append((possible, cached))

    def row(self, name: str) -> str:
        share = self.cached / self.possible if self.possible else 0.0
        return f"{name:34}{self.prompt:10,}{self.possible:10,}{self.cached:10,}{share:9.1%}"


class BorrowedEngine:
    """An engine that outlives the service that uses it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def shutdown(self) -> None:
        return None


@asynccontextmanager
async def served(
    engine: Engine, folder: Path, **settings: Any
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """The whole service over HTTP, without sockets."""
    chosen = Settings(**settings)

    async def start(report: Callable[[str], None]) -> Any:
        return BorrowedEngine(engine)

    service = Service(chosen, folder, Vocab.load(folder), media_library(chosen, folder), start, print)
    task = asyncio.create_task(service.run_engine())
    transport = httpx.ASGITransport(build_app(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=120) as http:
        while (await http.get("/ready")).status_code != 200:  # noqa: ASYNC110 - as a client would
            await asyncio.sleep(0.05)
        try:
            yield service, http
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await service.renderer.media.aclose()


def picture(seed: int) -> dict[str, Any]:
    """A picture of 84 x 56, as tools return them: 6 tokens."""
    draw = random.Random(seed)
    image = Image.new("RGB", (84, 56), tuple(draw.choices(range(256), k=3)))  # type: ignore[arg-type]
    ImageDraw.Draw(image).ellipse((10, 10, 10 + draw.randint(10, 60), 45), fill="white")
    data = io.BytesIO()
    image.save(data, "PNG")
    url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def next_messages(said: dict[str, Any], turn: int, pictures: bool) -> list[dict[str, Any]]:
    """What an agent's loop sends after a reply: results of its calls, or a word of the user's."""
    result: Any = f"Result {turn}: 3 files changed, 41 insertions, 7 deletions; see the screen."
    if pictures:
        result = [{"type": "text", "text": result}, picture(turn)]
    if calls := said.get("tool_calls"):
        return [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
    return [{"role": "user", "content": result}]


Ask = Callable[[dict[str, Any]], Awaitable[tuple[dict[str, Any], int]]]


async def session(
    ask: Ask, renderer: Renderer, unit: int, *, seed: int, drop: bool = False, pictures: bool = True
) -> Tally:
    """A session; `ask` gives the reply's message and its cached tokens. Possible is counted for the whole
    history, also where the client drops from it (`drop`)."""
    source = Session(seed)
    fields = {
        "tools": source.tools[:4],
        "reasoning_effort": "high",
        "max_tokens": MAX_TOKENS,
        "temperature": 0.7,
    }
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"Session {seed}. " + source.messages[0]["content"]},
        {"role": "user", "content": "Find out why the tests fail, and repair it."},
    ]
    tally = Tally()
    for turn in range(N_TURNS):
        body = {"model": "kimi-k3", "messages": messages, "seed": turn, **fields}
        rendered = await renderer.render(ChatRequest.model_validate(body))
        n_prompt = len(rendered.prompt.ids)
        said_before = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=None)
        path = f"messages[{said_before}]"
        computed = next((s.end for s in rendered.prompt.sections if s.path == path), 0)
        sent = [{k: v for k, v in m.items() if not (drop and k == "reasoning_content")} for m in messages]
        said, cached = await ask({**body, "messages": sent})
        tally.add(n_prompt, min(computed, n_prompt - 1) // unit * unit, cached)
        messages += [said, *next_messages(said, turn, pictures)]
    return tally


def over_http(http: httpx.AsyncClient) -> Ask:
    async def ask(body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        response = await http.post("/v1/chat/completions", json=body)
        response.raise_for_status()
        answer = response.json()
        return answer["choices"][0]["message"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    return ask


async def sessions(folder: Path) -> None:
    """Session and repair, on one engine."""
    engine = await Engine.start(get_profile("cpu-mini"), folder)
    unit = engine.info.prefix_unit
    n_cache = engine.info.n_cache_tokens
    print(f"A session of {N_TURNS} turns with tools and pictures; unit {unit}, cache {n_cache:,} tokens")
    print(f"{'':34}{'prompt':>10}{'possible':>10}{'cached':>10}{'share':>9}")
    cases: list[tuple[str, bool, str]] = [
        ("whole history", False, "off"),
        ("reasoning dropped, repair off", True, "off"),
        ("reasoning dropped, repair on", True, "always"),
    ]
    try:
        for name, drop, repair in cases:
            async with served(engine, folder, history_repair=repair) as (service, http):
                tally = await session(over_http(http), service.renderer, unit, seed=7, drop=drop)
            await engine.reset_prefix_cache()
            print(tally.row(name))
    finally:
        await engine.shutdown()


async def pins(folder: Path) -> None:
    """A pinned prefix under floods."""
    engine = await Engine.start(get_profile("cpu-mini"), folder, SMALL_CACHE)
    words = Session(11)._vocabulary
    source = random.Random(5)
    n_blocks = engine.info.n_cache_blocks
    started = time.perf_counter()
    try:
        async with served(engine, folder, pin_budget_tokens=4096) as (service, http):
            system = " ".join(source.choices(words, k=PIN_WORDS))
            pin = (await http.post("/v1/prefixes", json={"name": "bench", "system": system})).json()
            keep_warm = service.pinning().keep_warm

            async def flood_until(n_stored: int) -> int:
                n_requests = 0
                while keep_warm.n_stored[0] < n_stored:
                    # Just over a block: the most blocks and states for the least to compute.
                    text = " ".join(source.choices(words, k=8))
                    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
                    response = await http.post("/v1/chat/completions", json={"model": "kimi-k3", **body})
                    n_requests += response.status_code in (200, 502)  # 502: one token says nothing
                return n_requests

            n_full = n_flood = 0
            prefills_before = keep_warm.n_prefills
            for number in range(N_TRIES):
                goal = keep_warm.n_stored[0] + 10 * n_blocks
                n_flood += sum(await asyncio.gather(*(flood_until(goal) for _ in range(FLOOD_PARALLEL))))
                messages = [
                    {"role": "system", "content": system},
                    {"role": "user", "content": f"Try {number}"},
                ]
                body = {"model": "kimi-k3", "messages": messages, "max_tokens": 8}
                _, cached = await over_http(http)(body)
                n_full += cached >= pin["tokens"]
            n_tokens = engine.info.n_cache_tokens
            print()
            print(f"A pin of {pin['tokens']} tokens, a cache of {n_blocks} blocks ({n_tokens:,} tokens)")
            print(f"first request after {10 * n_blocks} blocks of others hit: {n_full} of {N_TRIES}")
            print(
                f"cost: {keep_warm.n_touches} one-token requests and "
                f"{keep_warm.n_prefills - prefills_before} prefills "
                f"beside {n_flood:,} requests of the flood; {time.perf_counter() - started:.0f} s"
            )
    finally:
        await engine.shutdown()


def vllm_server(folder: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    """vLLM's own server with the arguments of the profile. Our plugin brings the model to the CPU."""
    profile = get_profile("cpu-mini")
    arguments = profile.merged()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", "kimi-k3", "--port", str(port), "--host", "127.0.0.1"]
    command += ["--enable-prompt-tokens-details"]
    skipped = {"enable_log_requests", "disable_log_stats", "structured_outputs_config"}
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        if name in skipped or value is False:
            continue
        command += [flag] if value is True else [flag, "None" if value is None else str(value)]
    environment = {**os.environ, **COMMON_ENVIRONMENT, **profile.environment, "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, env=environment)


async def stock(folder: Path, port: int = 18231) -> None:
    """The session through vLLM's own server: by its chat endpoint if it can, else by ids."""
    print()
    print("The same session through vLLM's own server, with the same engine arguments")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        process = vllm_server(folder, port, log)
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
                if not await _until_up(http, process):
                    print("it does not start:", log.read_text(errors="replace").strip().splitlines()[-1])
                    return
                await _stock_session(folder, http)
        finally:
            process.terminate()
            process.wait(30)


async def _until_up(http: httpx.AsyncClient, process: subprocess.Popen[bytes]) -> bool:
    for _ in range(240):
        if process.poll() is not None:
            return False
        try:
            if (await http.get("/health")).status_code == 200:
                return True
        except httpx.HTTPError:
            pass
        await asyncio.sleep(0.5)
    return False


async def _stock_session(folder: Path, http: httpx.AsyncClient) -> None:
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    response = await http.post("/v1/chat/completions", json=body)
    if response.status_code != 200:
        print("chat endpoint: HTTP", response.status_code, response.text[:200].replace("\n", " "))
    settings = Settings()
    renderer = Renderer(settings, Vocab.load(folder), media_library(settings, folder))
    vocab = renderer.vocab

    async def by_ids(body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        rendered = await renderer.render(ChatRequest.model_validate(body))
        request = {
            "model": "kimi-k3",
            "prompt": list(rendered.prompt.ids),
            "max_tokens": body["max_tokens"],
            "temperature": body["temperature"],
            "seed": body["seed"],
            "return_token_ids": True,
            "stop_token_ids": sorted(vocab.stop_ids),
        }
        answer = (await http.post("/v1/completions", json=request)).json()
        ids = answer["choices"][0].get("token_ids") or []
        details = answer["usage"].get("prompt_tokens_details") or {}
        return _decoded(ids, renderer), details.get("cached_tokens") or 0

    tally = await session(by_ids, renderer, 128, seed=7, pictures=False)
    print(f"{'':34}{'prompt':>10}{'possible':>10}{'cached':>10}{'share':>9}")
    print(tally.row("prompts made here, sent as ids"))
    print(
        "Without this service's front end it has no K3 template for this checkpoint, no pictures in prompts"
    )
    print("given as ids, no pins, no repair, and says nothing about why a prefix was lost.")
    await renderer.media.aclose()


def _decoded(ids: Sequence[int], renderer: Renderer) -> dict[str, Any]:
    from gateway.xtml import Decoder, fold

    decoder = Decoder(renderer.vocab, thinking=True)
    reply = fold([*decoder.feed(ids), *decoder.finish("length")])
    return {"role": "assistant", "content": reply.content, "reasoning_content": reply.reasoning}


async def main(names: Sequence[str]) -> None:
    folder = checkpoint_dir()
    parts: dict[str, Callable[[Path], Awaitable[None]]] = {"session": sessions, "pin": pins, "stock": stock}
    for name in names or parts:
        await parts[name](folder)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
