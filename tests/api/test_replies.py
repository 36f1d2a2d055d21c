"""Whole replies and streams, with a scripted engine: the exact shape is what is tested."""

import asyncio
import json
from collections.abc import Callable

import openai
import pytest

from engine.types import EngineDead, EngineError, EngineRejected, TokenLogprob
from tests.api.conftest import BOTH_WAYS, CALL, END, END_THINK, WEATHER, WITH_CALL, Server, events_of
from tests.scripted import Script

pytestmark = BOTH_WAYS

Ids = Callable[[str], list[int]]


async def test_a_whole_reply_has_reasoning_content_and_usage(server: Server, ids: Ids) -> None:
    text = f"I think{END_THINK}Hello, world{END}"
    async with server(Script(ids(text), n_cached=5)) as live:
        reply = (await live.chat()).json()
    assert reply["id"].startswith("chatcmpl-") and len(reply["id"]) == 9 + 24
    assert reply["object"] == "chat.completion" and reply["model"] == "kimi-k3"
    assert reply["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello, world", "reasoning_content": "I think"},
            "finish_reason": "stop",
        }
    ]
    usage = reply["usage"]
    assert usage["completion_tokens"] == len(ids(text))
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    assert usage["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] == 5
    assert usage["completion_tokens_details"]["reasoning_tokens"] == len(ids("I think"))


async def test_prompt_tokens_are_the_hosted_count_unless_the_engines_is_asked_for(
    server: Server, ids: Ids
) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"))
    async with server(script) as live:
        hosted = (await live.chat()).json()["usage"]["prompt_tokens"]
        n_ids = len(live.engine.requests[0][0].ids)
    async with server(script, prompt_tokens="engine") as live:
        engine = (await live.chat()).json()["usage"]["prompt_tokens"]
    assert (hosted, engine) == (n_ids - 3, n_ids)


@pytest.mark.parametrize("per_step", [1, 3, 1000])
async def test_a_stream_says_the_same_as_the_whole_reply(server: Server, ids: Ids, per_step: int) -> None:
    async with server(Script(ids(WITH_CALL), per_step=per_step)) as live:
        whole = (await live.chat(tools=[WEATHER])).json()["choices"][0]
        stream = await live.client.chat.completions.create(
            model="kimi-k3", messages=[{"role": "user", "content": "x"}], tools=[WEATHER], stream=True
        )
        reasoning = content = name = arguments = ""
        finish = None
        async for chunk in stream:
            delta = chunk.choices[0].delta
            reasoning += getattr(delta, "reasoning_content", None) or ""
            content += delta.content or ""
            for call in delta.tool_calls or ():
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            finish = chunk.choices[0].finish_reason or finish
    message = whole["message"]
    assert (reasoning, content or None) == (message["reasoning_content"], message["content"])
    assert json.loads(arguments) == {"city": "Oslo", "days": 3}
    assert {"name": name, "arguments": arguments} == message["tool_calls"][0]["function"]
    assert finish == whole["finish_reason"] == "tool_calls"


async def test_frames_have_no_nulls_and_one_id(server: Server, ids: Ids) -> None:
    """Field reports A29, A30."""
    async with server(Script(ids(WITH_CALL))) as live:
        body = {"stream": True, "tools": [WEATHER], "stream_options": {"include_usage": True}}
        text = (await live.chat(**body)).text
    *frames, done = events_of(text)
    chunks = [json.loads(frame) for frame in frames]
    assert done == "[DONE]"
    assert len({chunk["id"] for chunk in chunks}) == 1
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert set(choice) - {"usage"} == {"index", "delta", "finish_reason"}
            assert None not in choice["delta"].values()
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert set(calls[0]) == {"index", "id", "type", "function"}
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert all(set(call) == {"index", "function"} for call in calls[1:])
    last_choice, final = chunks[-2], chunks[-1]
    assert last_choice["choices"][0]["delta"] == {}
    assert final["choices"] == []
    assert final["usage"] == last_choice["choices"][0]["usage"]
    assert "cached_tokens" in final["usage"]


async def test_usage_is_sent_in_a_stream_only_when_asked_for(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        text = (await live.chat(stream=True)).text
        each = (
            await live.chat(
                stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}
            )
        ).text
    assert not any("usage" in json.loads(frame) for frame in events_of(text)[:-1])
    assert all("usage" in json.loads(frame) for frame in events_of(each)[:-1])


async def test_a_call_cut_by_length_cannot_be_run(server: Server, ids: Ids) -> None:
    cut = ids(WITH_CALL[: WITH_CALL.index("Oslo") + 4])
    async with server(Script(cut, finish_reason="length")) as live:
        choice = (await live.chat(tools=[WEATHER])).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"] is None
    (cut_call,) = choice["message"]["k3_unparsed"]
    assert cut_call["why"] == "cut_call" and "Oslo" in cut_call["text"]


async def test_thinking_off_gives_no_reasoning(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"Hello{END}"))) as live:
        response = await live.chat(reasoning_effort="none")
        whole = await live.chat()
    assert response.headers["k3-effort"] == "none"
    assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert whole.headers["k3-effort"] == "max"


