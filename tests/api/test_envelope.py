"""The id of a request, HEAD, the forms of the list of models, `/tokenize` and `/detokenize`."""

from __future__ import annotations

import anthropic
import pytest

from tests.api.conftest import Server, chat_body
from tests.scripted import Script


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere", "/v1/messages/nothing"])
async def test_every_reply_has_an_id(server: Server, path: str) -> None:
    async with server(Script([1])) as live:
        own = await live.http.get(path)
        given = await live.http.get(path, headers={"x-request-id": "my.id-1_"})
        wrong = await live.http.get(path, headers={"x-request-id": "a b"})
        long = await live.http.get(path, headers={"x-request-id": "a" * 129})
    assert given.headers["x-request-id"] == "my.id-1_"
    ids = [reply.headers["x-request-id"] for reply in (own, wrong, long)]
    assert len(set(ids)) == 3 and all(i.startswith("req_") for i in ids)


async def test_a_failure_of_the_server_has_the_id_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.api.chat.ChatReplies", None)
    async with server(Script([1])) as live:
        reply = await live.http.post(
            "/v1/chat/completions", json=chat_body(), headers={"x-request-id": "mine"}
        )
    assert reply.status_code == 500 and reply.headers["x-request-id"] == "mine"


async def test_anthropics_error_body_names_the_id(server: Server) -> None:
    async with server(Script([1])) as live:
        reply = await live.http.post("/v1/messages", json={}, headers={"x-request-id": "mine"})
    assert reply.status_code == 400 and reply.json()["request_id"] == "mine"


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/version", "/metrics", "/v1/models"])
async def test_head_is_get_without_a_body(server: Server, path: str) -> None:
    async with server(Script([1])) as live:
        head = await live.http.head(path)
        get = await live.http.get(path)
    assert head.status_code == get.status_code == 200 and head.content == b"" and get.content


async def test_models_for_moonshots_agents_and_for_anthropics_sdk(server: Server) -> None:
    async with server(Script([1]), served_model_name=["kimi-k3", "k3"]) as live:
        entry = (await live.http.get("/v1/models")).json()["data"][0]
        client = anthropic.AsyncAnthropic(base_url=live.url, api_key="none")
        page = await client.models.list()
        one = await client.models.retrieve("k3")
    assert entry["context_length"] == entry["max_model_len"] == 32_768
    assert all(entry[f"supports_{name}"] for name in ("reasoning", "image_in", "video_in", "thinking_type"))
    assert [model.id for model in page.data] == ["kimi-k3", "k3"] and not page.has_more
    assert one.lifecycle == "active" and one.max_input_tokens == 32_768 and one.created_at.year >= 2026


async def test_tokens_and_back(server: Server) -> None:
    text = "Grüße 🌍 <|close|> and `code`"
    async with server(Script([1])) as live:
        tokens = (await live.http.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
        again = (await live.http.post("/detokenize", json={"tokens": tokens["tokens"]})).json()
        chat = (await live.http.post("/tokenize", json={"messages": chat_body()["messages"]})).json()
        spelled = (await live.http.post("/detokenize", json={"tokens": chat["tokens"]})).json()["prompt"]
        wrong = await live.http.post("/detokenize", json={"tokens": [1, 10**7]})
        neither = await live.http.post("/tokenize", json={})
        special = live.service.renderer.vocab.special_ids["<|close|>"]
    assert again["prompt"] == text and special not in tokens["tokens"]
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
    assert spelled.startswith("<|open|>message") and chat["max_model_len"] == 32_768
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "tokens[1]"
    assert neither.status_code == 400
