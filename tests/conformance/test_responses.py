"""`POST /v1/responses` against the openai SDK's types, streamed and whole; a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from openai.types.responses import Response

from engine.types import EngineError, TokenLogprob
from tests.api.conftest import END, END_THINK, Server
from tests.conformance.frames import stream_of
from tests.conformance.responses_cases import CASES, CREW, EVENTS, WEATHER, Case, call_of
from tests.conformance.responses_reader import ResponsesReader
from tests.conformance.strict import problems
from tests.scripted import Script

Ids = Callable[[str], list[int]]
ASK: dict[str, Any] = {"model": "kimi-k3", "input": "Weather in Oslo?"}


def body(**fields: Any) -> dict[str, Any]:
    return {**ASK, **fields}


def probable(token_id: int) -> TokenLogprob:
    return TokenLogprob(token_id, -0.5, ((token_id, -0.5), (1, -1.5)))


def test_the_cases_cover_every_event() -> None:
    parts = {
        "response.content_part",
        "response.output_item",
        "response.reasoning_summary_part",
    }
    texts = {
        "response.custom_tool_call_input",
        "response.function_call_arguments",
        "response.output_text",
        "response.reasoning_summary_text",
        "response.reasoning_text",
    }
    expected = {f"{part}.{end}" for part in parts for end in ("added", "done")}
    expected |= {f"{text}.{end}" for text in texts for end in ("delta", "done")}
    expected |= {f"response.{name}" for name in ("created", "in_progress", "completed", "incomplete")}
    assert expected == EVENTS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_streamed_and_whole(server: Server, ids: Ids, case: Case) -> None:
    """The stream is in order and adds up to its last event; the whole reply is the same but for its ids."""
    async with server(Script(ids(case.script), per_step=2, logprobs=probable)) as live:
        streamed = await live.http.post("/v1/responses", json=body(stream=True, **case.ask))
        whole = await live.http.post("/v1/responses", json=body(**case.ask))
    reader = ResponsesReader(stream_of(streamed))
    assert not reader.wrong, "\n".join(reader.wrong)
    assert reader.seen == case.all_events
    assert whole.status_code == 200, whole.text
    reply = whole.json()
    assert problems(Response, reply) == []
    Response.model_validate(reply, strict=True)
    assert [item["type"] for item in reply["output"]] == case.items
    assert reply["status"] == case.status
    reason = {"reason": "max_output_tokens"} if case.status == "incomplete" else None
    assert reply["incomplete_details"] == reason
    assert reader.final is not None and unnamed(reader.final) == unnamed(reply)
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    for key, value in case.ask.items():
        if key in ("max_output_tokens", "parallel_tool_calls", "store", "top_logprobs"):
            assert reply[key] == value


def unnamed(response: dict[str, Any]) -> dict[str, Any]:
    """A response without what differs from one request to the next."""
    output = [
        {key: value for key, value in item.items() if key not in ("id", "call_id", "encrypted_content")}
        for item in response["output"]
    ]
    changing = ("id", "created_at", "completed_at", "usage")
    return {key: value for key, value in response.items() if key not in changing} | {"output": output}


async def test_ids_have_their_prefixes_and_are_unique(server: Server, ids: Ids) -> None:
    case = next(case for case in CASES if case.name == "two calls")
    async with server(Script(ids(case.script))) as live:
        replies = [(await live.http.post("/v1/responses", json=body(**case.ask))).json() for _ in range(2)]
    assert all(reply["id"].startswith("resp_") for reply in replies)
    items = [item for reply in replies for item in reply["output"]]
    prefixes = {"reasoning": "rs_", "function_call": "fc_", "message": "msg_"}
    assert all(item["id"].startswith(prefixes[item["type"]]) for item in items)
    assert len({item["id"] for item in items}) == len(items)
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert len(set(calls)) == len(calls)


async def test_a_namespace_comes_back_on_the_call(server: Server, ids: Ids, vocab: Any) -> None:
    """The model sees one unique name; the item carries the name and its namespace."""
    seen: list[str] = []

    def answer(prompt: Any, sampling: Any) -> Script:
        del sampling
        seen.append(vocab.decode(prompt.ids))
        name = seen[-1].split('"name":"')[1].split('"')[0]
        return Script(ids(call_of(name, "what", "where")))

    async with server(answer) as live:
        reply = (await live.http.post("/v1/responses", json=body(tools=[CREW]))).json()
    assert problems(Response, reply) == []
    call = reply["output"][-1]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "crew", "ask")


async def test_an_engine_error_ends_the_stream_with_failed(server: Server, ids: Ids) -> None:
    script = Script(ids(f"why{END_THINK}answer{END}"), error=EngineError("broken"), error_after=4)
    async with server(script) as live:
        streamed = await live.http.post("/v1/responses", json=body(stream=True))
        whole = await live.http.post("/v1/responses", json=body())
    reader = ResponsesReader(stream_of(streamed))
    assert not reader.wrong, "\n".join(reader.wrong)
    assert reader.seen[-1] == "response.failed" and reader.final is not None
    assert reader.final["error"]["code"] == "server_error" and reader.final["error"]["message"]
    assert whole.status_code >= 500 and whole.json()["error"]["message"]


BAD: list[tuple[str, dict[str, Any], int, str | None, str | None]] = [
    ("input of another type", {"input": 3}, 400, None, "input"),
    ("no input", {"input": None}, 400, None, "input"),
    ("another model", {"model": "other"}, 404, "model_not_found", "model"),
    ("an unknown response", {"previous_response_id": "resp_gone"}, 404, None, "previous_response_id"),
    ("background", {"background": True}, 400, None, "background"),
    ("a conversation", {"conversation": "conv_1"}, 400, None, "conversation"),
    ("a prompt template", {"prompt": {"id": "pmpt_1"}}, 400, None, "prompt"),
    ("a negative budget", {"max_output_tokens": -1}, 400, None, "max_output_tokens"),
    (
        "a hosted tool demanded",
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        400,
        None,
        "tool_choice",
    ),
    (
        "a tool that is not declared",
        {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}},
        400,
        None,
        "tool_choice",
    ),
    ("too long", {"input": "word " * 40_000}, 400, "context_length_exceeded", None),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "fields", "status", "code", "param"), BAD, ids=[row[0] for row in BAD])
async def test_a_refusal_names_its_field(
    server: Server,
    name: str,
    fields: dict[str, Any],
    status: int,
    code: str | None,
    param: str | None,
    stream: bool,
) -> None:
    del name
    async with server(Script([1])) as live:
        answer = await live.http.post("/v1/responses", json=body(stream=stream, **fields))
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"} and error["message"]
    if code is not None:
        assert error["code"] == code
    if param is not None:
        assert error["param"].startswith(param)
