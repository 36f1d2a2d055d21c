"""The numbers that a schema allows, as grammars: ranges and multiples over every decimal spelling.

A range is decided digit by digit, so it is a finite automaton over the number's text: how what is written so
far compares with each bound. A number may have any number of decimals, or an exponent after one digit other
than zero and its decimals (`2.5e-7`). Exponents after other beginnings (`25e-8`) are left out: whether such a
number is in a range no automaton can tell, and a model that may not write 25 would be led into one. For the
same reason an integer is written in digits alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gateway.xtml.grammar.digits import DIGITS, OUT, SYMBOLS, Automaton, Range, State
from gateway.xtml.grammar.rules import literal
from gateway.xtml.json_schema import Schema

MAX_DIGITS = 40  # of a bound written out
MAX_STATES = 150  # of the automaton of one schema
_MAX_BUILT = 4000  # states before equal ones are merged

_EXPONENT = '[eE] ("" | [+\\-]) [0-9]+'
NUMBER = f'("" | "-") ("0" | [1-9] [0-9]*) ("" | "." [0-9]+) ("" | {_EXPONENT})'
INTEGER = '("0" | ("" | "-") [1-9] [0-9]*)'


class UnsupportedRange(ValueError):
    """The range holds no number, or takes too much to write out."""


def range_of(schema: Schema) -> Range | None:
    """The range of an alternative of numbers, None for any number (or integer) at all."""
    low, low_open = _bound(schema, "minimum", "exclusiveMinimum", max)
    high, high_open = _bound(schema, "maximum", "exclusiveMaximum", min)
    multiple = Fraction(_decimal(schema["multipleOf"])) if "multipleOf" in schema else None
    integer = schema["type"] == "integer"
    if integer and multiple is not None:
        multiple = Fraction(multiple.numerator)  # the least that is whole too
    if (low, high, multiple) == (None, None, None):
        return None
    return Range(low, low_open, high, high_open, multiple, integer)


def _bound(schema: Schema, closed: str, opened: str, tighter: Any) -> tuple[Decimal | None, bool]:
    inner = _decimal(schema[closed]) if closed in schema else None
    exclusive = schema.get(opened)
    if isinstance(exclusive, bool) or exclusive is None:  # draft 4: whether the other bound is open
        return inner, bool(exclusive) and inner is not None
    outer = _decimal(exclusive)
    if inner is None or outer == inner or tighter(outer, inner) == outer:
        return outer, True
    return inner, False


def _decimal(value: float) -> Decimal:
    return Decimal(value if isinstance(value, int) else repr(value))


@lru_cache(maxsize=4096)
def spellings(value: float, *, many: bool = False, whole: bool = False) -> str:
    """EBNF of a number of an enum: its shortest decimal spelling, zeros added, or with an exponent.

    `many`: it is one of so many that exponents are left out. `whole`: an integer is asked for.
    """
    number = _decimal(value)
    if whole and isinstance(value, int):
        return literal(str(value))
    sign = '"-" ' if number < 0 else ""
    if number == 0:
        return '("" | "-") "0" ("" | "." "0"+)'
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    exponent = number.adjusted()
    options = []
    if abs(exponent) <= MAX_DIGITS or isinstance(value, int):
        before, _, after = f"{abs(number):f}".partition(".")
        after = after.rstrip("0")
        options.append(
            f'{literal(before + "." + after)} "0"*' if after else f'{literal(before)} ("" | "." "0"+)'
        )
    if not many or not options:
        plus_or_minus = '("" | "+")' if exponent >= 0 else '"-"'
        power = f'[eE] {plus_or_minus} "0"* {literal(str(abs(exponent)))}'
        options.append(f"{_with_zeros(digits[0], digits[1:])} {power}")
    return f"{sign}({' | '.join(options)})"


def _with_zeros(before: str, after: str) -> str:
    """The EBNF of digits before and after a point, and any zeros at their end."""
    return f'{literal(before + "." + after)} "0"*' if after else f'{literal(before)} ("" | "." "0"+)'


@lru_cache(maxsize=4096)
def range_grammar(wanted: Range) -> str:
    """The EBNF of the numbers in a range, beginning at `root`. Raises UnsupportedRange."""
    for bound in (wanted.low, wanted.high):
        if bound is not None and abs(bound.adjusted()) + len(bound.as_tuple().digits) > MAX_DIGITS:
            raise UnsupportedRange(f"a bound of more than {MAX_DIGITS} digits")
    return _written(_merged(Automaton(wanted)))


# From automaton to rules.

_Table = list[tuple[bool, dict[str, int]]]
"""By state: whether the number may end there, and the next state by symbol. State 0 is the start."""


def _merged(automaton: Automaton) -> _Table:
    """The automaton's table without states that lead nowhere, equal states once. Raises UnsupportedRange."""
    steps, accepting = _reached(automaton.start, automaton.step), automaton.accepts
    live = {state for state in steps if accepting(state)}
    before: dict[State, list[State]] = {}
    for state, nexts in steps.items():
        for target in nexts.values():
            before.setdefault(target, []).append(state)
    todo = list(live)
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in live:
                live.add(state)
                todo.append(state)
    if automaton.start not in live:
        raise UnsupportedRange("it holds no number")
    group: dict[State, int] = {state: int(accepting(state)) for state in live}
    n_groups = 0
    while len(set(group.values())) != n_groups:
        n_groups = len(set(group.values()))
        numbers: dict[Hashable, int] = {}
        seen = {
            state: (group[state], tuple((c, group[t]) for c, t in steps[state].items() if t in live))
            for state in live
        }
        group = {state: numbers.setdefault(kind, len(numbers)) for state, kind in seen.items()}
    if n_groups > MAX_STATES:
        raise UnsupportedRange("too many cases to be written out")
    one_of = {number: state for state, number in group.items()}
    order = [group[automaton.start], *(n for n in one_of if n != group[automaton.start])]
    place = {number: i for i, number in enumerate(order)}
    return [
        (accepting(one_of[n]), {c: place[group[t]] for c, t in steps[one_of[n]].items() if t in live})
        for n in order
    ]


