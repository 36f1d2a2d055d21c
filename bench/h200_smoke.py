"""The whole service on one GPU, over HTTP, beside `vllm serve` on the same engine: one JSON object a line.

    python -m bench.h200_smoke FOLDER [PROFILE]

Writes a small K3 of random weights with the mini checkpoint's tokenizer and inner sizes that GPU kernels
accept into FOLDER, serves it with PROFILE (h200-smoke; cpu-mini serves the mini checkpoint and tries the
script itself), and asks for text, a picture, a clip, a forced call, JSON by schema, a prefix again, and
leaves in the middle. Random weights say nothing sensible: what is checked is that each reply is well formed,
that grammars hold, and what usage says. The project need not be installed: its metadata is written beside the
checkpoint.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from engine.mini.config import MiniConfig
from engine.profiles import PROFILES
from gateway.xtml import Vocab, encode, from_request

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 240
N_TIMED = 20
GPU_SIZES = MiniConfig(
    hidden_size=1024, n_layers=8, full_attn_layers=(4, 8), attn_res_block_size=2,
    dense_intermediate_size=2048, kda_heads=12, kda_head_dim=128, mla_heads=12, q_lora_rank=256,
    qk_nope_head_dim=128, v_head_dim=128, n_experts=16, n_active_experts=4, n_shared_experts=1,
    expert_hidden_size=512, expert_intermediate_size=256, vit_layers=2, vit_hidden_size=256,
    vit_intermediate_size=512, vit_heads=2, vit_qkv_size=256, vit_pos_emb_side=64,
)  # fmt: skip
Bias = dict[str, dict[str, int]]
HELLO = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Tell me of rivers and lakes."}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "required": ["city", "days"],
            "properties": {"city": {"enum": ["Oslo", "Paris"]}, "days": {"enum": [1, 2, 3]}},
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["answer", "sure"],
    "properties": {"answer": {"enum": ["yes", "no"]}, "sure": {"type": "boolean"}},
    "additionalProperties": False,
}


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)


# What is served


def write_checkpoint(folder: Path) -> Path:
    """A K3 of 130 million random weights."""
    from engine.mini.checkpoint import initial_tensors
    from engine.mini.checkpoint import write_checkpoint as write

    write(folder, GPU_SIZES, initial_tensors(GPU_SIZES))
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["head_dim"] = GPU_SIZES.kda_head_dim
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


def write_metadata(folder: Path) -> Path:
    """What installing the project would add: its version, and the plugin's entry point for vLLM."""
    info = folder / "k3_gateway-0.1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: k3-gateway\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nk3_gateway = engine.plugin:register\n")
    return folder


# Servers


@contextmanager
def server(command: list[str], log: Path, port: int, ready: str, site: Path) -> Iterator[str]:
    """A server process; yields its URL once `ready` answers 200, and ends it. Raises RuntimeError."""
    paths = [str(site), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    environment.setdefault("VLLM_USE_RUST_FRONTEND", "0")
    environment["K3_CACHE_ISOLATION"] = "tenant"  # users without each other's cache
    begin = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment, cwd=ROOT, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        while not _answers(url + ready):
            if process.poll() is not None or time.monotonic() - begin > START_SECONDS:
                raise RuntimeError("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
            time.sleep(0.2)
        say(ready_seconds=round(time.monotonic() - begin, 1), command=" ".join(command[1:5]))
        yield url
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def flags(arguments: dict[str, Any]) -> list[str]:
    """Engine arguments as flags of `vllm serve`."""
    found = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    return found


# Requests


@asynccontextmanager
async def stream(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> AsyncIterator[Any]:
    """The parsed events of a streamed request."""
    async with client.stream("POST", path, json={**body, "stream": True}) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code} {(await response.aread())[:300]!r}")

        async def events() -> AsyncIterator[dict[str, Any]]:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])

        yield events()