async def test_reasoning_can_be_named_twice(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"r{END_THINK}c{END}")), reasoning_field="both") as live:
        message = (await live.chat()).json()["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] == "r"


async def test_stop_strings_end_the_content_and_the_engine_request(server: Server, ids: Ids) -> None:
    text = f"STOP in thinking{END_THINK}one STOP two{END}"
    async with server(Script(ids(text))) as live:
        choice = (await live.chat(stop="STOP")).json()["choices"][0]
        assert len(live.engine.aborted) == 1
    assert choice["message"]["content"] == "one "
    assert choice["message"]["reasoning_content"] == "STOP in thinking"
    assert choice["finish_reason"] == "stop"


async def test_n_choices_come_apart_also_in_a_stream(server: Server, ids: Ids) -> None:
    async with server(Script(ids(WITH_CALL))) as live:
        whole = (await live.chat(n=3, tools=[WEATHER])).json()
        text = (await live.chat(n=3, tools=[WEATHER], stream=True)).text
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    call_ids = {c["message"]["tool_calls"][0]["id"] for c in whole["choices"]}
    assert len(call_ids) == 3
    assert whole["usage"]["completion_tokens"] == 3 * len(ids(WITH_CALL))
    finishes = [
        (choice["index"], choice["finish_reason"])
        for frame in events_of(text)[:-1]
        for choice in json.loads(frame)["choices"]
        if choice["finish_reason"]
    ]
    assert sorted(finishes) == [(0, "tool_calls"), (1, "tool_calls"), (2, "tool_calls")]


async def test_logprobs_are_those_of_content_with_our_tokens(server: Server, ids: Ids, vocab) -> None:
    def logprob(token: int) -> TokenLogprob:
        return TokenLogprob(token, -0.5, ((token, -0.5), (0, float("-inf"))))

    async with server(Script(ids(f"think{END_THINK}Hi é{END}"), logprobs=logprob)) as live:
        whole = (await live.chat(logprobs=True, top_logprobs=2)).json()["choices"][0]
        text = (await live.chat(logprobs=True, top_logprobs=2, stream=True)).text
        assert live.engine.requests[0][1].logprobs == 2
    entries = whole["logprobs"]["content"]
    assert b"".join(bytes(e["bytes"]) for e in entries).decode() == "Hi é"
    assert entries[0]["top_logprobs"][1]["logprob"] == -9999.0
    streamed = [
        entry
        for frame in events_of(text)[:-1]
        for choice in json.loads(frame)["choices"]
        for entry in choice.get("logprobs", {}).get("content", ())
    ]
    assert streamed == entries


@pytest.mark.parametrize("per_step", [1, 4, 1000])
@pytest.mark.parametrize(
    ("completion", "stop"),
    [
        pytest.param(f"think{END_THINK}né 😀 STOP more{END}", ["STOP"], id="stop string"),
        pytest.param(f"think{END_THINK}né 😀 STO{END}", ["STOP"], id="half a stop string"),
        pytest.param(f"né 😀{END}", None, id="thinking that was the answer"),
        pytest.param(f"né 😀 STOP more{END}", ["STOP"], id="thinking that was the answer, stopped"),
    ],
)
async def test_logprobs_cover_the_content_and_nothing_else(
    server: Server, ids: Ids, completion: str, stop: list[str] | None, per_step: int
) -> None:
    script = Script(ids(completion), per_step=per_step, logprobs=lambda i: TokenLogprob(i, -0.5, ()))
    async with server(script) as live:
        whole = (await live.chat(logprobs=True, stop=stop)).json()["choices"][0]
        text = (await live.chat(logprobs=True, stop=stop, stream=True)).text
    entries = whole["logprobs"]["content"]
    assert bytes(b for entry in entries for b in entry["bytes"]).decode() == whole["message"]["content"]
    chunks = [json.loads(frame)["choices"][0] for frame in events_of(text)[:-1]]
    assert [e for chunk in chunks for e in chunk.get("logprobs", {}).get("content", ())] == entries


async def test_an_error_before_anything_was_said_is_a_status(server: Server) -> None:
    cases = [(EngineRejected("grammar too large"), 400), (EngineError("x"), 502), (EngineDead("x"), 503)]
    for error, status in cases:
        async with server(Script([1], error=error)) as live:
            for stream in (False, True):
                response = await live.chat(stream=stream)
                assert response.status_code == status
                assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_an_error_in_a_stream_is_a_frame_and_the_end(server: Server, ids: Ids) -> None:
    """Field report G08."""
    script = Script(ids(f"a{END_THINK}b{END}"), error=EngineError("worker lost"), error_after=3)
    async with server(script) as live:
        text = (await live.chat(stream=True)).text
        with pytest.raises(openai.APIError, match="worker lost"):
            async for _ in await live.client.chat.completions.create(
                model="kimi-k3", messages=[{"role": "user", "content": "x"}], stream=True
            ):
                pass
    assert "error" in json.loads(events_of(text)[-1])


async def test_a_reply_with_nothing_in_it_is_no_success(server: Server, ids: Ids) -> None:
    nothing = ids("<|close|>think<|sep|><|open|>response<|sep|>" + END)
    async with server(Script(nothing)) as live:
        response = await live.chat()
        streamed = await live.chat(stream=True)
    assert response.status_code == 502 and response.json()["error"]["code"] == "empty_reply"
    assert "empty_reply" in events_of(streamed.text)[-1]


PARTIAL = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4", "partial": True}]


@pytest.mark.parametrize(
    ("completion", "fields", "reason"),
    [
        pytest.param("no", {"reasoning_effort": "none", "stop": ["no"]}, "stop", id="stop string"),
        pytest.param(END_THINK, {"max_tokens": 3}, "length", id="length"),
        pytest.param(END, {"messages": PARTIAL}, "stop", id="finished partial message"),
    ],
)
async def test_an_empty_reply_that_the_request_accounts_for_is_a_success(
    server: Server, ids: Ids, completion: str, fields: dict, reason: str
) -> None:
    async with server(Script(ids(completion))) as live:
        response = await live.chat(**fields)
        streamed = events_of((await live.chat(stream=True, **fields)).text)
    (choice,) = response.json()["choices"]
    assert not choice["message"]["content"] and choice["finish_reason"] == reason
    assert json.loads(streamed[-2])["choices"][0]["finish_reason"] == reason
    assert streamed[-1] == "[DONE]"


async def test_a_silent_stream_gets_comments(server: Server, ids: Ids) -> None:
    hold = asyncio.Event()
    script = Script(ids(f"a{END_THINK}b{END}"), hold=hold)
    async with server(script, keep_alive_seconds=0.05) as live:
        lines: list[str] = []
        body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "x"}], "stream": True}
        async with live.http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                lines.append(line)
                if line.startswith(":"):
                    hold.set()
    assert lines[-2] == "data: [DONE]" or lines[-1] == "data: [DONE]"


