"""Requests: what is wrong is a 400 that names the field; no field of the SDK's request is forgotten."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from engine.types import EngineInfo
from gateway.schema.chat import ChatRequest
from tests.api.conftest import END, END_THINK, WEATHER, Server, chat_body
from tests.scripted import Script

Ids = Callable[[str], list[int]]
USER = {"role": "user", "content": "hi"}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": "x"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [USER, "x"]}, "messages[1]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"model": 3}, "model"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": 3}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": "many"}, "max_completion_tokens"),
    ({"n": 0}, "n"),
    ({"n": 1.5}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"999999999": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"seed": 2**64}, "seed"),
    ({"tools": "x"}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "1x"}}]}, "tools[0].function.name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes", "tools": [WEATHER]}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "x", "format": "wav"}}, "audio"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=[json.dumps(f)[:60] for f, _ in WRONG])
async def test_a_wrong_field_is_a_400_that_names_it(server: Server, fields: dict, param: str) -> None:
    async with server(Script([1])) as live:
        for stream in (False, True):
            if "stream" in param and stream:
                continue  # this case is about streaming itself
            response = await live.chat(**({"stream": True} if stream else {}), **fields)
            error = response.json()["error"]
            assert response.status_code == 400, error
            assert error["type"] == "invalid_request_error"
            assert (error["param"] or "").startswith(param), error
            assert error["message"]
        assert not live.engine.requests


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"nul", b'"x"', b"\xff\xfe", b"{}"])
async def test_a_body_that_is_no_chat_request_is_a_400(server: Server, body: bytes) -> None:
    async with server(Script([1])) as live:
        response = await live.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("where", ["model", "logit_bias", "role", "type", "url", "tool_choice", "unknown"])
async def test_what_is_quoted_of_a_request_is_short(server: Server, where: str) -> None:
    """Base64 that landed in the wrong field comes back neither in an error nor in a header."""
    long = "QUJD" * 5000
    part = {"type": "image_url", "image_url": {"url": long}}
    fields: dict[str, dict[str, Any]] = {
        "model": {"model": long},
        "logit_bias": {"logit_bias": {long: 1}},
        "role": {"messages": [{"role": long, "content": "x"}]},
        "type": {"messages": [{"role": "user", "content": [{"type": long}]}]},
        "url": {"messages": [{"role": "user", "content": [part]}]},
        "tool_choice": {"tool_choice": {"type": "function", "function": {"name": long}}, "tools": [WEATHER]},
        "unknown": {long: 1},
    }
    async with server(Script([1])) as live:
        response = await live.chat(**fields[where])
    assert len(response.text) < 1000
    assert all(len(value) <= 1000 for value in response.headers.values())


async def test_an_unknown_model_is_a_404(server: Server) -> None:
    async with server(Script([1])) as live:
        response = await live.chat(model="gpt-99")
        one = await live.http.get("/v1/models/gpt-99")
    assert response.status_code == one.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_a_body_over_the_limit_is_a_413_announced_or_not(server: Server) -> None:
    async def chunks():
        for _ in range(64):
            yield b" " * 1024

    async with server(Script([1]), max_body_bytes=4096) as live:
        announced = await live.http.post("/v1/chat/completions", content=b" " * 8192)
        streamed = await live.http.post("/v1/chat/completions", content=chunks())
    assert announced.status_code == streamed.status_code == 413
    assert streamed.json()["error"]["code"] == "request_too_large"


async def test_a_prompt_longer_than_the_context_is_a_400_with_numbers(server: Server) -> None:
    info = EngineInfo("scripted", "scripted", "scripted", max_model_len=64)
    async with server(Script([1]), info=info) as live:
        response = await live.chat()
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded"
    numbers = re.match(
        r"This model's maximum context length is 64 tokens\. However, your messages resulted in (\d+) "
        r"tokens\. Please reduce the length of the messages\.",
        error["message"],
    )
    assert numbers and int(numbers[1]) >= 64 and error["param"] == "messages"


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,AAAA",
        "data:image/png;base64,@@@",
        "data:,",
        "file:///etc/passwd",
        "http://127.0.0.1:9/x.png",
        "ftp://example.com/x.png",
        "nonsense",
        "",
    ],
)
async def test_a_picture_that_cannot_be_had_is_a_400_that_names_its_place(server: Server, url: str) -> None:
    content = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with server(Script([1])) as live:
        response = await live.chat(messages=[{"role": "user", "content": content}])
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error["param"].startswith("messages[0].content[1]")
    assert str(Path.home()) not in error["message"] and "0x" not in error["message"]


async def test_budget_sampling_and_seed_reach_the_engine(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        await live.chat(max_tokens=7, max_completion_tokens=9, temperature=0, top_p=0.5, seed=3, user="u")
        await live.chat()
        await live.chat(tools=[WEATHER])
        first, default, with_tools = (sampling for _, sampling in live.engine.requests)
        room = live.engine.info.max_model_len - len(live.engine.requests[1][0].ids)
    assert (first.max_tokens, first.temperature, first.top_p, first.seed) == (9, 0.0, 0.5, 3)
    assert (default.max_tokens, default.temperature, default.top_p) == (room, 1.0, 0.95)
    assert with_tools.top_p == 1.0


async def test_sampling_policies(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script, sampling_policy="clamp") as live:
        await live.chat(temperature=0.3, top_p=0.2, presence_penalty=1)
        sampling = live.engine.requests[0][1]
        assert (sampling.temperature, sampling.top_p, sampling.presence_penalty) == (1.0, 0.95, 0.0)
    async with server(script, sampling_policy="strict") as live:
        good = {"temperature": 1, "top_p": 0.95, "presence_penalty": 0, "frequency_penalty": 0, "n": 1}
        for temperature in (0, 0.6, 1, None):
            for stream in (False, True):
                answer = await live.chat(**{**good, "temperature": temperature, "stream": stream})
                assert answer.status_code == 200
        refused = [("temperature", 1.1), ("temperature", 2), ("temperature", -0.1), ("temperature", 0.7)]
        refused += [("top_p", 0.8), ("presence_penalty", 0.5), ("frequency_penalty", 0.5), ("n", 2)]
        for name, value in refused:
            for stream in (False, True):
                response = await live.chat(**{name: value, "stream": stream})
                assert response.status_code == 400 and response.json()["error"]["param"] == name


async def test_what_speculative_decoding_cannot_do_is_said(server: Server) -> None:
    info = EngineInfo("s", "s", "s", max_model_len=4096, speculative=True)
    async with server(Script([1]), info=info) as live:
        response = await live.chat(logit_bias={"5": 1})
    assert response.status_code == 400 and response.json()["error"]["param"] == "logit_bias"


async def test_fields_without_effect_are_named_in_a_header(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script) as live:
        inner = {"messages": [{**USER, "mood": "good", "refusal": "no"}], "web_search_options": {}}
        response = await live.chat(store=False, metadata={"a": "b"}, frobnicate=1, **inner)
        assert response.headers["k3-ignored"] == (
            "metadata, store, web_search_options, messages[0].refusal, frobnicate, messages[0].mood"
        )
        options = {"stream": True, "stream_options": {"include_usage": True, "x": 1}}
        assert (await live.chat(**options)).headers["k3-ignored"] == "stream_options.x"
    async with server(script, unknown_fields="refuse") as live:
        response = await live.chat(frobnicate=1)
    assert response.status_code == 400 and response.json()["error"]["param"] == "frobnicate"


async def test_odd_histories_are_named_in_a_header_or_refused(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    open_call = {"messages": [USER, {"role": "assistant", "tool_calls": [call]}, USER]}
    orphan = {"messages": [USER, {"role": "tool", "tool_call_id": "c9", "content": "r"}]}
    async with server(script) as live:
        accepted = await live.chat(**open_call)
        assert accepted.status_code == 200
        assert accepted.headers["k3-history"] == (
            "messages[1].tool_calls[0]: a call without its result (f (c1))"
        )
        refused = await live.chat(**orphan)
        assert refused.status_code == 400 and "c9" in refused.json()["error"]["message"]
        assert refused.json()["error"]["param"] == "messages[1].tool_call_id"
    async with server(script, strict_history=True) as live:
        refused = await live.chat(**open_call)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "messages[1].tool_calls[0]"


async def test_tools_that_a_hosted_service_runs_are_left_out_or_refused(server: Server, ids: Ids) -> None:
    search = {"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]}
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script) as live:
        plain, searching = await live.chat(), await live.chat(**search)
        assert searching.headers["k3-ignored"] == "tools[0] ($web_search)"
        assert plain.json()["usage"]["prompt_tokens"] == searching.json()["usage"]["prompt_tokens"]
    async with server(script, hosted_tools="refuse") as live:
        for fields, param in ((search, "tools[0].type"), ({"web_search_options": {}}, "web_search_options")):
            refused = await live.chat(**fields)
            assert refused.status_code == 400 and refused.json()["error"]["param"] == param


@pytest.mark.parametrize("name", ["城市", "😀", "a\nb", "a\r\nx-forged: 1", "\0", "\u2028"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_header_may_quote_any_property_name(
    server: Server, ids: Ids, name: str, stream: bool
) -> None:
    schema = {"type": "object", "properties": {name: {"type": "array", "uniqueItems": True}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    async with server(Script(ids(f"a{END_THINK}{{}}{END}"))) as live:
        response = await live.chat(response_format=wanted, stream=stream)
    assert response.status_code == 200
    assert "uniqueItems not enforced" in response.headers["k3-grammar-loosened"]
    assert "x-forged" not in response.headers


async def test_a_defect_of_the_server_is_an_error_body_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("gateway.api.chat.ChatReplies", broken)
    async with server(Script([1])) as live:
        response = await live.chat()
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "secret" not in response.text


def test_no_field_of_the_sdks_request_is_forgotten() -> None:
    """Each is in our model, hence implemented, refused or without effect, and in docs/reference/api.md."""
    fields = set(CompletionCreateParamsStreaming.__annotations__)
    assert fields <= set(ChatRequest.model_fields)
    documented = (Path(__file__).parents[2] / "docs/reference/api.md").read_text()
    assert not {name for name in ChatRequest.model_fields if f"`{name}`" not in documented}


async def test_keys_are_asked_for_where_they_are_set(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}")), api_keys=["s3cret"]) as live:
        assert (await live.chat()).status_code == 401
        for path in ("/v1/models", "/v1/models/kimi-k3"):
            assert (await live.http.get(path)).status_code == 401
        assert (await live.http.get("/health")).status_code == 200
        live.http.headers["authorization"] = "Bearer s3cret"
        assert (await live.chat()).status_code == 200


async def test_more_requests_than_places_are_a_429(server: Server, ids: Ids) -> None:
    import asyncio

    hold = asyncio.Event()
    script = Script(ids(f"a{END_THINK}b{END}"), hold=hold)
    async with server(script, max_concurrent_requests=1, keep_alive_seconds=0.05) as live:
        first = asyncio.create_task(live.chat())
        while not live.engine.running:
            await asyncio.sleep(0)
        second = await live.chat()
        hold.set()
        assert (await first).status_code == 200
        assert second.status_code == 429 and second.headers["retry-after"]
        for _ in range(3):  # a stream gives its place back too
            assert (await live.chat(stream=True)).status_code == 200
        assert live.service.admission.running == 0


async def test_estimated_tokens_equal_later_prompt_tokens(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        for fields in ({}, {"tools": [WEATHER]}, {"reasoning_effort": "none"}):
            estimate = await live.http.post("/v1/tokenizers/estimate-token-count", json=chat_body(**fields))
            reply = await live.chat(**fields)
            assert estimate.json()["data"]["total_tokens"] == reply.json()["usage"]["prompt_tokens"]


async def test_models_are_listed(server: Server) -> None:
    async with server(Script([1]), served_model_name=["kimi-k3", "moonshotai/Kimi-K3"]) as live:
        names = [model.id async for model in await live.client.models.list()]
        slashed = await live.client.models.retrieve("moonshotai/Kimi-K3")
    assert names == ["kimi-k3", "moonshotai/Kimi-K3"] and slashed.id == "moonshotai/Kimi-K3"


async def test_unknown_paths_and_methods_have_openai_error_bodies(server: Server) -> None:
    async with server(Script([1])) as live:
        missing = await live.http.get("/v1/nothing")
        method = await live.http.get("/v1/chat/completions")
    assert (missing.status_code, method.status_code) == (404, 405)
    assert missing.json()["error"]["message"] and method.json()["error"]["message"]


async def test_a_compressed_body_is_refused_in_plain_words(server: Server, ids: Ids) -> None:
    body = gzip.compress(json.dumps(chat_body()).encode())
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        for encodings in (["gzip"], ["identity", "gzip"]):
            refused = await live.http.post(
                "/v1/chat/completions",
                content=body,
                headers=[("content-encoding", encoding) for encoding in encodings],
            )
            assert refused.status_code == 415 and "uncompressed" in refused.json()["error"]["message"]
            assert refused.headers["accept-encoding"] == "identity"
        plain = {"content-encoding": "identity"}
        assert (
            await live.http.post("/v1/chat/completions", json=chat_body(), headers=plain)
        ).status_code == 200


async def test_browsers_are_let_in_from_the_origins_of_the_setting(server: Server, ids: Ids) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    page = {"origin": "https://chat.example"}
    asked = {**page, "access-control-request-method": "POST"}
    asked["access-control-request-headers"] = "authorization,content-type"
    async with server(script, cors_origins=["https://chat.example"], api_keys=["secret"]) as live:
        preflight = await live.http.options("/v1/chat/completions", headers=asked)
        assert preflight.status_code == 200
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        for stream in (False, True):
            reply = await live.http.post(
                "/v1/chat/completions",
                json=chat_body(stream=stream),
                headers={**page, "authorization": "Bearer secret"},
            )
            assert reply.status_code == 200
            assert reply.headers["access-control-allow-origin"] == "https://chat.example"
            assert "k3-prefix" in reply.headers["access-control-expose-headers"]
        other = await live.http.options(
            "/v1/chat/completions", headers={**asked, "origin": "https://b.example"}
        )
        assert other.status_code == 400
    async with server(script) as live:
        reply = await live.http.post("/v1/chat/completions", json=chat_body(), headers=page)
        assert "access-control-allow-origin" not in reply.headers


async def test_a_page_may_read_why_the_server_failed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.api.chat.ChatReplies", broken)
    page = {"origin": "https://chat.example"}
    async with server(Script([1]), cors_origins=["https://chat.example"]) as live:
        reply = await live.http.post("/v1/chat/completions", json=chat_body(), headers=page)
    assert reply.status_code == 500 and reply.json()["error"]["type"] == "server_error"
    assert reply.headers["access-control-allow-origin"] == "https://chat.example"
