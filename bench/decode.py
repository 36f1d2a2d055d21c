"""CPU time per token of reading a streamed completion: this decoder against vLLM 0.32's K3 parser.

    python -m bench.decode [TOKENIZER_DIR]

One id a step, from ids to deltas, detokenisation counted on both sides. For vLLM the faster of its two
detokenisers is used (the `tokenizers` library's DecodeStream), then `KimiK3Parser.parse_delta`, as its
chat endpoint does. Figures are means over a completion, the best of five rounds that alternate between
the two. vLLM's cost grows with the length, so it is sampled: at the middles of eight equal parts of the
completion, 48 steps each, after feeding what comes before in one step.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from gateway.xtml import Decoder, Vocab, fold

LENGTHS = (2_000, 8_000, 32_000)
KINDS = ("argument", "content", "thinking")
ROUNDS = 5
N_SAMPLES, N_STEPS = 8, 48
TOOL = {
    "type": "function",
    "function": {
        "name": "write_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
            "required": ["path", "text"],
        },
    },
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else tokenizer_folder()
    vocab = Vocab.load(folder)
    theirs = VllmSide(vocab)
    Decoder(vocab)  # the token table is made once a process
    for kind in KINDS:
        check_agreement(vocab, theirs, kind)
    print(f"CPU microseconds per token, best of {ROUNDS} rounds; tokenizer {folder.name}")
    print(f"{'text':10}{'tokens':>8}{'ours':>9}{'vLLM 0.32':>12}{'ratio':>8}")
    for kind in KINDS:
        ours_at: dict[int, float] = {}
        for length in LENGTHS:
            head, body = completion(vocab, kind, length)
            ours, other = float("inf"), float("inf")
            for _ in range(ROUNDS):
                ours = min(ours, our_cost(vocab, head, body))
                other = min(other, theirs.cost(head, body))
            ours_at[length] = ours
            print(f"{kind:10}{length:>8}{ours:>9.2f}{other:>12.1f}{other / ours:>8.0f}", flush=True)
        growth = ours_at[LENGTHS[-1]] / ours_at[LENGTHS[0]]
        print(f"{'':10}ours at {LENGTHS[-1]} tokens: {growth:.2f} x the cost at {LENGTHS[0]}")


def tokenizer_folder() -> Path:
    """The real rank file if it is at hand ($K3_SHARED or ../shared), else the mini checkpoint's."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    real = Path(os.environ.get("K3_SHARED", beside)) / "tokenizer"
    if real.exists():
        return real
    from engine.mini.build import checkpoint_dir

    return checkpoint_dir()


def completion(vocab: Vocab, kind: str, length: int) -> tuple[list[int], list[int]]:
    """Ids that lead into a channel, and `length` ids of text in it (Python source, as agents write it)."""
    text = list(islice(cycle(vocab.encode(inspect.getsource(argparse))), length))
    if kind == "thinking":
        return [], text
    head = marked(vocab, "I shall write it.", ("close", "think"), ("open", "response"))
    if kind == "argument":
        head += marked(
            vocab,
            ("close", "response"),
            ("open", "tools"),
            ("open", 'call tool="write_file" index="1"'),
            ("open", 'argument key="text" type="string"'),
        )
    return head, text


def marked(vocab: Vocab, *parts: str | tuple[str, str]) -> list[int]:
    ids: list[int] = []
    for part in parts:
        if isinstance(part, str):
            ids += vocab.encode(part)
        else:
            ids += [getattr(vocab, part[0]), *vocab.encode(part[1]), vocab.sep]
    return ids


def check_agreement(vocab: Vocab, theirs: VllmSide, kind: str) -> None:
    """Both sides must read a short completion alike, or comparing their cost means nothing."""
    head, body = completion(vocab, kind, 300)
    tail = {
        "argument": [("close", "argument"), ("close", "call"), ("close", "tools"), ("close", "message")],
        "content": [("close", "response"), ("close", "message")],
        "thinking": [("close", "think"), ("open", "response")],
    }
    ids = [*head, *body, *marked(vocab, *tail[kind])]
    decoder = Decoder(vocab, tools=[TOOL])
    reply = fold([event for token in ids for event in decoder.feed([token])])
    ours = reply.reasoning, reply.content, [json.loads(call.arguments) for call in reply.tool_calls]
    if ours != theirs.reply(ids):
        raise RuntimeError(f"the two sides do not read the {kind} completion alike")


