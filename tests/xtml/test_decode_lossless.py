"""Nothing that the model writes is lost, whatever the order of its elements (docs/decisions.md#r6).

Every piece of text is a word of its own; each must come out exactly once, in reasoning, content, arguments
or what is shown as unparsed.
"""

from __future__ import annotations

import random

import pytest

from gateway.xtml import Vocab
from tests.xtml.completions import AC, CC, MC, RC, RO, TC, TO, WEATHER, XC, XO, Decoded, call_opener, to_ids

ELEMENTS = [
    *[TO, TC, RO, RC, XO, XC, XO, CC, CC, AC, AC, AC, MC],
    *["<|open|>json<|sep|>", "<|close|>json<|sep|>", "<|open|>argument<|sep|>", "<|close|><|sep|>"],
    *['<|open|>message role="user"<|sep|>', '<|open|>message role="assistant"<|sep|>'],
    *["<|open|>nonsense<|sep|>", "<|media_pad|>", "<|open|>", "<|close|>"],
    *["<|open|>think", "<|close|>think", "<|open|>response", "<|close|>response", "<|close|>tools"],
]


class Completion:
    """Elements in any order with words between. No key stands twice in a call: the second is dropped."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.words: list[str] = []
        self.parts: list[str] = []
        for n in range(choose.randrange(1, 24)):
            match choose.randrange(8):
                case 0 | 1 | 2:
                    self._word(choose.choice(["", " ", "\n"]))
                case 3:
                    self.parts.append(call_opener(choose.choice(["get_weather", "get_weather", "rm_rf"])))
                case 4:
                    key = choose.choice(["city", f"k{n}", f"k{n}"])
                    type_ = choose.choice(["string", "number", "object"])
                    if key != "city" or f'"{key}"' not in "".join(self.parts):
                        self.parts.append(f'<|open|>argument key="{key}" type="{type_}"<|sep|>')
                case 5:
                    # A member of a block, whose word must not be lost either.
                    self.parts.append(f'{{"m{n}":"')
                    self._word("")
                    self.parts.append('"}')
                case _:
                    self.parts.append(choose.choice(ELEMENTS))

    def _word(self, blank: str) -> None:
        word = f"w{len(self.words):03}w"
        self.words.append(word)
        self.parts.append(blank + word + blank)


def check(vocab: Vocab, seed: int) -> None:
    completion = Completion(seed)
    ids = to_ids(vocab, *completion.parts)
    for reason in ("stop", "length"):
        got = Decoded(vocab, ids, reason, tools=[WEATHER, {"type": "function", "function": {"name": "x"}}])
        reply = got.reply
        texts = [reply.reasoning, reply.content, *(part.text for part in reply.unparsed)]
        texts += [call.arguments for call in reply.tool_calls]
        shown = "\n".join(texts)
        for word in completion.words:
            assert shown.count(word) == 1, (seed, word, completion.parts, reply)


def test_every_word_comes_out_once(small_vocab: Vocab) -> None:
    for seed in range(800):
        check(small_vocab, seed)


@pytest.mark.slow
def test_every_word_comes_out_once_of_20_000_completions(small_vocab: Vocab) -> None:
    for seed in range(1_000, 21_000):
        check(small_vocab, seed)
