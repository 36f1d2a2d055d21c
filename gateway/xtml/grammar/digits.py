"""An automaton that reads a number digit by digit and tells whether it is in a range.

A bound's digits are compared one by one; the first that differs decides, and without leading zeros the number
with more digits is the greater one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

DIGITS = "0123456789"
SYMBOLS = DIGITS + ".-+e"  # `e` stands for `E` too
State = tuple[Any, ...]
OUT: State = ("out",)  # nothing that goes on from here is a number of the range


@dataclass(frozen=True, slots=True)
class Range:
    """None: no bound. `multiple`: what the number is a multiple of. An integer has no point or exponent."""

    low: Decimal | None
    low_open: bool
    high: Decimal | None
    high_open: bool
    multiple: Fraction | None
    integer: bool


class Automaton:
    """States are hashable; `step` gives the next one. The sign chooses one of two ranges of magnitudes."""

    start: State = ("start",)

    def __init__(self, wanted: Range) -> None:
        low, high = wanted.low, wanted.high
        self._sides: dict[str, _Side] = {}
        if high is None or high > 0 or (high == 0 and not wanted.high_open):
            least = (low, wanted.low_open) if low is not None and low >= 0 else (Decimal(0), False)
            self._sides["+"] = _Side(*least, high, wanted.high_open, wanted)
        if low is None or low < 0:  # a minimum of 0 leaves out -0: the model would be led to write it
            is_below = high is not None and high <= 0
            least = (
                (-high, wanted.high_open) if is_below and high is not None else (Decimal(0), wanted.integer)
            )
            self._sides["-"] = _Side(*least, None if low is None else -low, wanted.low_open, wanted)

    def step(self, state: State, char: str) -> State:
        if state == self.start and char == "-":
            return ("signed",)
        if state in (self.start, ("signed",)):
            sign = "+" if state == self.start else "-"
            if sign not in self._sides or char not in DIGITS:
                return OUT
            state = (sign, *self._sides[sign].begin(char))
        sign, plain, power = state
        side = self._sides[sign]
        plain, power = side.plain_step(plain, char), side.power_step(power, char)
        return OUT if plain == power == OUT else (sign, plain, power)

    def accepts(self, state: State) -> bool:
        if len(state) != 3:
            return False
        sign, plain, power = state
        return self._sides[sign].plain_ends(plain) or _power_ends(power)


class _Digits(NamedTuple):
    """A magnitude as text: `whole` and `after` the point, without zeros that say nothing."""

    whole: str
    after: str


class _Power(NamedTuple):
    """A magnitude above 0 as one digit, a point, more digits, and a power of ten."""

    digits: str
    exponent: int


def _as_digits(bound: Decimal) -> _Digits:
    whole, _, after = f"{bound:f}".partition(".")
    return _Digits(whole.lstrip("0") or "0", after.rstrip("0"))


def _as_power(bound: Decimal) -> _Power:
    return _Power("".join(map(str, bound.as_tuple().digits)).rstrip("0"), bound.adjusted())


def _compare(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def _digit(text: str, place: int) -> str:
    return text[place] if place < len(text) else "0"


class _Side:
    """The range of the magnitudes of one sign. `plain`: without an exponent, `power`: with one.

    In a state `below` and `above` say how what is written compares with the lower and the upper bound.
    """

    def __init__(
        self, low: Decimal, low_open: bool, high: Decimal | None, high_open: bool, wanted: Range
    ) -> None:
        self._low, self._low_open = _as_digits(low), low_open
        self._high, self._high_open = None if high is None else _as_digits(high), high_open
        self._low_power = _as_power(low) if low else None
        self._high_power = _as_power(high) if high else None
        self._integer = wanted.integer
        self._p, self._q = 1, -1  # a multiple is p / 10**q, p whole; q -1: of nothing
        if wanted.multiple is not None:
            self._q = 0
            while (wanted.multiple * 10**self._q).denominator != 1:
                self._q += 1
            self._p = int(wanted.multiple * 10**self._q)
        self._powers = not wanted.integer and wanted.multiple is None and high != 0
        whole = [len(bound.whole) for bound in (self._low, self._high) if bound]
        after = [len(bound.after) for bound in (self._low, self._high) if bound]
        digits = [len(bound.digits) for bound in (self._low_power, self._high_power) if bound]
        self._n_whole, self._n_after = max(whole), max(*after, self._q, 0)
        self._n_digits = max([*digits, 1])

    def begin(self, char: str) -> tuple[State, State]:
        """States before the first digit, `char`."""
        return ("whole", 0, 0, 0, 0, False), ("first",) if self._powers and char != "0" else OUT

    def plain_step(self, state: State, char: str) -> State:
        if state[0] == "whole":
            return self._whole_step(state, char)
        if state == OUT or char not in DIGITS:
            return OUT
        _, below, above, place, rest = state
        if self._q >= 0:
            if place >= self._q and char != "0":
                return OUT
            if place < self._q:
                rest = (rest * 10 + int(char)) % self._p
        below = below or _compare(char, _digit(self._low.after, place))
        above = above or (_compare(char, _digit(self._high.after, place)) if self._high else -1)
        return ("after", below, above, min(place + 1, self._n_after), rest)

    def _whole_step(self, state: State, char: str) -> State:
        _, n, below, above, rest, only_zero = state
        if char == "." and not self._integer:
            return ("point", *self._whole_compared(n, below, above), 0, rest)
        if char not in DIGITS or only_zero:
            return OUT
        below = below or (_compare(char, self._low.whole[n]) if n < len(self._low.whole) else 0)
        if self._high:
            above = above or (_compare(char, self._high.whole[n]) if n < len(self._high.whole) else 0)
        rest = (rest * 10 + int(char)) % self._p
        return ("whole", min(n + 1, self._n_whole + 1), below, above, rest, char == "0" and n == 0)

    def _whole_compared(self, n: int, below: int, above: int) -> tuple[int, int]:
        """How whole digits compare with the bounds', their number known."""
        high = -1 if self._high is None else _compare(n, len(self._high.whole)) or above
        return _compare(n, len(self._low.whole)) or below, high

    def plain_ends(self, state: State) -> bool:
        if state[0] == "whole":
            _, n, below, above, rest, _ = state
            (below, above), place = self._whole_compared(n, below, above), 0
        elif state[0] == "after":
            _, below, above, place, rest = state
        else:
            return False
        if self._q >= 0 and rest * 10 ** max(0, self._q - place) % self._p:
            return False
        below = below or (-1 if place < len(self._low.after) else 0)
        above = above or (-1 if self._high and place < len(self._high.after) else 0)
        return _is_inside(below, self._low_open) and _is_inside(-above, self._high_open)

    def power_step(self, state: State, char: str) -> State:
        kind = state[0]
        if char in DIGITS:
            match kind:
                case "first":
                    return ("digit", *self._mantissa(0, 0, 0, char))
                case "decimal point" | "decimals":
                    _, place, below, above = state
                    return ("decimals", *self._mantissa(place, below, above, char))
                case "exponent":
                    return _power_digit(("power", "+", *state[1:], 0, 0, 0), char)
                case "exponent's sign":
                    return _power_digit(("power", *state[1:], 0, 0, 0), char)
                case "power":
                    return _power_digit(state, char)
        if kind == "digit" and char == ".":
            return ("decimal point", *state[1:])
        if kind in ("digit", "decimals") and char == "e":
            _, place, below, above = state
            return self._exponents(place, below, above)
        if kind == "exponent" and char in "+-":
            return ("exponent's sign", char, *state[1:])
        return OUT

    def _mantissa(self, place: int, below: int, above: int, char: str) -> tuple[int, int, int]:
        below = below or (_compare(char, _digit(self._low_power.digits, place)) if self._low_power else 1)
        above = above or (_compare(char, _digit(self._high_power.digits, place)) if self._high_power else -1)
        return min(place + 1, self._n_digits), below, above

    def _exponents(self, place: int, below: int, above: int) -> State:
        """The exponents that bring what is written into the range: from, to (None: no bound)."""
        least = most = None
        if (low := self._low_power) is not None:
            below = below or (-1 if place < len(low.digits) else 0)
            least = low.exponent + (0 if _is_inside(below, self._low_open) else 1)
        if (high := self._high_power) is not None:
            above = above or (-1 if place < len(high.digits) else 0)
            most = high.exponent - (0 if _is_inside(-above, self._high_open) else 1)
        return OUT if least is not None and most is not None and least > most else ("exponent", least, most)