async def test_parallel_calls_can_be_switched_off(server: Server, ids: Ids) -> None:
    two = WITH_CALL.replace(CALL, CALL + CALL.replace('index="1"', 'index="2"'))
    async with server(Script(ids(two))) as live:
        both = (await live.chat(tools=[WEATHER])).json()["choices"][0]
        one = (await live.chat(tools=[WEATHER], parallel_tool_calls=False)).json()["choices"][0]
    assert len(both["message"]["tool_calls"]) == 2
    assert len(one["message"]["tool_calls"]) == 1
    assert one["finish_reason"] == "tool_calls"


async def test_call_ids_are_opaque_or_positional_and_never_repeat(server: Server, ids: Ids) -> None:
    history = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "get_weather_0",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "get_weather_0", "content": "rain"},
    ]
    async with server(Script(ids(WITH_CALL))) as live:
        opaque = (await live.chat(tools=[WEATHER], messages=history)).json()
    async with server(Script(ids(WITH_CALL)), tool_call_ids="positional") as live:
        positional = (await live.chat(tools=[WEATHER], messages=history)).json()
    assert opaque["choices"][0]["message"]["tool_calls"][0]["id"].startswith("call_")
    assert positional["choices"][0]["message"]["tool_calls"][0]["id"] == "get_weather_1"
