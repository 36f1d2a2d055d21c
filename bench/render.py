"""Time from validated messages to token ids, for the next turn of a long agent conversation.

Run with `make bench-render`. Cold: nothing was rendered before. Warm: the turns before were, as they are in
an agent's session, so that only the new messages are encoded.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.xtml import Prompt, RenderCache, Vocab, encode, from_request

_CHARS_PER_TOKEN = 3.2  # of this text in K3's vocabulary; only to know when to stop generating
_TEXT = """
    the of request returns value when cache is empty and every block has been written before it can read
    token server client error because this function should not change its state after a commit please look
    failing test which module owns that import so we move parser into separate package timeout retry at
    database migration index query latency throughput memory allocation kernel connection prefix
"""
_WORDS = _TEXT.split()
_SYLLABLES = [c + v + e for c in "bcdfgklmnprstvw" for v in "aeiou" for e in ("", "n", "r", "st")]
_HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子"


class Session:
    """A coding agent's conversation, the same for the same seed: prose, code, logs, JSON and Chinese."""

    def __init__(self, seed: int = 3) -> None:
        self._random = random.Random(seed)
        made_up = [
            "".join(self._random.choices(_SYLLABLES, k=self._random.randint(2, 4))) for _ in range(5000)
        ]
        self._vocabulary = _WORDS * 200 + made_up  # names and rare words: about one in four
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": self._prose(400)}]
        self.n_chars = 0
        self._n_calls = 0
        self.tools = [self._tool(number) for number in range(24)]

    def add_turn(self) -> None:
        """Calls and their results, as an agent's loop sends them; at times an answer and a new question."""
        if self._random.random() < 0.15:
            self._add(role="assistant", content=self._prose(150), reasoning_content=self._prose(200))
            self._add(role="user", content=self._prose(40))
            return
        calls = [self._call() for _ in range(self._random.choice([1, 1, 1, 2]))]
        prose = {"content": self._prose(12), "reasoning_content": self._prose(120)}
        self._add(role="assistant", tool_calls=calls, **prose)
        for call in calls:
            self._add(role="tool", tool_call_id=call["id"], content=self._output())

    def request(self) -> dict[str, Any]:
        return {"messages": self.messages, "tools": self.tools, "reasoning_effort": "high"}

    def _add(self, **message: Any) -> None:
        self.messages.append(message)
        self.n_chars += len(json.dumps(message, ensure_ascii=False))

    def _prose(self, n_words: int) -> str:
        words = self._random.choices(self._vocabulary, k=n_words)
        if self._random.random() < 0.15:
            words.append("".join(self._random.choices(_HAN, k=n_words)))
        return " ".join(words).capitalize() + "."

    def _call(self) -> dict[str, Any]:
        self._n_calls += 1
        arguments = {
            "path": "src/" + "/".join(self._random.choices(self._vocabulary, k=3)) + ".py",
            "limit": self._random.randint(1, 2000),
            "ratio": self._random.random(),
            "content": self._code(self._random.randint(2, 30)),
            "options": {"recursive": True, "globs": ["*.py", "*.md"]},
        }
        name = f"tool_{self._random.randrange(24)}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"id": f"call_{self._n_calls:06}", "type": "function", "function": function}

    def _output(self) -> str:
        n_lines = self._random.randint(5, 50)
        kind = self._random.randrange(3)
        if kind == 0:
            return self._code(n_lines)
        if kind == 1:
            rows = [
                {"id": i, "hash": f"{self._random.getrandbits(64):016x}", "ok": True} for i in range(n_lines)
            ]
            return json.dumps(rows)
        return "\n".join(
            f"2026-11-30 12:{i % 60:02}:07,{self._random.randint(0, 999):03} INFO {self._prose(8)}"
            for i in range(n_lines)
        )

    def _code(self, n_lines: int) -> str:
        lines = []
        for _ in range(n_lines):
            a, b, c, d, e = self._random.choices(self._vocabulary, k=5)
            indent = "    " * self._random.randint(0, 3)
            lines.append(f"{indent}{a}_{b} = {c}({a}[{self._random.randint(0, 99)}], '{d}')  # {e}")
        return "\n".join(lines)

    def _tool(self, number: int) -> dict[str, Any]:
        properties = {word: {"type": "string", "description": self._prose(12)} for word in _WORDS[:6]}
        parameters = {"type": "object", "properties": properties, "required": _WORDS[:2]}
        function = {"name": f"tool_{number}", "description": self._prose(40), "parameters": parameters}
        return {"type": "function", "function": function}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=9, help="the best of these counts")
    arguments = parser.parse_args()

    folder, which = _tokenizer()
    vocab = Vocab.load(folder)
    print(f"vocabulary: {which}, {vocab.size:,} tokens; best of {arguments.rounds} rounds; times in ms")
    print(
        f"{'prompt tokens':>14} {'messages':>9} {'new tokens':>11} {'cold':>9} {'warm':>8} {'cold/warm':>10}"
    )
    for n_tokens in arguments.tokens:
        _measure(vocab, n_tokens, arguments.rounds)


def _measure(vocab: Vocab, n_tokens: int, rounds: int) -> None:
    """Turn N is what fills `n_tokens`; turn N+1 is measured."""
    session = Session()
    while session.n_chars < n_tokens * _CHARS_PER_TOKEN:
        session.add_turn()
    earlier = json.dumps(session.request())
    session.add_turn()
    request = json.dumps(session.request())

    def prompt(cache: RenderCache | None) -> Callable[[dict[str, Any]], Prompt]:
        return lambda body: encode(from_request(body), vocab, cache=cache)

    cold = warm = float("inf")
    for _ in range(rounds):
        # Each request is parsed anew, as a server does: no string is shared with what was rendered before.
        cold_time, cold_prompt = _timed(prompt(RenderCache()), json.loads(request))
        cache = RenderCache()
        before = prompt(cache)(json.loads(earlier))
        warm_time, warm_prompt = _timed(prompt(cache), json.loads(request))
        assert warm_prompt == cold_prompt, "the cache changed the prompt"
        cold, warm = min(cold, cold_time), min(warm, warm_time)
    n_new = len(warm_prompt.ids) - len(before.ids)
    print(
        f"{len(warm_prompt.ids):>14,} {len(session.messages):>9,} {n_new:>11,} "
        f"{cold * 1e3:>9.1f} {warm * 1e3:>8.1f} {cold / warm:>10.1f}",
        flush=True,
    )


def _timed(function: Callable[[dict[str, Any]], Prompt], body: dict[str, Any]) -> tuple[float, Prompt]:
    gc.collect()  # what earlier rounds left is not this prompt's cost
    start = time.perf_counter()
    prompt = function(body)
    return time.perf_counter() - start, prompt


def _tokenizer() -> tuple[Path, str]:
    """K3's own vocabulary where it is at hand, else the mini checkpoint's."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("K3_SHARED", beside)) / "tokenizer"
    if folder.exists():
        return folder, "Kimi K3's"
    from engine.mini.build import checkpoint_dir

    return checkpoint_dir(print), "the mini checkpoint's (Kimi K3's is not under $K3_SHARED or ../shared)"


if __name__ == "__main__":
    main()