def _is_inside(compared: int, is_open: bool) -> bool:
    return compared > 0 or (compared == 0 and not is_open)


def _power_digit(state: State, char: str) -> State:
    _, sign, least, most, n, below, above = state
    if n < 1 and char == "0":
        return ("power", sign, least, most, -1, 0, 0)  # zeros before the exponent
    n = max(n, 0)
    low, high = (None if b is None else str(b) for b in _exponent_bounds(sign, least, most))
    below = below or (_compare(char, low[n]) if low and n < len(low) else 0)
    above = above or (_compare(char, high[n]) if high and n < len(high) else 0)
    longest = max(len(low or ""), len(high or ""))
    return ("power", sign, least, most, min(n + 1, longest + 1), below, above)


def _power_ends(state: State) -> bool:
    if state[0] != "power":
        return False
    _, sign, least, most, n, below, above = state
    low, high = _exponent_bounds(sign, least, most)
    if n < 1:
        return low <= 0 and (high is None or high >= 0)
    if low > 0 and (_compare(n, len(str(low))) or below) < 0:
        return False
    return high is None or (high > 0 and (_compare(n, len(str(high))) or above) <= 0)


def _exponent_bounds(sign: str, least: int | None, most: int | None) -> tuple[int, int | None]:
    """Bounds of the exponent's magnitude; a highest of -1 means that there is none."""
    if sign == "+":
        return max(0, least or 0), None if most is None else max(most, -1)
    return 0 if most is None else max(0, -most), None if least is None else max(-least, -1)
