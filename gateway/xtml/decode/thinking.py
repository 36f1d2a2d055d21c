"""Markers of the thinking channel that the model spelled in ordinary tokens.

It may begin with its opener once more (docs/decisions.md#a11), and may end with its close spelled out where
nothing but a real marker follows. Anywhere else such text is text.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

Special = Literal["open", "close", "separator", "end", "other"]
Verdict = Literal["text", "opener", "close"]

_OPENER = "<|open|>think<|sep|>"
_CLOSE = "<|close|>think<|sep|>"
_SEPARATOR = "<|sep|>"
_LONGEST_OPENER = 32  # characters, with blanks
_SPELLED_OPENER = re.compile(r"<\|open\|> *think *<\|sep\|>")


class ThinkingText:
    """Holds back reasoning that may turn out to be a spelled marker, and no more than that.

    `at_start`: nothing but what may be an opener has come. `holding`: text must go through `feed`.
    """

    __slots__ = ("_held", "_repairs", "at_start", "holding")

    def __init__(self, repairs: Counter[str]) -> None:
        self._repairs = repairs
        self._held = ""
        self.at_start = self.holding = True

    def feed(self, text: str) -> str:
        """The reasoning that is certain to be none of a marker."""
        text = self._held + text
        if self.at_start:
            spelled = _SPELLED_OPENER.match(text)
            if spelled:
                self._repairs["think_opener_respelled"] += 1
                text = text[spelled.end() :]
            elif _OPENER.startswith(text.replace(" ", "")) and len(text) <= _LONGEST_OPENER:
                self._held = text
                return ""
            self.at_start = False
        n_held = _overlap(text, _CLOSE)
        self._held = text[len(text) - n_held :]
        self.holding = bool(n_held)
        return text[: len(text) - n_held]

    def settle(self, follower: Special) -> tuple[Verdict, str]:
        """A special token (or the end) follows: what the held text was, and reasoning if it was text.

        A separator that follows may be the marker's own.
        """
        held, self._held = self._held, ""
        at_start, self.at_start = self.at_start, False
        self.holding = False
        if follower == "separator":
            held += _SEPARATOR
            if at_start and _SPELLED_OPENER.fullmatch(held):
                self._repairs["think_opener_respelled"] += 1
                return "opener", ""
            if held != _CLOSE:
                return "text", held.removesuffix(_SEPARATOR)
        elif held != _CLOSE or follower == "other":
            return "text", held
        self._repairs["think_close_respelled"] += 1
        return "close", ""


def _overlap(text: str, pattern: str) -> int:
    """Length of the longest suffix of `text` that is a prefix of `pattern`."""
    longest = min(len(text), len(pattern))
    return next((n for n in range(longest, 0, -1) if text.endswith(pattern[:n])), 0)
