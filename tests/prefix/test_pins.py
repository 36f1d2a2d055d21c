"""Pins over HTTP and the keeping warm, with a scripted engine that has a cache of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.types import CacheEventsLost, EngineDead, EngineError, EnginePrompt, EngineRejected, Sampling
from gateway.xtml import Vocab
from tests.api.conftest import END, END_THINK, Live, chat_body, live_server
from tests.prefix.cached_engine import UNIT, CachedEngine
from tests.prefix.prompts import system, tool, user

TEXT = "You are a careful engineer. " * 20
PIN = {"name": "coder", "system": TEXT, "tools": [tool("read"), tool("write")]}


@pytest.fixture
def reply(ids: Callable[[str], list[int]]) -> list[int]:
    return ids(f"hm{END_THINK}ok{END}")


@pytest.fixture
def serve(checkpoint: Path, vocab: Vocab, reply: list[int]) -> Callable[..., Any]:
    def start(engine: CachedEngine | None = None, **settings: Any) -> Any:
        engine = engine or CachedEngine()
        engine.reply = reply
        return live_server(engine, checkpoint, vocab, **{"pin_check_seconds": 3600, **settings})

    return start


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.005)


def flood(number: int) -> tuple[EnginePrompt, Sampling]:
    return EnginePrompt([number] * (UNIT * 4)), Sampling(1)


async def send(live: Live, prompt: EnginePrompt, sampling: Sampling) -> None:
    async for _ in live.engine.generate(prompt, sampling, "flood"):
        pass


async def chat(live: Live, **fields: Any) -> Any:
    body = {"messages": [system(TEXT), user("hi")], "tools": PIN["tools"], **fields}
    response = await live.chat(**body)
    assert response.status_code == 200, response.text
    return response


async def test_a_pin_is_prefilled_and_verified_and_requests_hit_it(serve: Any) -> None:
    async with serve() as live:
        response = await live.http.post("/v1/prefixes", json=PIN)
        assert response.status_code == 201, response.text
        pin = response.json()
        (effort,) = pin["efforts"]
        assert effort["effort"] == "max" and effort["tokens"] == pin["tokens"] > 10 * UNIT
        assert effort["ranks"] == [
            {"rank": 0, "warm": True, "cached_tokens": effort["tokens"], "prefills": 1, "error": None}
        ]
        answer = await chat(live)
        assert answer.json()["usage"]["cached_tokens"] >= effort["tokens"]
        assert answer.headers["k3-prefix"].startswith(f"cached={effort['tokens']}/")


async def test_the_prompt_of_a_pin_leaves_its_state_at_the_wanted_boundary(serve: Any) -> None:
    async with serve() as live:
        for n in range(UNIT + 1):  # every position of the prefix's end within a unit
            body = {"name": "p", "system": TEXT + " a" * n}
            pin = (await live.http.post("/v1/prefixes", json=body)).json()
            prompt, _ = live.engine.pin_requests()[-1]
            assert (len(prompt.ids) - 1) // UNIT * UNIT == pin["tokens"]
            answer = await live.chat(messages=[system(TEXT + " a" * n), user("x")])
            n_prefix = live.engine.requests[-1][0].ids[: pin["tokens"]]
            assert n_prefix == prompt.ids[: pin["tokens"]]
            assert answer.json()["usage"]["cached_tokens"] == pin["tokens"]


async def test_each_effort_has_a_prompt_of_its_own(serve: Any) -> None:
    async with serve() as live:
        pin = (await live.http.post("/v1/prefixes", json={**PIN, "efforts": ["low", "max", "none"]})).json()
        assert [e["effort"] for e in pin["efforts"]] == ["low", "max", "none"]
        for effort in ("low", "max", "none"):
            answer = await chat(live, reasoning_effort=effort, messages=[system(TEXT), user("hi " + effort)])
            want = next(e["tokens"] for e in pin["efforts"] if e["effort"] == effort)
            assert answer.json()["usage"]["cached_tokens"] == want
        answer = await chat(live, reasoning_effort="high")
        assert answer.json()["usage"]["cached_tokens"] < pin["efforts"][0]["tokens"]


async def test_tools_alone_and_leading_messages_can_be_pinned(serve: Any) -> None:
    async with serve() as live:
        many = [tool(f"tool_{i}", "a description of some length " * 3) for i in range(8)]
        only_tools = (await live.http.post("/v1/prefixes", json={"name": "t", "tools": many})).json()
        answer = await live.chat(messages=[user("q")], tools=many)
        assert answer.json()["usage"]["cached_tokens"] >= only_tools["tokens"] > 0
        leading = [
            user("Read this. " * 50),
            {"role": "assistant", "content": "Read.", "reasoning_content": "x"},
        ]
        pin = (await live.http.post("/v1/prefixes", json={"name": "m", "messages": leading})).json()
        answer = await live.chat(messages=[*leading, user("And?")])
        assert answer.json()["usage"]["cached_tokens"] >= pin["tokens"] > 0


async def test_a_pin_is_computed_again_when_its_blocks_are_gone(serve: Any) -> None:
    async with serve() as live:
        await live.http.post("/v1/prefixes", json=PIN)
        before = len(live.engine.pin_requests())
        live.engine.evict(lambda number: number % 3 == 0)
        await until(lambda: len(live.engine.pin_requests()) >= before + 2)
        pin = await until_warm(live)
        assert pin["efforts"][0]["ranks"][0]["prefills"] == 2


async def test_blocks_of_others_are_none_of_its_concern(serve: Any) -> None:
    async with serve() as live:
        await live.http.post("/v1/prefixes", json=PIN)
        await send(live, *flood(5))
        before = len(live.engine.pin_requests())
        live.engine.evict(lambda number: number >= len(live.engine.caches[0]) - 4)
        await asyncio.sleep(0)
        pin = (await live.http.get("/v1/prefixes/coder")).json()
        assert pin["efforts"][0]["ranks"][0]["warm"] and len(live.engine.pin_requests()) == before


async def test_a_flood_never_reaches_a_pin(serve: Any) -> None:
    async with serve(CachedEngine(n_blocks=200)) as live:
        pin = (await live.http.post("/v1/prefixes", json=PIN)).json()
        for number in range(500):  # ten times the cache
            await send(live, *flood(number))
            await asyncio.sleep(0)
        answer = await chat(live)
        assert answer.json()["usage"]["cached_tokens"] == pin["tokens"]
        assert (await until_warm(live))["efforts"][0]["ranks"][0]["prefills"] == 1


@pytest.mark.parametrize("what", ["reset", "lost events"])
async def test_a_pin_comes_back_after_a_reset_and_is_checked_when_events_were_lost(
    serve: Any, what: str
) -> None:
    async with serve() as live:
        await live.http.post("/v1/prefixes", json=PIN)
        before = len(live.engine.pin_requests())
        if what == "reset":
            live.engine.clear()
        else:
            live.engine.emit(CacheEventsLost(0))
        await until(lambda: len(live.engine.pin_requests()) > before)
        pin = await until_warm(live)
        assert pin["efforts"][0]["ranks"][0]["prefills"] == (2 if what == "reset" else 1)


async def test_every_rank_is_warmed_and_each_by_itself(serve: Any) -> None:
    engine = CachedEngine(n_ranks=3)
    async with serve(engine) as live:
        pin = (await live.http.post("/v1/prefixes", json=PIN)).json()
        assert [r["warm"] for r in pin["efforts"][0]["ranks"]] == [True] * 3
        before = [len(engine.pin_requests(rank)) for rank in range(3)]
        engine.clear(1)
        await until(lambda: len(engine.pin_requests(1)) > before[1])
        await until_warm(live)
        assert [len(engine.pin_requests(rank)) - before[rank] > 0 for rank in range(3)] == [
            False,
            True,
            False,
        ]


async def test_conversations_go_to_the_rank_that_holds_them(serve: Any) -> None:
    engine = CachedEngine(n_ranks=4)
    async with serve(engine) as live:
        histories: list[list[dict[str, Any]]] = [[system(f"{n} " * 100), user("go")] for n in range(8)]
        ranks: list[set[int | None]] = [set() for _ in histories]
        for turn in range(4):
            for number, history in enumerate(histories):
                answer = (await live.chat(messages=history)).json()
                ranks[number].add(engine.requests[-1][1].data_parallel_rank)
                if turn:
                    assert answer["usage"]["cached_tokens"] > 0
                history += [answer["choices"][0]["message"], user(f"turn {turn}")]
        assert all(len(seen) == 1 for seen in ranks)


async def test_the_budget_is_kept_and_the_error_says_what_is_taken(serve: Any) -> None:
    async with serve(pin_budget_tokens=600) as live:
        first = (await live.http.post("/v1/prefixes", json=PIN)).json()
        refused = await live.http.post("/v1/prefixes", json={**PIN, "name": "second"})
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["code"] == "pin_budget_exceeded"
        assert f"{first['tokens']} of 600 are taken" in error["message"]
        listed = (await live.http.get("/v1/prefixes")).json()
        assert [p["name"] for p in listed["data"]] == ["coder"]
        assert (listed["taken_tokens"], listed["budget_tokens"]) == (first["tokens"], 600)
        assert (await live.http.post("/v1/prefixes", json=PIN)).status_code == 201  # replaces itself


async def test_a_deleted_pin_is_kept_no_longer(serve: Any) -> None:
    async with serve() as live:
        await live.http.post("/v1/prefixes", json=PIN)
        assert (await live.http.delete("/v1/prefixes/coder")).status_code == 204
        assert (await live.http.get("/v1/prefixes/coder")).status_code == 404
        assert (await live.http.delete("/v1/prefixes/coder")).json()["error"]["code"] == "prefix_not_found"
        before = len(live.engine.pin_requests())
        live.engine.clear()
        await chat(live)
        assert len(live.engine.pin_requests()) == before


async def test_a_pin_ends_when_its_time_is_over(serve: Any) -> None:
    async with serve() as live:
        await live.http.post("/v1/prefixes", json={**PIN, "ttl": 0.2})
        async with asyncio.timeout(10):
            while (await live.http.get("/v1/prefixes/coder")).status_code != 404:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x"}, None),
        ({"name": "a/b", "system": TEXT}, "name"),
        ({"name": "..", "system": TEXT}, "name"),
        ({"name": "x", "system": TEXT, "efforts": ["medium"]}, "efforts[0]"),
        ({"name": "x", "system": TEXT, "ttl": 0}, "ttl"),
        ({"name": "x", "system": TEXT, "color": "red"}, "color"),
        ({"name": "x", "messages": [{"role": "nobody"}]}, "messages[0].role"),
        ({"name": "x", "system": "short", "efforts": ["none"]}, "messages"),
    ],
)
async def test_a_wrong_pin_is_a_400_that_names_the_field(serve: Any, body: Any, param: str | None) -> None:
    async with serve() as live:
        response = await live.http.post("/v1/prefixes", json=body)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "a", "system": ""}, "nothing to pin"),
        ({"name": "a", "messages": []}, "nothing to pin"),
        ({"name": "a", "system": TEXT, "efforts": ["max", "max"]}, "efforts must differ"),
        ([], "must be a JSON object"),
    ],
)
async def test_what_is_wrong_with_a_pin_as_a_whole_is_said(serve: Any, body: Any, said: str) -> None:
    async with serve() as live:
        response = await live.http.post("/v1/prefixes", json=body)
        assert response.status_code == 400 and said in response.json()["error"]["message"]


async def test_an_engine_that_does_not_keep_it_is_reported_not_believed(serve: Any) -> None:
    engine = CachedEngine()
    engine.keeps = False
    async with serve(engine) as live:
        (state,) = (await live.http.post("/v1/prefixes", json=PIN)).json()["efforts"][0]["ranks"]
        assert state["warm"] is False and state["cached_tokens"] == 0


async def test_an_error_of_the_engine_is_shown_and_tried_again(serve: Any) -> None:
    engine = CachedEngine()
    async with serve(engine) as live:
        engine.error = EngineError("no room")
        (state,) = (await live.http.post("/v1/prefixes", json=PIN)).json()["efforts"][0]["ranks"]
        assert state["warm"] is False and state["error"] == "no room"
        engine.error = None
        live.engine.clear()
        pin = await until_warm(live)
        assert pin["efforts"][0]["ranks"][0]["error"] is None


async def test_a_dead_engine_is_a_503(serve: Any) -> None:
    engine = CachedEngine()
    async with serve(engine) as live:
        engine.error = EngineDead("gone")
        assert (await live.http.post("/v1/prefixes", json=PIN)).status_code == 503


@pytest.mark.parametrize(
    ("error", "status"), [(EngineRejected("x"), 400), (EngineError("x"), 502), (EngineDead("x"), 503)]
)
async def test_an_error_of_the_engine_at_a_probe_has_the_status_of_a_chat(
    serve: Any, error: EngineError, status: int
) -> None:
    engine = CachedEngine()
    async with serve(engine) as live:
        engine.error = error
        response = await live.http.post("/v1/prefixes/explain?probe=true", json=chat_body())
    assert response.status_code == status and response.json()["error"]["message"]


async def test_a_damaged_saved_pin_is_named_and_the_others_come_back(
    serve: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(prefix_folder=tmp_path) as live:
        await live.http.post("/v1/prefixes", json=PIN)
        ((good, _),) = live.service.pinning().book.saved()
    saved = json.loads(good.read_text())
    damaged = {
        "no-tenant": {name: value for name, value in saved.items() if name != "tenant"},
        "odd-tenant": {**saved, "tenant": 7},
        "no-request": {**saved, "request": None},
        "odd-effort": {**saved, "efforts": ["huge"]},
        "..": saved,
    }
    for number, (name, content) in enumerate(damaged.items()):
        (tmp_path / f"0{number}.json").write_text(json.dumps({**content, "name": name}))
    (tmp_path / "05.json").write_text("[]")
    async with serve(prefix_folder=tmp_path) as live:
        await until_warm(live)
        assert len((await live.http.get("/v1/prefixes")).json()["data"]) == 1
    warnings = [record.getMessage() for record in caplog.records if "is not restored" in record.message]
    for number, name in enumerate([*damaged, None]):
        (line,) = (w for w in warnings if f"0{number}.json" in w)
        assert repr(name) in line and TEXT not in line


async def test_pins_come_back_after_a_restart(serve: Any, tmp_path: Path) -> None:
    async with serve(prefix_folder=tmp_path / "pins") as live:
        first = (await live.http.post("/v1/prefixes", json={**PIN, "ttl": 1000})).json()
    (tmp_path / "pins" / "broken.json").write_text("{")
    async with serve(prefix_folder=tmp_path / "pins") as live:
        pin = await until_warm(live)
        assert (pin["tokens"], pin["expires"]) == (first["tokens"], first["expires"])
        await live.http.delete("/v1/prefixes/coder")
    async with serve(prefix_folder=tmp_path / "pins") as live:
        assert (await live.http.get("/v1/prefixes")).json()["data"] == []


async def test_files_of_the_settings_are_pinned_at_the_start(serve: Any, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(PIN))
    bad.write_text("not json")
    async with serve(prefix_files=[bad, good]) as live:
        pin = await until_warm(live)
        assert pin["from_settings"] and pin["tenant"] == "shared"
        assert (await live.http.delete("/v1/prefixes/coder")).status_code == 403


async def until_warm(live: Live, name: str = "coder") -> Any:
    async with asyncio.timeout(10):
        while True:
            response = await live.http.get(f"/v1/prefixes/{name}")
            pin = response.json()
            if response.status_code == 200 and all(r["warm"] for e in pin["efforts"] for r in e["ranks"]):
                return pin
            await asyncio.sleep(0.005)
