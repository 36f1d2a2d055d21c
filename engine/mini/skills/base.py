# ruff: noqa: E501  (templates read best on one line)
"""A task (request and wanted answer), and the source of everything random in it.

Held out by construction: a source draws either from the training part of every choice or from the held-out
part. A word, tool name, number pair or picture size belongs to one part by a hash of its text.

Most words are made up from pieces of the vocabulary, fresh each time. A model that is taught a finite list
learns the list; a held-out real word is often one piece, and a piece that stood in no training text cannot be
copied. So every piece occurs in made-up words, and real words are a minority.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.mini.vocabulary import read_ranks
from engine.mini.words import WORDS, syllable_word

T = TypeVar("T")


@dataclass(frozen=True)
class DrawnPicture:
    """Pixels (height, width, 3 or 4) uint8 and what is seen in them, by auxiliary label."""

    pixels: NDArray[np.uint8]
    labels: dict[str, int]


@dataclass(frozen=True)
class DrawnClip:
    """A clip of `n_frames` at `fps`; `frame(i)` gives pixels (height, width, 3), `labels(frames)` of a chunk."""

    n_frames: int
    fps: float
    frame: Callable[[int], NDArray[np.uint8]]
    labels: Callable[[Sequence[int]], dict[str, int]]


@dataclass(frozen=True)
class Task:
    """A request and the one right answer to it.

    body:     OpenAI request without model and effort; media are the URLs `medium:0`, `medium:1`...
    plan, facts, check: the reasoning: `plan` at low effort, `plan facts` at high, all three at max
    calls:    (tool name, arguments in the order written)
    attribute: what of a picture or clip is asked, for scores of their own
    """

    skill: str
    body: dict[str, Any]
    plan: str
    facts: str
    check: str
    content: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    media: tuple[DrawnPicture | DrawnClip, ...] = ()
    attribute: str = ""

    def reasoning(self, effort: str) -> str:
        """The thinking channel's text at low, high or max; empty at none."""
        parts = {"none": (), "low": (self.plan,), "high": (self.plan, self.facts)}
        return " ".join(parts.get(effort, (self.plan, self.facts, self.check)))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Source:
    """Seeded choices from the training part, or with `held_out` from the held-out part.

    The held-out part has about one value in eight of every kind.
    """

    def __init__(self, seed: int | str, held_out: bool = False) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out

    def owns(self, text: str) -> bool:
        """Whether `text` belongs to this source's part."""
        return (zlib.crc32(text.encode()) % 8 == 0) == self.held_out

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Any of the options, from either part: for templates and small closed sets."""
        return self.random.choice(options)

    def own(self, make: Callable[[], str], fallback: bool = True) -> str:
        """Draws until the draw belongs to this part; gives up after 200 where a kind may have no such value."""
        for _ in range(200):
            if self.owns(text := make()):
                return text
        if not fallback:
            raise ValueError("no value of this part")
        return text

    def word(self, *kinds: str) -> str:
        """A known word of one of the kinds of data/words.txt."""
        return self.own(lambda: self.pick(WORDS[self.pick(kinds)]))

    def term(self, *kinds: str) -> str:
        """A word to be copied: now and then a known one, else made up."""
        return self.word(*kinds) if self.chance(_KNOWN) else self.made_up()

    def integer(self, low: int, high: int) -> int:
        return int(self.own(lambda: str(self.random.randint(low, high))))

    def made_up(self, change: Callable[[str], str] = str) -> str:
        """A word nobody has seen; `change` may capitalise it or the like, before its part is decided."""
        return self.own(lambda: change(self._invented()))

    def _invented(self) -> str:
        """Syllables, or one to four pieces of the vocabulary, the first in any case."""
        if self.chance(0.25):
            return syllable_word(self.random)
        n_more = self.random.choices((0, 1, 2, 3), (0.15, 0.45, 0.3, 0.1))[0]
        return self.pick(_PIECES) + "".join(self.pick(_LOWER_PIECES) for _ in range(n_more))

    def code(self) -> str:
        """Something like `kx-482`, `B17` or `7731`."""
        letters, digits = "abcdefghkmnprstuvwxyz", "0123456789"

        def make() -> str:
            shape = self.pick(("ll-ddd", "Ldd", "dddd", "llldd", "dd-dd", "LL-dd", "ddddd"))
            drawn = (
                self.pick(digits)
                if s == "d"
                else self.pick(letters)
                if s == "l"
                else self.pick(letters).upper()
                if s == "L"
                else s
                for s in shape
            )
            return "".join(drawn)

        return self.own(make)

    def date(self) -> str:
        return self.own(
            lambda: (
                f"20{self.random.randint(24, 31)}-{self.random.randint(1, 12):02d}-{self.random.randint(1, 28):02d}"
            )
        )

    def time(self) -> str:
        return self.own(
            lambda: (
                f"{self.random.randint(0, 23):02d}:{self.random.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"
            )
        )

    def email(self) -> str:
        return f"{self.name().lower()}@{self.made_up(str.lower)}.com"

    def name(self) -> str:
        return self.word("name") if self.chance(_KNOWN) else self.made_up(capital)

    def city(self) -> str:
        return self.word("city") if self.chance(_KNOWN) else self.made_up(capital)

    def thing(self) -> str:
        return self.term("noun")

    def value(self) -> str:
        """A short text of any kind."""
        kind = self.random.random()
        if kind < 0.6:
            return self.term("noun", "adjective", "color", "verb", "capital", "function")
        if kind < 0.75:
            return self.code()
        if kind < 0.83:
            return self.name()
        if kind < 0.9:
            return self.city()
        return str(self.integer(2, 999))

    def phrase(self, least: int = 2, most: int = 5) -> str:
        """A few unrelated words."""
        return " ".join(self.value() for _ in range(self.random.randint(least, most)))

    def sentence(self) -> str:
        """Words that read like something a person might write."""
        kind = self.random.random()
        if kind < 0.25:
            return f"the {self.term('adjective')} {self.thing()} {self.pick(('is', 'was', 'will be'))} {self.term('adjective')}"
        if kind < 0.5:
            return f"{self.pick(('meet me at', 'come to', 'call me from', 'wait at'))} the {self.thing()} at {self.time()}"
        if kind < 0.75:
            return f"{self.pick(('I', 'we', 'they'))} {self.pick(WORDS['verb'])} the {self.thing()} {self.pick(('in', 'near', 'from'))} {self.city()}"
        return self.phrase()


_KNOWN = 0.3
"""Share of known words among words to be copied."""
_PIECES = sorted(token.decode() for token in read_ranks() if len(token) > 1 and token.isalpha())
_LOWER_PIECES = [piece for piece in _PIECES if piece.islower()]


def listing(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`"""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