def timed(step: Callable[[int], Any], ids: list[int]) -> float:
    """CPU seconds of stepping through `ids`."""
    started = time.process_time()
    for token in ids:
        step(token)
    return time.process_time() - started


def our_cost(vocab: Vocab, head: list[int], body: list[int]) -> float:
    decoder = Decoder(vocab, tools=[TOOL])
    decoder.feed(head)
    return timed(lambda token: decoder.feed([token]), body) / len(body) * 1e6


class VllmSide:
    """vLLM's incremental detokeniser and K3 parser over our vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.parser.parser_manager import ParserManager

        self._vocab = vocab
        self._tokenizer = ParserTokenizer(vocab)
        self._backend = detokenizer_backend(vocab)
        self._parser = ParserManager.get_parser(
            tool_parser_name="kimi_k3", reasoning_parser_name="kimi_k3", enable_auto_tools=True
        )
        self._request = ChatCompletionRequest.model_validate(
            {"model": "k3", "messages": [{"role": "user", "content": "x"}], "tools": [TOOL], "stream": True}
        )
        self._prompt = marked(vocab, ("open", "think"))

    def cost(self, head: list[int], body: list[int]) -> float:
        part = len(body) // N_SAMPLES
        middles = [part * i + part // 2 for i in range(N_SAMPLES)]
        seconds = sum(self._steps(head, body[: middle + N_STEPS]) for middle in middles)
        return seconds / (N_SAMPLES * N_STEPS) * 1e6

    def reply(self, ids: list[int]) -> tuple[str, str, list[Any]]:
        """Reasoning, content and calls' arguments of a completion, streamed id by id."""
        step = self._stepper()
        deltas = [delta for token in ids if (delta := step([token])) is not None]
        calls = [call.function.arguments for delta in deltas for call in delta.tool_calls]
        return (
            "".join(delta.reasoning or "" for delta in deltas),
            "".join(delta.content or "" for delta in deltas),
            [json.loads(arguments) for arguments in calls],
        )

    def _steps(self, head: list[int], body: list[int]) -> float:
        """CPU seconds of the last N_STEPS ids of `body`."""
        step = self._stepper()
        # The head in single ids, since the parser cannot cross from one channel to the next in one step.
        for token in head:
            step([token])
        step(body[:-N_STEPS])
        return timed(lambda token: step([token]), body[-N_STEPS:])

    def _stepper(self) -> Callable[[list[int]], Any]:
        """A new completion: a function from the ids of a step to vLLM's delta message, or None."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

        params = SamplingParams(skip_special_tokens=False, spaces_between_special_tokens=False)
        request: Any = _EngineRequest("0", params, self._prompt)
        detokenizer = FastIncrementalDetokenizer(self._backend, request)
        parser = self._parser(self._tokenizer, self._request.tools)

        def step(ids: list[int]) -> Any:
            detokenizer.update(ids, False)
            text = detokenizer.get_next_output_text(False, True)
            return parser.parse_delta(text, ids, self._request, self._prompt, finished=False)

        return step


class _EngineRequest:
    """What the detokeniser reads of an EngineCoreRequest."""

    def __init__(self, request_id: str, params: Any, prompt: list[int]) -> None:
        self.request_id = request_id
        self.sampling_params = params
        self.prompt_token_ids = prompt
        self.prompt_embeds = None


class ParserTokenizer:
    """What vLLM's K3 parsers ask of a tokenizer: ids of marker texts."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(self._pieces(text))

    def get_vocab(self) -> dict[str, int]:
        return dict(self._vocab.special_ids)

    def _pieces(self, text: str) -> Iterator[int]:
        for piece in re.split(r"(<\|\w+\|>)", text):
            special = self._vocab.special_ids.get(piece)
            yield from self._vocab.encode(piece) if special is None else [special]


def detokenizer_backend(vocab: Vocab) -> Any:
    """An object with the `_tokenizer` that the detokeniser reads: ids to byte-level tokens to text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    shown = bytes_to_unicode()
    table = {"".join(shown[b] for b in vocab.token_bytes(i)): i for i in range(vocab.n_ranks)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token=next(iter(table))))
    tokenizer.decoder = decoders.ByteLevel()
    names = [name for name, _ in sorted(vocab.special_ids.items(), key=lambda item: item[1])]
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in names])
    if tokenizer.token_to_id("<|sep|>") != vocab.sep:
        raise RuntimeError("the stand-in tokenizer numbers special tokens otherwise")
    return type("Backend", (), {"_tokenizer": tokenizer})()


if __name__ == "__main__":
    main()
