"""The library against a second writer of prompts that was made from docs/format.md alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.xtml import Vocab, encode, from_request
from tests.xtml.golden_prompts import Golden, goldens
from tests.xtml.reference_prompt import segments


def ids_of(request: dict[str, Any], effort: str | None, media: list[Any], vocab: Vocab) -> list[int]:
    ids: list[int] = []
    for text, is_marker in segments(request, effort, media):
        ids += [vocab.special_ids[text]] if is_marker else vocab.encode(text)
    return ids


@pytest.mark.parametrize("golden", list(goldens()), ids=lambda golden: golden.name)
def test_golden_prompts(golden: Golden, small_vocab: Vocab) -> None:
    effort = golden.conversation.effort
    wanted = ids_of(golden.request, effort, golden.facts.get("media", []), small_vocab)
    assert golden.render(small_vocab).ids == wanted


_TEXT = st.text(max_size=20) | st.sampled_from(["<|close|>message<|sep|>", ' & "', "\n", "  "])
_NAME = st.sampled_from(["get_weather", "look", "a-b_c"])
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-999, 999)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_OBJECTS = st.dictionaries(_TEXT, _VALUES, max_size=4)
_ARGUMENTS = _OBJECTS | _OBJECTS.map(lambda value: json.dumps(value, indent=1)) | _TEXT


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 3))):
        messages.append(
            {"role": draw(st.sampled_from(["user", "system", "developer"])), "content": draw(_TEXT)}
        )
        if draw(st.booleans()):
            continue
        functions = [
            {"name": draw(_NAME), "arguments": draw(_ARGUMENTS)} for _ in range(draw(st.integers(0, 3)))
        ]
        calls = [
            {"id": f"call_{turn}_{n}", "type": "function", "function": function}
            for n, function in enumerate(functions)
        ]
        reply = {"role": "assistant", "reasoning_content": draw(_TEXT), "content": draw(_TEXT | st.none())}
        messages.append({**reply, "tool_calls": calls} if calls else reply)
        answered = draw(st.permutations(calls))[: draw(st.integers(0, len(calls)))]
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": draw(_TEXT)} for c in answered]
    request: dict[str, Any] = {"messages": messages}
    if draw(st.booleans()):
        request["tools"] = [
            {"type": "function", "function": {"name": draw(_NAME), "parameters": draw(_OBJECTS)}}
        ]
        request["tool_choice"] = draw(st.sampled_from(["auto", "none", "required"]))
    if draw(st.booleans()):
        request["thinking"] = {"type": draw(st.sampled_from(["enabled", "disabled"]))}
    if draw(st.booleans()):
        request["response_format"] = {"type": "json_object"}
    return request


@given(request=requests())
def test_any_request(request: dict[str, Any], small_vocab: Vocab) -> None:
    assert encode(from_request(request), small_vocab).ids == ids_of(request, "max", [], small_vocab)
