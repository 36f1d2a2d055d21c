"""`/v1/responses` as OpenAI's SDK sees it; a scripted engine says what the tests want."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest

from engine.types import EngineError
from tests.api.conftest import END, END_THINK, WITH_CALL, Server
from tests.scripted import Script

Ids = Callable[[str], list[int]]
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get weather",
    "strict": None,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Apply a patch"}
PATCHED = (
    f"do{END_THINK}<|close|>response<|sep|><|open|>tools<|sep|>"
    '<|open|>call tool="apply_patch" index="1"<|sep|><|open|>argument key="input" type="string"<|sep|>'
    '*** Begin "patch"\n+é<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
    "<|close|>message<|sep|><|end_of_msg|>"
)


async def test_a_whole_response(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"think{END_THINK}hello{END}"), n_cached=3)) as live:
        response = await live.client.responses.create(model="kimi-k3", input="hi")
    assert response.status == "completed" and response.output_text == "hello"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.usage is not None and response.usage.input_tokens_details.cached_tokens == 3


@pytest.mark.parametrize("per_step", [1, 7, 1000])
@pytest.mark.parametrize(("tool", "text"), [(WEATHER, WITH_CALL), (PATCH, PATCHED)])
async def test_a_stream_says_what_the_whole_response_says(
    server: Server, ids: Ids, per_step: int, tool: Any, text: str
) -> None:
    async with server(Script(ids(text), per_step=per_step)) as live:
        whole = await live.client.responses.create(model="kimi-k3", input="hi", tools=[tool])
        seen: list[Any] = []
        stream = await live.client.responses.create(model="kimi-k3", input="hi", tools=[tool], stream=True)
        async for event in stream:
            seen.append(event)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type for event in seen][:2] == ["response.created", "response.in_progress"]
    final = seen[-1].response
    assert seen[-1].type == "response.completed"
    done = [event.item for event in seen if event.type == "response.output_item.done"]
    assert done == final.output
    named = ("type", "name", "arguments", "input", "content", "summary")
    assert [[getattr(i, n, None) for n in named] for i in final.output] == [
        [getattr(i, n, None) for n in named] for i in whole.output
    ]
    if tool is PATCH:
        assert final.output[-1].input == '*** Begin "patch"\n+é'


async def test_a_response_goes_on_from_another(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"think{END_THINK}hello{END}"))) as live:
        first = await live.client.responses.create(model="kimi-k3", input="one")
        await live.client.responses.create(model="kimi-k3", input="two", previous_response_id=first.id)
        before, after = (list(prompt.ids) for prompt, _ in live.engine.requests)
        items = await live.client.responses.input_items.list(first.id)
        again = await live.client.responses.retrieve(first.id)
        await live.client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match="any more"):
            await live.client.responses.create(model="kimi-k3", input="x", previous_response_id=first.id)
    assert after[: len(before)] == before
    assert again.output == first.output and len(items.data) == 1


async def test_the_items_of_a_turn_become_one_message_in_whatever_order(server: Server, ids: Ids) -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}], "content": None}
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]}
    result = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
    prompts = []
    async with server(Script(ids(f"think{END_THINK}hello{END}"))) as live:
        for turn in ([reasoning, call, said], [said, reasoning, call], [reasoning, said, call]):
            items: Any = [{"role": "user", "content": "hi"}, *turn, result]
            await live.client.responses.create(model="kimi-k3", input=items, tools=[WEATHER])
            prompts.append(list(live.engine.requests[-1][0].ids))
    assert prompts[0] == prompts[1] == prompts[2]


async def test_counting_agrees_with_usage(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        ask: dict[str, Any] = {
            "model": "kimi-k3",
            "input": "hi",
            "tools": [WEATHER],
            "instructions": "Be brief.",
        }
        counted = await live.client.responses.input_tokens.count(**ask)
        response = await live.client.responses.create(**ask)
    assert response.usage is not None and counted.input_tokens == response.usage.input_tokens


async def test_a_full_context_has_the_code_that_codex_acts_on(server: Server) -> None:
    async with server(Script([1])) as live:
        with pytest.raises(openai.BadRequestError) as caught:
            await live.client.responses.create(model="kimi-k3", input="word " * 40_000)
    assert caught.value.code == "context_length_exceeded"


async def test_an_engine_that_fails_in_mid_stream_ends_with_response_failed(server: Server, ids: Ids) -> None:
    script = Script(ids(f"think{END_THINK}hello{END}"), error=EngineError("boom"), error_after=3)
    async with server(script) as live:
        stream = await live.client.responses.create(model="kimi-k3", input="hi", stream=True)
        kinds = [event.type async for event in stream]
    assert kinds[-1] == "response.failed"
