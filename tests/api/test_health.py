"""Before, while and after the engine is up."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from gateway.app import build_app
from gateway.assembly import media_library
from gateway.service import Service
from gateway.settings import Settings
from tests.api.conftest import END, END_THINK, Server, chat_body
from tests.scripted import Script, ScriptedEngine


async def test_http_answers_before_the_engine_is_up(checkpoint, vocab) -> None:
    go_on = asyncio.Event()
    reported = asyncio.Event()

    async def start(report: Callable[[str], None]) -> ScriptedEngine:
        report("loading weights")
        reported.set()
        await go_on.wait()
        return ScriptedEngine(lambda prompt, sampling: Script([1]))

    settings = Settings()
    failures: list[Exception] = []
    service = Service(
        settings, checkpoint, vocab, media_library(settings, checkpoint), start, failures.append
    )
    app = build_app(service)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        await reported.wait()
        ready = await http.get("/ready")
        assert ready.status_code == 503
        assert ready.json()["status"] == "starting" and ready.json()["detail"] == "loading weights"
        assert (await http.get("/health")).status_code == 200
        refused = await http.post("/v1/chat/completions", json=chat_body())
        assert refused.status_code == 503 and refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "engine_not_ready"
        go_on.set()
        while (await http.get("/ready")).status_code != 200:
            await asyncio.sleep(0)
        assert (await http.get("/version")).json()["engine"] == "scripted"
    assert not failures


async def test_not_ready_while_ranks_are_patched_differently(
    checkpoint, vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.service._PATCH_POLL_SECONDS", 0.01)
    engine = ScriptedEngine(lambda prompt, sampling: Script([1]), patch_problems=["rank 3: differs"])

    async def start(report: Callable[[str], None]) -> ScriptedEngine:
        return engine

    settings = Settings()
    media = media_library(settings, checkpoint)
    app = build_app(Service(settings, checkpoint, vocab, media, start, print))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        while "rank 3: differs" not in (ready := await http.get("/ready")).json()["detail"]:
            await asyncio.sleep(0)
        assert ready.status_code == 503
        assert (await http.get("/v1/engine/patches")).json()["problems"] == ["rank 3: differs"]
        engine.patch_problems.clear()
        while (await http.get("/ready")).status_code != 200:
            await asyncio.sleep(0)


async def test_an_engine_that_dies_is_told_to_everybody(server: Server, ids, caplog) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        live.engine.death.set()
        while not live.failures:
            await asyncio.sleep(0)
        health = await live.http.get("/health")
        ready = await live.http.get("/ready")
        reply = await live.chat()
    assert health.status_code == ready.status_code == reply.status_code == 503
    assert health.json()["status"] == "dead"
    assert [r.levelname for r in caplog.records if "engine dead" in r.message] == ["ERROR"]


async def test_behind_a_proxy_with_a_path_prefix(server: Server) -> None:
    """Whether or not the proxy strips the prefix."""
    async with server(Script([1]), root_path="/k3") as live:
        assert (await live.http.get("/ready")).status_code == 200
        assert (await live.http.get("/k3/ready")).status_code == 200
        document = (await live.http.get("/openapi.json")).json()
    assert document["servers"] == [{"url": "/k3"}]


async def test_metrics_count_requests_tokens_and_repairs(server: Server, ids) -> None:
    spelled = ids("<|open|>think<|sep|>again" + END_THINK + "b" + END)
    async with server(Script(spelled, n_cached=4)) as live:
        for stream in (False, True):
            await live.chat(stream=stream)
        text = (await live.http.get("/metrics")).text
        n_completion = 2 * len(spelled)
    assert 'k3_requests_total{outcome="finished"} 2.0' in text
    assert f'k3_tokens_total{{kind="completion"}} {n_completion}.0' in text
    assert 'k3_tokens_total{kind="cached"} 8.0' in text
    assert "k3_decoder_repairs_total{kind=" in text
    assert "k3_ready 1.0" in text and "k3_requests_running 0.0" in text


@pytest.mark.parametrize("prefix", ["", "/k3"])
async def test_the_root_says_what_is_here_and_where(server: Server, prefix: str) -> None:
    async with server(Script([1]), root_path=prefix) as live:
        root = (await live.http.get("/")).json()
        assert root["name"] == "k3-gateway" and root["version"]
        assert prefix + "/docs" in root["paths"]
        for path in root["paths"]:
            assert (await live.http.get(path)).status_code in (200, 405), path
