"""Stop strings are found wherever the text is cut, and as little as possible is held back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.xtml.decode.stop import StopMatcher

short = st.text("ab<", max_size=12)
stops = st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=4)


def run(matcher: StopMatcher, pieces: list[str]) -> str:
    sent = ""
    for piece in pieces:
        sent += matcher.feed(piece)
        if matcher.hit is not None:
            return sent
    return sent + matcher.flush()


def first_by_end(text: str, strings: list[str]) -> tuple[str, str | None]:
    """The rule, said the slow way."""
    for end in range(1, len(text) + 1):
        ending = [s for s in strings if text[:end].endswith(s)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(text=short, strings=stops, cuts=st.lists(st.integers(0, 12), max_size=5))
def test_any_cut_finds_the_same(text: str, strings: list[str], cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(at)]
    matcher = StopMatcher(strings)
    assert (run(matcher, pieces), matcher.hit) == first_by_end(text, strings)


@given(text=short, strings=stops)
def test_only_a_beginning_of_a_stop_string_is_held_back(text: str, strings: list[str]) -> None:
    matcher = StopMatcher(strings)
    sent = matcher.feed(text)
    if matcher.hit is None:
        held = text.removeprefix(sent)
        assert not held or any(s.startswith(held) for s in strings)
        longest = max((n for s in strings for n in range(len(s)) if text.endswith(s[:n])), default=0)
        assert len(held) == longest


@pytest.mark.parametrize("strings", [[], [""]])
def test_without_strings_all_text_passes(strings: list[str]) -> None:
    assert run(StopMatcher(strings), ["a", "b"]) == "ab"


def test_characters_of_patterns_are_plain() -> None:
    matcher = StopMatcher(["]", "^x", "a-z", "\\"])
    assert (run(matcher, ["b^-a", "-z c"]), matcher.hit) == ("b^-", "a-z")
