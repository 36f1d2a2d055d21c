"""Foreign pages cannot use a service that asks for no key; a scripted engine.

See docs/reference/api.md, "Browsers".
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from starlette.datastructures import Headers

from gateway.api.errors import status_of
from gateway.api.origin import is_loopback, refusal
from gateway.commands.serve import StartError, check_exposure
from gateway.settings import Settings
from tests.api.conftest import END, END_THINK, Server, chat_body
from tests.scripted import Script

Ids = Callable[[str], list[int]]
JSON, MULTIPART = "application/json", "multipart/form-data"


def status(headers: dict[str, str], types: tuple[str, ...] | None = (JSON,), **options: object) -> int:
    """What a request with these headers gets; 200 stands for let through."""
    chosen = {"allowed": frozenset(), "any_host": False, **options}
    error = refusal(Headers({"host": "localhost:8000", **headers}), types, **chosen)  # type: ignore[arg-type]
    return 200 if error is None else status_of(error)


@pytest.mark.parametrize(
    ("origin", "more"),
    [
        ("http://localhost:8000", {}),
        ("HTTP://LOCALHOST:8000", {}),
        ("https://k3.example", {"host": "k3.example"}),
        ("https://k3.example", {"host": "k3.example:443"}),
        ("http://k3.example", {"host": "k3.example:80"}),
        ("http://[::1]:8000", {"host": "[::1]:8000"}),
        ("https://k3.example", {"host": "127.0.0.1:8000", "x-forwarded-host": "k3.example"}),
        ("https://k3.example", {"host": "127.0.0.1:8000", "x-forwarded-host": "k3.example, inner"}),
        ("https://k3.example:8443", {"host": "k3.example", "x-forwarded-port": "8443"}),
        (
            "https://k3.example",
            {"host": "127.0.0.1", "forwarded": 'for=1.2.3.4; Host="k3.example";proto=https'},
        ),
    ],
)
def test_pages_of_the_service_itself_may_call(origin: str, more: dict[str, str]) -> None:
    assert status({"origin": origin, "content-type": JSON, **more}, any_host=True) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost:3000",
        "http://localhost",
        "http://localhost:8000.evil.example",
        "http://localhost:8000@evil.example",
        "http://localhost:99999",
        "ftp://localhost:8000",
        "localhost:8000",
        "null",
        "",
    ],
)
def test_pages_of_others_may_not(origin: str) -> None:
    for method_types in ((JSON,), None):
        assert status({"origin": origin, "content-type": JSON}, method_types) == 403


def test_the_settings_origins_may() -> None:
    page = {"origin": "https://chat.example", "content-type": JSON}
    assert status(page, allowed=frozenset({"https://chat.example"})) == 200
    assert status(page, allowed=frozenset({"*"})) == 200
    assert status({**page, "origin": "null"}, allowed=frozenset({"null"})) == 200
    assert (
        status({**page, "origin": "https://chat.example.evil"}, allowed=frozenset({"https://chat.example"}))
        == 403
    )


@pytest.mark.parametrize(
    ("given", "from_program", "from_page"),
    [
        (JSON, 200, 200),
        ("Application/JSON; charset=utf-8", 200, 200),
        (None, 200, 415),
        ("application/x-www-form-urlencoded", 200, 415),
        ("text/plain", 415, 415),
        (f"text/plain; {JSON}", 415, 415),
        (f"{MULTIPART}; boundary=x", 415, 415),
    ],
)
def test_a_body_has_the_type_of_its_route(given: str | None, from_program: int, from_page: int) -> None:
    typed = {} if given is None else {"content-type": given}
    assert status(typed) == from_program
    assert status({**typed, "sec-fetch-site": "same-origin"}) == from_program
    assert status({**typed, "sec-fetch-site": "cross-site"}) == from_page
    assert status({**typed, "origin": "http://localhost:8000"}) == from_page


def test_forms_are_taken_where_the_route_takes_forms() -> None:
    form = {"content-type": f"{MULTIPART}; boundary=x"}
    assert status(form, (JSON, MULTIPART)) == 200
    assert status({**form, "origin": "http://localhost:8000"}, (JSON, MULTIPART)) == 200
    assert status({**form, "origin": "https://evil.example"}, (JSON, MULTIPART)) == 403
    assert status({}, (MULTIPART,)) == 415


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "192.168.1.5", "localhost.evil.example", "[::2]:1"]
)
def test_a_name_that_was_pointed_at_this_machine_is_refused(host: str) -> None:
    rebound = {"host": host, "origin": f"http://{host}", "content-type": JSON}
    assert status(rebound) == 403
    assert status(rebound, None) == 403
    assert status(rebound, any_host=True) == 200  # the operator lets everybody in


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "k3.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback(host)


async def test_foreign_pages_over_http(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    body = json.dumps(chat_body())
    evil, own = {"origin": "https://evil.example"}, None
    async with server(script) as live:
        own = {"origin": live.url, "content-type": JSON}
        for path in ("/v1/chat/completions", "/v1/prefixes", "/v1/media/preview", "/v1/prefixes/explain"):
            for kind in ("text/plain", JSON, f"{MULTIPART}; boundary=x"):
                refused = await live.http.post(path, content=body, headers={**evil, "content-type": kind})
                assert refused.status_code == 403, (path, kind)
                assert "cors_origins" in refused.json()["error"]["message"]
        assert (await live.http.get("/v1/models", headers=evil)).status_code == 403
        assert (await live.http.delete("/v1/prefixes/x", headers=evil)).status_code == 403
        assert live.engine.requests == []
        plain = await live.http.post(
            "/v1/chat/completions", content=body, headers={"content-type": "text/plain"}
        )
        assert plain.status_code == 415 and plain.json()["error"]["param"] == "content-type"
        rebound = await live.http.post(
            "/v1/chat/completions", json=chat_body(), headers={"host": "evil.example"}
        )
        assert rebound.status_code == 403 and rebound.json()["error"]["param"] == "host"
        for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}, own):
            assert (
                await live.http.post("/v1/chat/completions", content=body, headers=headers)
            ).status_code == 200
        form = await live.http.post(
            "/v1/media/preview", files={"file": b"no picture"}, headers={"origin": live.url}
        )
        assert form.status_code == 400 and form.json()["error"]["param"] == "file"  # it was read


async def test_with_a_key_the_origin_only_decides_cors(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script, api_keys=["secret"], cors_origins=["https://chat.example"]) as live:
        webview = {"origin": "vscode-webview://0abc", "host": "k3.example"}
        keyed = {"authorization": "Bearer secret"}
        reply = await live.http.post("/v1/chat/completions", json=chat_body(), headers={**webview, **keyed})
        assert reply.status_code == 200 and "access-control-allow-origin" not in reply.headers
        for wrong in ({}, {"authorization": "Bearer wrong"}):
            refused = await live.http.post(
                "/v1/chat/completions", json=chat_body(), headers={**webview, **wrong}
            )
            assert refused.status_code == 403 and "valid API key" in refused.json()["error"]["message"]
        page = {"origin": "https://chat.example"}
        refused = await live.http.post("/v1/chat/completions", json=chat_body(), headers=page)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example"
        assert (await live.http.get("/health", headers={"host": "10.1.2.3"})).status_code == 200


async def test_under_a_path_prefix_behind_a_proxy(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script, root_path="/k3", allow_anonymous=True) as live:
        proxied = {"host": "inner:8000", "x-forwarded-host": "k3.example", "origin": "https://k3.example"}
        for path in ("/v1/chat/completions", "/k3/v1/chat/completions"):
            assert (await live.http.post(path, json=chat_body(), headers=proxied)).status_code == 200
            refused = await live.http.post(
                path, content=b"{}", headers={**proxied, "content-type": "text/plain"}
            )
            assert refused.status_code == 415


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5"])
def test_without_keys_only_this_machine_is_served(address: str) -> None:
    with pytest.raises(StartError, match=r"K3_API_KEYS.*K3_ALLOW_ANONYMOUS"):
        check_exposure(Settings(), address)
    check_exposure(Settings(api_keys=["secret"]), address)
    check_exposure(Settings(allow_anonymous=True), address)
    for loopback in ("127.0.0.1", "::1"):
        check_exposure(Settings(), loopback)
