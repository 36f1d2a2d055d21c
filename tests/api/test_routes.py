"""What every route of the OpenAPI document has in common."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.conftest import END, END_THINK, Live, Server, chat_body
from tests.scripted import Script

# Routes that need no key: what this is, and whether it runs.
OPEN = {"/", "/health", "/ready", "/version", "/metrics"}


async def document(live: Live) -> dict[str, Any]:
    found: dict[str, Any] = (await live.http.get("/openapi.json")).json()
    return found


async def test_no_route_forgets_the_key(server: Server) -> None:
    async with server(Script([1]), api_keys=["secret"]) as live:
        for path, operations in (await document(live))["paths"].items():
            for method, operation in operations.items():
                url = path.replace("{name}", "x").replace("{response_id}", "x")
                reply = await live.http.request(method, url, headers={"content-type": "application/json"})
                assert (reply.status_code == 401) == (path not in OPEN), (method, path, reply.status_code)
                assert bool(operation.get("security")) == (path not in OPEN), (method, path)


async def test_the_document_promises_no_422_and_names_what_replies_are(server: Server) -> None:
    async with server(Script([1])) as live:
        paths = (await document(live))["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert "422" not in operation["responses"], (method, path)
            if path not in OPEN and method == "post" and not path.endswith("/cancel"):
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert schema["type"] == "object", (method, path)
    reply = paths["/v1/chat/completions"]["post"]["responses"]["200"]
    assert reply["content"]["application/json"]["schema"]["$ref"].endswith("/ChatCompletion")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("status", "settings"),
    [(401, {"api_keys": ["secret"]}), (429, {"max_concurrent_requests": 1}), (503, {})],
)
async def test_refusals_are_answered_with_the_body_unsent(
    server: Server, status: int, settings: dict[str, Any]
) -> None:
    async with server(Script([1]), **settings) as live:
        if status == 429:
            live.service.admission.place()
        if status == 503:
            live.service.status.phase = "starting"
        host, port = live.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 100000\r\n\r\n".encode())
        answer = await reader.readline()
        writer.close()
    assert answer.startswith(f"HTTP/1.1 {status}".encode())


@pytest.mark.timeout(20)
async def test_a_client_that_stops_at_done_finds_its_place_free(server: Server, ids: Any) -> None:
    """It asks again at once, over a second connection, before the first one has ended."""
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script, max_concurrent_requests=1) as live:
        for _ in range(20):
            async with (
                httpx.AsyncClient(base_url=live.url) as other,
                live.http.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response,
            ):
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    if line == "data: [DONE]":
                        again = await other.post("/v1/chat/completions", json=chat_body())
                        assert again.status_code == 200
                        break
