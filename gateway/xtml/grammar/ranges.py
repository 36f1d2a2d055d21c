"""Sets of characters, as a parsed regular expression names them, by ECMA's meaning of the classes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from gateway.xtml.grammar.parsed import Node, ops

Ranges = list[tuple[int, int]]

SURROGATES = (0xD800, 0xDFFF)
LAST = 0x10FFFF
_DIGIT: Ranges = [(0x30, 0x39)]
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACE: Ranges = [
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip
_NEWLINE: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
ANY_CHARACTER: Ranges = [(0, LAST)]


class UnsupportedPattern(ValueError):
    """The pattern needs more than a regular language, or more than can be written out."""


def characters(op: Any, arg: Any) -> Ranges:
    """The characters that a node of the parsed regex stands for; of other nodes raises UnsupportedPattern."""
    match op:
        case ops.LITERAL:
            return [(arg, arg)]
        case ops.NOT_LITERAL:
            return complement([(arg, arg)])
        case ops.ANY:
            return complement(_NEWLINE)
        case ops.IN:
            return _members(arg)
        case _:
            raise UnsupportedPattern(str(op).lower())


def union(a: Ranges, b: Ranges) -> Ranges:
    """Sorted and without overlaps."""
    return complement(complement(a + b))


def overlap(sets: Iterable[Ranges]) -> bool:
    """Whether any two of these sets (each without overlaps in itself) share a character."""
    ranges = sorted(r for ranges in sets for r in ranges)
    return any(b[0] <= a[1] for a, b in pairwise(ranges))


def _members(items: list[Node]) -> Ranges:
    ranges: Ranges = []
    negated = False
    for op, arg in items:
        match op:
            case ops.NEGATE:
                negated = True
            case ops.LITERAL:
                ranges.append((arg, arg))
            case ops.RANGE:
                ranges.append(arg)
            case ops.CATEGORY:
                ranges += _category(arg)
            case _:
                raise UnsupportedPattern(str(op).lower())
    return complement(ranges) if negated else ranges


def _category(name: object) -> Ranges:
    table = {
        ops.CATEGORY_DIGIT: _DIGIT,
        ops.CATEGORY_WORD: _WORD,
        ops.CATEGORY_SPACE: _SPACE,
        ops.CATEGORY_NOT_DIGIT: complement(_DIGIT),
        ops.CATEGORY_NOT_WORD: complement(_WORD),
        ops.CATEGORY_NOT_SPACE: complement(_SPACE),
    }
    return table[name]


def complement(ranges: Ranges) -> Ranges:
    """All other characters, sorted and without overlaps."""
    out, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            out.append((at, low - 1))
        at = max(at, high + 1)
    return out + ([(at, LAST)] if at <= LAST else [])


def without(ranges: Ranges, removed: Ranges) -> Ranges:
    """What is in `ranges` and not in `removed`, sorted and without overlaps."""
    return complement(complement(ranges) + removed)