def _reached(start: State, step: Callable[[State, str], State]) -> dict[State, dict[str, State]]:
    steps: dict[State, dict[str, State]] = {}
    todo = [start]
    while todo:
        state = todo.pop()
        if state in steps:
            continue
        if len(steps) >= _MAX_BUILT:
            raise UnsupportedRange("too many cases to be written out")
        nexts = {char: step(state, char) for char in SYMBOLS}
        steps[state] = {char: target for char, target in nexts.items() if target != OUT}
        todo += steps[state].values()
    return steps


def _written(table: _Table) -> str:
    """A rule a state, named q0 and so on; a loop of a state to itself is a repeated class."""
    lines = []
    for number, (ends, nexts) in enumerate(table):
        options = ['""'] if ends else []
        loop = ""
        for target in dict.fromkeys(nexts.values()):
            symbols = _class([c for c, t in nexts.items() if t == target])
            if target == number:
                loop = f"{symbols}* "
            else:
                options.append(symbols if table[target] == (True, {}) else f"{symbols} q{target}")
        lines.append(f"q{number} ::= {loop}({' | '.join(options)})")
    return "\n".join([*lines, "root ::= q0"])


def _class(symbols: list[str]) -> str:
    digits = [c for c in symbols if c in DIGITS]
    others = {"-": "\\-", "e": "eE"}
    runs = math.inf
    text = ""
    for digit in digits:
        if text and int(digit) == runs + 1:
            text = text[:-2] + "-" + digit if len(text) > 1 and text[-2] == "-" else text + "-" + digit
        else:
            text += digit
        runs = int(digit)
    return "[" + text + "".join(others.get(c, c) for c in symbols if c not in DIGITS) + "]"
