"""How long a request's grammar takes to build and to compile: `python -m bench.grammar TOKENIZER_DIR`."""

import sys
import time
from typing import Any

import xgrammar

from gateway.xtml import Vocab, from_request, structural_tag
from gateway.xtml import grammar as grammar_module
from gateway.xtml.grammar.schema import compiled

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
        compiled.cache_clear()
        grammar_module._calls.cache_clear()
        grammar_module._answer.cache_clear()
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


def main() -> None:
    vocab = Vocab.load(sys.argv[1])
    tokens = [vocab.token_bytes(i) for i in range(vocab.size)]
    info = xgrammar.TokenizerInfo(
        tokens, xgrammar.VocabType.RAW, vocab_size=vocab.size, stop_token_ids=sorted(vocab.stop_ids)
    )
    measure(vocab, info, "json_object", {"response_format": {"type": "json_object"}})
    for n in (1, 16, 128):
        tools = [tool(i) for i in range(n)]
        measure(vocab, info, f"{n} tools, required", {"tools": tools, "tool_choice": "required"})


if __name__ == "__main__":
    main()
