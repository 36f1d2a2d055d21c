from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.xtml import Vocab
from tests.api.conftest import END, END_THINK, Live, live_server
from tests.prefix.cached_engine import CachedEngine
from tests.prefix.prompts import system, user
from tests.prefix.test_pins import until_warm

TEXT = "You are a careful engineer. " * 20
KEYS = ["alpha", "beta"]


@pytest.fixture
def serve(checkpoint: Path, vocab: Vocab, ids: Callable[[str], list[int]]) -> Callable[..., Any]:
    def start(**settings: Any) -> Any:
        engine = CachedEngine(reply=ids(f"a thought{END_THINK}ok{END}"))
        return live_server(engine, checkpoint, vocab, **settings)

    return start


async def cached(
    live: Live, key: str | None = None, headers: dict[str, str] | None = None, **fields: Any
) -> int:
    body = {"model": "kimi-k3", "messages": [system(TEXT), user("hi")], **fields}
    authorization = {"authorization": f"Bearer {key}"} if key else {}
    response = await live.http.post(
        "/v1/chat/completions", json=body, headers={**authorization, **(headers or {})}
    )
    assert response.status_code == 200, response.text
    return response.json()["usage"]["cached_tokens"]


async def test_a_key_cannot_time_the_prompts_of_another(serve: Any) -> None:
    async with serve(api_keys=KEYS, cache_isolation="tenant") as live:
        assert await cached(live, "alpha") == 0
        assert await cached(live, "beta") == 0
        assert await cached(live, "alpha") > 0
        salts = {prompt.cache_salt for prompt, _ in live.engine.requests}
        assert len(salts) == 2 and not any("alpha" in salt for salt in salts)


async def test_without_keys_users_are_kept_apart(serve: Any) -> None:
    async with serve(cache_isolation="tenant") as live:
        assert await cached(live, user="ann") == 0
        assert await cached(live, user="bob") == 0
        assert await cached(live) == 0
        assert await cached(live, user="ann") > 0


async def test_without_isolation_all_share(serve: Any) -> None:
    async with serve(api_keys=KEYS) as live:
        await cached(live, "alpha")
        assert await cached(live, "beta") > 0
        assert {prompt.cache_salt for prompt, _ in live.engine.requests} == {None}


async def test_nothing_is_explained_from_another_tenants_prompts(serve: Any) -> None:
    async with serve(api_keys=KEYS, cache_isolation="tenant") as live:
        await cached(live, "alpha")
        body = {"model": "kimi-k3", "messages": [system(TEXT), user("other")]}
        for key, shared in (("beta", False), ("alpha", True)):
            account = (
                await live.http.post(
                    "/v1/prefixes/explain", json=body, headers={"authorization": f"Bearer {key}"}
                )
            ).json()
            assert (account["shared_tokens"] > 0) is shared


async def test_pins_belong_to_their_key(serve: Any) -> None:
    async with serve(api_keys=KEYS, cache_isolation="tenant") as live:
        alpha, beta = ({"authorization": f"Bearer {key}"} for key in KEYS)
        pin = {"name": "mine", "system": TEXT}
        assert (await live.http.post("/v1/prefixes", json=pin, headers=alpha)).status_code == 201
        assert (await live.http.get("/v1/prefixes/mine", headers=beta)).status_code == 404
        assert (await live.http.delete("/v1/prefixes/mine", headers=beta)).status_code == 404
        assert (await live.http.get("/v1/prefixes", headers=beta)).json()["data"] == []
        assert await cached(live, "beta") == 0
        assert await cached(live, "alpha") > 0
        assert (await live.http.get("/v1/prefixes")).status_code == 401


async def test_shared_pins_are_used_only_by_who_asks_for_them(serve: Any, tmp_path: Path) -> None:
    file = tmp_path / "pin.json"
    file.write_text('{"name": "common", "system": "' + TEXT + '"}')
    async with serve(api_keys=KEYS, cache_isolation="tenant", prefix_files=[file]) as live:
        live.http.headers["authorization"] = "Bearer beta"
        pin = await until_warm(live, "common")
        assert await cached(live, "alpha") == 0
        assert await cached(live, "alpha", headers={"k3-cache": "shared"}) >= pin["tokens"]


async def test_a_key_cannot_share_or_pin_for_another(serve: Any) -> None:
    async with serve(api_keys=KEYS, cache_isolation="tenant") as live:
        headers = {"authorization": "Bearer alpha"}
        for tenant in ("shared", "beta"):
            pin = {"name": "x", "system": TEXT, "tenant": tenant}
            response = await live.http.post("/v1/prefixes", json=pin, headers=headers)
            assert response.status_code == 403 and response.json()["error"]["param"] == "tenant"


async def test_repair_restores_a_keys_own_reasoning_and_says_so(serve: Any) -> None:
    async with serve(api_keys=KEYS, history_repair="always") as live:
        first = [user("hi")]
        await cached(live, "alpha", messages=first)
        second = [*first, {"role": "assistant", "content": "ok"}, user("more")]
        body = {"model": "kimi-k3", "messages": second}
        for key, told in (("alpha", "restored=1 missing=0"), ("beta", "restored=0 missing=1")):
            response = await live.http.post(
                "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
            )
            assert response.headers["k3-history-repair"] == told
