"""What grammars cost: `python -m bench.grammar TOKENIZER_DIR [requests|strings]`.

requests: how long a request's grammar takes to build and to compile, up to 1,024 tools.
strings:  the slowest step of the matcher while a JSON string under a length rule is written.
"""

import sys
import time
from typing import Any

import xgrammar

from gateway.xtml import Vocab, from_request, structural_tag
from gateway.xtml.grammar import numbers, rules
from gateway.xtml.grammar import structural_tag as tags

ROUNDS = 3


def tool(number: int) -> dict[str, Any]:
    """A tool with six properties, one to three of them required, as agents' tools have them."""
    properties = {
        f"path_{number % 17}": {"type": "string", "description": "where"},
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100 + number},
        "mode": {"type": "string", "enum": ["fast", "exact", f"custom{number}"]},
        "recursive": {"type": "boolean"},
        "filters": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "value": {"type": ["string", "number"]}},
                "required": ["field"],
            },
        },
    }
    required = list(properties)[: 1 + number % 3]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": f"tool_{number}", "parameters": parameters}}


def measure(vocab: Vocab, info: xgrammar.TokenizerInfo, label: str, body: dict[str, Any]) -> None:
    """Best of ROUNDS with nothing cached, and the second request of the same tools."""
    conversation = from_request({"messages": [{"role": "user", "content": "go"}]} | body)
    first, again, check, compiling = [], [], [], []
    for _ in range(ROUNDS):
        for kept_function in (numbers.range_grammar, numbers.spellings, rules.regex_rules):
            kept_function.cache_clear()
        for function in (tags._calls, tags._answer):
            function.cache.clear()  # type: ignore[attr-defined]
        times = [time.perf_counter()]
        grammar = structural_tag(conversation, vocab)
        times.append(time.perf_counter())
        structural_tag(conversation, vocab)
        times.append(time.perf_counter())
        assert grammar is not None
        xgrammar.Grammar.from_structural_tag(grammar.tag)  # vLLM checks a request so
        times.append(time.perf_counter())
        xgrammar.GrammarCompiler(info, max_threads=8).compile_structural_tag(grammar.tag)
        times.append(time.perf_counter())
        for kept, start, end in zip((first, again, check, compiling), times, times[1:], strict=False):
            kept.append((end - start) * 1000)
    print(
        f"{label:20} tag {len(grammar.tag) / 1000:4.0f} kB  build {min(first):6.1f} ms  "
        f"again {min(again):5.1f} ms  check {min(check):6.1f} ms  compile {min(compiling):6.0f} ms"
    )


def measure_string(vocab: Vocab, info: xgrammar.TokenizerInfo, rule: dict[str, Any]) -> None:
    """Compile time, and the slowest and the usual mask while a string is written token by token."""
    schema = {"type": "object", "properties": {"x": {"type": "string"} | rule}, "required": ["x"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {
        "messages": [{"role": "user", "content": "go"}],
        "response_format": wanted,
        "reasoning_effort": "none",
    }
    grammar = structural_tag(from_request(body), vocab)
    assert grammar is not None
    start = time.perf_counter()
    compiled = xgrammar.GrammarCompiler(info, max_threads=8).compile_structural_tag(grammar.tag)
    compiling = time.perf_counter() - start
    matcher = xgrammar.GrammarMatcher(compiled)
    mask = xgrammar.allocate_token_bitmask(1, vocab.size)
    steps = []
    text = ("It was a quiet evening, and 'nobody' came. " * 4)[: rule.get("maxLength")]
    for token in vocab.encode('{"x":"' + text):
        start = time.perf_counter()
        matcher.fill_next_token_bitmask(mask)
        assert matcher.accept_token(token)
        steps.append(1000 * (time.perf_counter() - start))
    print(
        f"{rule!s:28} compile {1000 * compiling:6.0f} ms  "
        f"step: median {sorted(steps)[len(steps) // 2]:7.1f} ms  "
        f"slowest {max(steps):7.1f} ms  {'; '.join(grammar.loosened)}"
    )


def main() -> None:
    vocab = Vocab.load(sys.argv[1])
    what = sys.argv[2] if len(sys.argv) > 2 else "requests"
    tokens = [vocab.token_bytes(i) for i in range(vocab.size)]
    tokens[vocab.n_ranks :] = [
        b"\xff" + name for name in tokens[vocab.n_ranks :]
    ]  # as the service gives them
    info = xgrammar.TokenizerInfo(
        tokens, xgrammar.VocabType.RAW, vocab_size=vocab.size, stop_token_ids=sorted(vocab.stop_ids)
    )
    if what == "strings":
        for most in (32, 64, 100, 200, 300, 500, 1000, 4000):
            measure_string(vocab, info, {"maxLength": most})
        for rule in (
            {"minLength": 1},
            {"minLength": 500},
            {"pattern": "^.{1,200}$"},
            {"pattern": "^[A-Za-z ,.']+$"},
        ):
            measure_string(vocab, info, rule)
        return
    measure(vocab, info, "json_object", {"response_format": {"type": "json_object"}})
    for n in (1, 16, 128, 1024):
        tools = [tool(i) for i in range(n)]
        measure(vocab, info, f"{n} tools, required", {"tools": tools, "tool_choice": "required"})


if __name__ == "__main__":
    main()