async def timed(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> tuple[float, int]:
    """(seconds to the first event that carries text, completion tokens)."""
    begin = time.perf_counter()
    first, n_tokens = None, 0
    async with stream(client, path, {**body, "stream_options": {"include_usage": True}}) as events:
        async for event in events:
            for choice in event.get("choices") or ():
                delta = choice.get("delta", choice)
                if first is None and any(delta.get(key) for key in ("content", "reasoning_content", "text")):
                    first = time.perf_counter() - begin
            n_tokens = (event.get("usage") or {}).get("completion_tokens", n_tokens)
    return first or time.perf_counter() - begin, n_tokens


async def speed(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Median time to the first token, and tokens a second at three batch sizes; at most 128 tokens each."""
    body = {**body, "max_tokens": 128, "temperature": 0}
    await timed(client, path, body)
    firsts = [(await timed(client, path, {**body, "max_tokens": 8}))[0] for _ in range(N_TIMED)]
    rates = {}
    for n in (1, 8, 32):
        begin = time.perf_counter()
        done = await asyncio.gather(*(timed(client, path, body) for _ in range(n)))
        rates[n] = round(sum(n_tokens for _, n_tokens in done) / (time.perf_counter() - begin))
    return {"first_token_ms": milliseconds(statistics.median(firsts)), "tokens_per_second": rates}


async def chat(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/chat/completions", json={**HELLO, **body})
    if response.status_code != 200:
        raise RuntimeError(f"{response.status_code} {response.text[:300]}")
    return response.json()


def with_media(kind: str, url: str) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": "What is this?"}, {"type": kind, kind: {"url": url}}]
    return [{"role": "user", "content": parts}]


def picture(width: int, height: int) -> str:
    from PIL import Image

    data = io.BytesIO()
    noise = random.Random(1).randbytes(width // 8 * (height // 8) * 3)
    image = Image.frombytes("RGB", (width // 8, height // 8), noise).resize((width, height))
    image.save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def clip(seconds: int, width: int, height: int) -> str:
    import av
    import numpy as np

    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        track = container.add_stream("mpeg4", rate=8)
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        for n in range(seconds * 8):
            pixels = np.full((height, width, 3), 8 * n % 256, dtype=np.uint8)
            pixels[: height // 2, : 4 * n + 4] = (250, 20, 20)
            for packet in track.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")):
                container.mux(packet)
        for packet in track.encode():
            container.mux(packet)
    return "data:video/mp4;base64," + base64.b64encode(data.getvalue()).decode()


# Scenarios: each returns its figures, or raises


async def text(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    fields = {"max_tokens": 48, "temperature": 0, "seed": 1}
    whole = await chat(client, **fields)
    pieces: list[str] = []
    async with stream(client, "/v1/chat/completions", {**HELLO, **fields}) as events:
        async for event in events:
            for choice in event["choices"]:
                delta = choice["delta"]
                pieces.append(delta.get("reasoning_content") or delta.get("content") or "")
    message = whole["choices"][0]["message"]
    same = "".join(pieces) == (message.get("reasoning_content") or "") + (message.get("content") or "")
    return {"usage": whole["usage"], "streamed_equals_whole": same}


async def speed_of_text(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    return await speed(client, "/v1/chat/completions", {**HELLO, "logit_bias": bias["endless"]})


async def pictures(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    messages = with_media("image_url", picture(800, 600))
    times, usages = [], []
    for _ in range(3):
        begin = time.perf_counter()
        reply = await chat(client, messages=messages, max_tokens=4, logit_bias=bias["endless"])
        times.append(milliseconds(time.perf_counter() - begin))
        usages.append(reply["usage"])
    return {"ms": times, "usage": usages[-1]}


async def video(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    begin = time.perf_counter()
    messages = with_media("video_url", clip(4, 320, 240))
    reply = await chat(client, messages=messages, max_tokens=4, logit_bias=bias["endless"])
    return {"ms": milliseconds(time.perf_counter() - begin), "usage": reply["usage"]}


async def forced_call(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    import jsonschema

    begin = time.perf_counter()
    replies = await asyncio.gather(
        *(
            chat(
                client, tools=[TOOL], tool_choice="required", parallel_tool_calls=False,
                reasoning_effort="none", max_tokens=500, seed=n, logit_bias=bias["brief"],
            )
            for n in range(4)
        )
    )  # fmt: skip
    for reply in replies:
        (call,) = reply["choices"][0]["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), TOOL["function"]["parameters"])
    return {"calls_by_schema": len(replies), "ms": milliseconds(time.perf_counter() - begin)}


async def json_by_schema(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    import jsonschema

    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    reply = await chat(client, response_format=form, reasoning_effort="none", max_tokens=500, seed=3)
    content = reply["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(content), SCHEMA)
    return {"content": content}


async def prefix(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    """The same long prompt three times, then with another question behind it."""
    long = " ".join(f"Paragraph {n} is about rivers and lakes." for n in range(400))
    rows = []
    for question in ("", "", "", " What now?", " What now?"):
        begin = time.perf_counter()
        messages = [{"role": "user", "content": long + question}]
        reply = await chat(client, messages=messages, max_tokens=1, logit_bias=bias["endless"])
        usage = reply["usage"]
        rows.append(
            {
                "prompt": usage["prompt_tokens"],
                "cached": usage["prompt_tokens_details"]["cached_tokens"],
                "ms": milliseconds(time.perf_counter() - begin),
            }
        )
    return {"requests": rows}


async def hit_inside_a_block(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    """A prompt whose prefix another one left in the cache, against the same of users without a cache."""
    long = " ".join(f"Chapter {n} tells of hills and valleys." for n in range(300))
    fields: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 5}
    fields |= {"logit_bias": bias["endless"], "reasoning_effort": "none"}
    messages = [{"role": "user", "content": long + " What now?"}]
    await chat(client, messages=[{"role": "user", "content": long}], user="warm", **fields)
    warm = await chat(client, messages=messages, user="warm", **fields)
    cold, again = [await chat(client, messages=messages, user=user, **fields) for user in ("cold", "colder")]

    def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
        first, second = (reply["choices"][0]["logprobs"]["content"][0] for reply in (one, other))
        values = {entry["token"]: entry["logprob"] for entry in second["top_logprobs"]}
        return max(abs(e["logprob"] - values.get(e["token"], float("inf"))) for e in first["top_logprobs"])

    return {
        "cached": [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in (warm, cold, again)],
        "largest_logprob_difference": {
            "warm and cold": apart(warm, cold),
            "cold and cold": apart(cold, again),
        },
    }


async def disconnects(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    """Thirty-two long streams fill the engine and are left; then a short request is answered at once."""

    async def leave() -> None:
        body = {**HELLO, "max_tokens": 8000, "logit_bias": bias["endless"]}
        async with stream(client, "/v1/chat/completions", body) as events:
            async for event in events:
                if event["choices"]:
                    return

    await asyncio.gather(*(leave() for _ in range(32)))
    begin = time.perf_counter()
    await chat(client, max_tokens=1, logit_bias=bias["endless"])
    return {"left": 32, "next_answer_ms": milliseconds(time.perf_counter() - begin)}


async def patches(client: httpx.AsyncClient, bias: Bias) -> dict[str, Any]:
    overview = (await client.get("/v1/engine/patches")).json()
    states = {row["patch"]: row["state"] for row in overview["data"]}
    return {"agreed": overview["agreed"], "problems": overview["problems"], "states": states}


Scenario = Callable[[httpx.AsyncClient, Bias], Coroutine[Any, Any, dict[str, Any]]]
SCENARIOS: tuple[Scenario, ...] = (
    text, speed_of_text, pictures, video, forced_call, json_by_schema, prefix,
    hit_inside_a_block, disconnects, patches,
)  # fmt: skip


def biases(vocab: Vocab) -> Bias:
    """Token biases under which random weights go on for ever, and end each channel as soon as they may."""
    ends = {str(token): -100 for token in (vocab.close, *vocab.stop_ids)}
    return {"endless": ends, "brief": {str(vocab.close): 40}}


async def ask(url: str, bias: Bias) -> None:
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        for scenario in SCENARIOS:
            begin = time.monotonic()
            try:
                figures = await scenario(client, bias)
            except Exception as error:  # the next scenario may still say something
                figures = {"error": f"{type(error).__name__}: {error}"[:400]}
            say(scenario=scenario.__name__, seconds=round(time.monotonic() - begin, 1), **figures)


async def ask_stock(url: str, ids: list[int], bias: Bias) -> None:
    """The same prompt as ids: stock vLLM cannot render K3's prompt without the model's own remote code."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        body = {"model": "kimi-k3", "prompt": ids, "logit_bias": bias["endless"]}
        say(scenario="vllm serve, same prompt", **(await speed(client, "/v1/completions", body)))


def main(folder: Path, profile_name: str) -> None:
    from engine.mini.build import checkpoint_dir

    folder.mkdir(parents=True, exist_ok=True)
    profile = PROFILES[profile_name]
    site = write_metadata(folder / "site")
    on_cpu = profile.requires.gpus_per_node == 0
    checkpoint = checkpoint_dir() if on_cpu else write_checkpoint(folder / "checkpoint")
    vocab = Vocab.load(checkpoint)
    ids = encode(from_request(HELLO), vocab, []).ids
    # The weights are random, but well scaled and the same for both servers; `dummy` would make them tiny.
    overrides = {} if on_cpu else {"load_format": "auto"}
    command = [sys.executable, "-m", "gateway.cli", "serve", "--profile", profile_name]
    command += ["--model", str(checkpoint), "--port", "8101"]
    command += [part for name, value in overrides.items() for part in ("--engine-arg", f"{name}={value}")]
    try:
        with server(command, folder / "k3.log", 8101, "/ready", site) as url:
            asyncio.run(ask(url, biases(vocab)))
    except RuntimeError as error:
        say(case="k3 serve", error=str(error))
    log = (folder / "k3.log").read_text(errors="replace").splitlines()
    say(loading=[line.split(": ", 1)[-1] for line in log if "loading weights" in line][:3])

    merged = replace(profile, environment={}).merged(overrides)
    stock = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(checkpoint)]
    stock += ["--host", "127.0.0.1", "--port", "8102", "--served-model-name", "kimi-k3", *flags(merged)]
    os.environ |= {name: value for name, value in profile.environment.items() if name not in os.environ}
    try:
        with server(stock, folder / "vllm.log", 8102, "/health", site) as url:
            asyncio.run(ask_stock(url, ids, biases(vocab)))
    except RuntimeError as error:
        say(case="vllm serve", error=str(error))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else "h200-smoke")
