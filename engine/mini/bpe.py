"""Learns the mini K3's ranks: byte-pair encoding on units that keep a word's ids the same everywhere.

`python -m engine.mini.bpe` writes data/tiktoken.model. The trained weights belong to the file that is there.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from itertools import pairwise

from engine.mini.config import MiniConfig
from engine.mini.vocabulary import RANKS_FILE, write_ranks
from engine.mini.words import NOTES, WORDS, syllable_word

_UNIT = re.compile(r"[A-Z]*[a-z]+|[A-Z]+|[^\sA-Za-z0-9_\-]+")
"""Letter runs as the K3 regex cuts them, and runs of punctuation; blanks, digits, `_` and `-` stay bytes."""

_JSON_SHAPES = (
    '{"function":{"description":"a","name":"a","parameters":{"properties":{"a":{"type":"a"},'
    '"a":{"items":{"type":"a"},"type":"a"},"a":{"enum":["a","a"],"type":"a"},'
    '"a":{"properties":{"a":{"type":"a"}},"required":["a"],"type":"a"}},"required":["a","a"],'
    '"type":"a"}},"type":"a"}',
    '[{"a":[],"a":{}}]',
    '{"a":"a","a":1,"a":true,"a":["a","a"],"a":[1,2],"a":{"a":1}}',
    '[{"function":{"name":"a"}},{"function":{"name":"a"}}]\n```',
    '{"additionalProperties":false}',
    '{"a": 1, "b": "c", "d": ["e", "f"]} ["a", "b"], ("a"), (a), a: "b". "a"? "a"! a...',
    "`a`. `a`, a=`a` 00:00",
)


def corpus() -> Counter[str]:
    """Unit -> weight. Known words count by kind, made-up ones supply pieces for words never seen."""
    units: Counter[str] = Counter()
    for kind, words in WORDS.items():
        weight = 40 if kind in ("function", "capital", "xtml", "json") else 20
        for word in words:
            for unit in _UNIT.findall(word):
                units[unit] += weight
    for text in (*NOTES, *_JSON_SHAPES):
        for unit in _UNIT.findall(text):
            units[unit] += 40
    source = random.Random("syllables")
    for _ in range(6000):
        units[syllable_word(source)] += 1
    return units


def learn(units: Counter[str], n_ranks: int) -> list[bytes]:
    """The 256 bytes, then merges, most frequent pair first (ties: the pair that sorts first).

    Raises ValueError when the corpus has fewer pairs than `n_ranks` asks for.
    """
    pieces = [[bytes([b]) for b in unit.encode()] for unit in units]
    weights = list(units.values())
    counts: Counter[tuple[bytes, bytes]] = Counter()
    where: defaultdict[tuple[bytes, bytes], set[int]] = defaultdict(set)
    for i, piece in enumerate(pieces):
        for pair in pairwise(piece):
            counts[pair] += weights[i]
            where[pair].add(i)
    tokens = [bytes([b]) for b in range(256)]
    known = set(tokens)
    while len(tokens) < n_ranks:
        if not counts:
            raise ValueError(f"the corpus yields only {len(tokens)} ranks of {n_ranks}")
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merged = best[0] + best[1]
        if merged not in known:
            known.add(merged)
            tokens.append(merged)
        for i in where.pop(best):
            before, piece = pieces[i], _merge(pieces[i], best)
            pieces[i] = piece
            for pair in pairwise(before):
                counts[pair] -= weights[i]
                if counts[pair] <= 0:
                    del counts[pair]
            for pair in pairwise(piece):
                counts[pair] += weights[i]
                where[pair].add(i)
        counts.pop(best, None)
    return tokens


def _merge(piece: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    merged: list[bytes] = []
    for part in piece:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged


if __name__ == "__main__":
    write_ranks(learn(corpus(), MiniConfig().n_ranks), RANKS_FILE)
    print(f"wrote {RANKS_FILE}")
