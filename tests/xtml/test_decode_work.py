"""The work per token is constant in every state of the reader (docs/decisions.md#r7). Counted, not timed.

Two counts together: instructions of the interpreter, and bytes that are allocated at once, since work on a
text that grows (joining, stripping, slicing it) is few instructions, but a copy.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from gateway.xtml import Decoder, Vocab
from tests.xtml.completions import CALL, RC, RO, TC, WEATHER, XC, XO, Spelled, argument, call_opener, to_ids

GW = call_opener("get_weather")
BEFORE = {
    "thinking": [],
    "thinking, after its start": ["r"],
    "after thinking": ["r", TC],
    "after the wrong closer": ["r", RC],
    "response": ["r", TC, RO],
    "response, no opener": ["r", TC, "x"],
    "after the response": ["r", TC, RO, "hi", RC],
    "inside an interrupted response": ["r", TC, RO, "hi", XO, CALL, XC],
    "tools": ["r", TC, XO],
    "call": ["r", TC, XO, GW],
    "call, after an argument": ["r", TC, XO, GW, argument("city", "Oslo")],
    "string": ["r", TC, XO, GW, '<|open|>argument key="city" type="string"<|sep|>'],
    "number": ["r", TC, XO, GW, '<|open|>argument key="days" type="number"<|sep|>'],
    "repeated argument": ["r", TC, XO, GW, argument("city", "Oslo"), '<|open|>argument key="city"<|sep|>'],
    "argument without a key": ["r", TC, XO, GW, "<|open|>argument<|sep|>"],
    "block": ["r", TC, XO, GW, "<|open|>json<|sep|>"],
    "undeclared call": ["r", TC, XO, call_opener("rm_rf"), '<|open|>argument key="a" type="string"<|sep|>'],
    "after the message": ["r", TC, RO, "hi", RC, "<|close|>message<|sep|>"],
    "after the end": ["r", TC, RO, "hi", RC, "<|close|>message<|sep|><|end_of_msg|>"],
    "open marker": ["r", TC, "<|open|>"],
    "close marker": ["r", TC, RO, "<|close|>"],
    "header of a call": ["r", TC, XO, '<|open|>call tool="'],
    "header of an argument": ["r", TC, XO, GW, '<|open|>argument key="'],
}
LONG_STOPS = ["a" * 20_000, " " * 20_000 + "x"]
# Letters, blanks, the beginnings of spelled markers and of stop strings, halves of characters.
TEXTS = ["x", " ", "\n", "<", "<|", "<|close|>think", "a", '"', "é", '{"a":', "=", "{"]

N_EARLY, N_LATE, N_COUNTED = 300, 3_000, 12


class Work:
    """Instructions executed and the most bytes newly held at any moment, while a function runs."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.instructions = 0
        before = sys.gettrace()
        tracemalloc.reset_peak()
        n_bytes = tracemalloc.get_traced_memory()[0]
        sys.settrace(self._enter)
        try:
            run()
        finally:
            sys.settrace(before)
        self.bytes = tracemalloc.get_traced_memory()[1] - n_bytes

    def _enter(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._count

    def _count(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        self.instructions += event == "opcode"
        return self._count


def typical(decoder: Decoder, ids: list[int]) -> tuple[int, int]:
    """Instructions and bytes per token; of several tokens the third largest: lists grow now and then."""
    found = [Work(lambda token=token: decoder.feed([token])) for token in ids]  # type: ignore[misc]
    return sorted(w.instructions for w in found)[-3], sorted(w.bytes for w in found)[-3]


def check(vocab: Vocab, before: list[str], text: str, stop: list[str]) -> None:
    decoder = Decoder(vocab, tools=[WEATHER], stop=stop)
    decoder.feed(to_ids(vocab, *before))
    once = to_ids(vocab, Spelled(text))
    window = (once * N_COUNTED)[:N_COUNTED]
    for _ in range(N_EARLY):
        decoder.feed(once)
    early = typical(decoder, window)
    for _ in range(N_LATE - N_EARLY):
        decoder.feed(once)
    late = typical(decoder, window)
    assert late[0] <= early[0] * 1.2 + 20, (early, late)
    assert late[1] <= early[1] + 600, (early, late)


@pytest.fixture(autouse=True)
def traced() -> Any:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("state", BEFORE)
def test_blanks_cost_the_same_however_many_came_before(small_vocab: Vocab, state: str) -> None:
    check(small_vocab, BEFORE[state], " ", [])


@pytest.mark.parametrize("text", ["a", " ", "ab"])
def test_text_that_may_begin_a_stop_string_is_not_looked_at_again(small_vocab: Vocab, text: str) -> None:
    check(small_vocab, BEFORE["response"], text, LONG_STOPS)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("state", BEFORE)
def test_work_per_token_is_constant(small_vocab: Vocab, state: str, text: str) -> None:
    check(small_vocab, BEFORE[state], text, [])


def test_the_count_sees_a_text_that_is_copied_or_looked_at_again() -> None:
    """What this file relies on."""
    held = ["x" * 20_000]

    def copies() -> None:
        held[0] += "x"

    def looks() -> None:
        any(char == "y" for char in held[0])

    assert Work(copies).bytes > 10_000
    assert Work(looks).instructions > 10_000
