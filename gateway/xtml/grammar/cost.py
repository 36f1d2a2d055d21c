"""What patterns and enums cost the engine, judged before they get there.

The engine compiles grammars in few threads, which cannot be interrupted, and steps a matcher between two
tokens of the whole batch: what is expensive for one request is expensive for all. The bounds were measured on
xgrammar 0.2.8 (docs/concepts/grammar.md); what cannot be judged cheap is not enforced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.xtml.grammar.parsed import Node, ops
from gateway.xtml.grammar.ranges import ANY_CHARACTER, Ranges, UnsupportedPattern, characters, overlap, union

MAX_SIZE = 4500  # characters of one pattern, counted repeats written out
MAX_CHOICES = 24  # of one pattern, see `_Judge`
MAX_SIZES = 10_000  # of all patterns of one request
MAX_CHOICES_IN_ALL = 200
MAX_VALUES = 40_000  # UTF-8 bytes of all enum and const values of one request, as JSON
_ENDLESS = 4  # how often a choice inside an endless repeat counts
_ESCAPED_IN_JSON: Ranges = [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)]


@dataclass(frozen=True, slots=True)
class Cost:
    size: int
    choices: int


class Budget:
    """What the schemas of one request may cost together. A place that is asked for again is paid already."""

    def __init__(self) -> None:
        self._paid: dict[tuple[str, str], bool] = {}
        self._left = {"values": MAX_VALUES, "size": MAX_SIZES, "choices": MAX_CHOICES_IN_ALL}

    def takes_values(self, place: str, values: str) -> bool:
        """Whether these enum values (a JSON list) can be enforced."""
        return self._takes((place, values), values=len(values.encode("utf-8", "surrogatepass")))

    def takes_pattern(self, place: str, pattern: str, cost: Cost) -> bool:
        """Whether this pattern can be enforced beside those before it."""
        return self._takes((place, pattern), size=cost.size, choices=cost.choices)

    def _takes(self, key: tuple[str, str], **costs: int) -> bool:
        if key not in self._paid:
            self._paid[key] = all(cost <= self._left[kind] for kind, cost in costs.items())
            if self._paid[key]:
                for kind, cost in costs.items():
                    self._left[kind] -= cost
        return self._paid[key]


def pattern_cost(branches: Sequence[tuple[bool, Sequence[Node], bool]]) -> Cost:
    """The cost of alternatives, each (anchored at its start, parsed regex without anchors, at its end).

    Raises UnsupportedPattern above MAX_SIZE or MAX_CHOICES.
    """
    judge = _Judge()
    size = 0
    for starts, body, ends in branches:
        if not starts:
            judge.choose(1)
        size += judge.sequence(body, [] if ends else ANY_CHARACTER, 1)
    judge.check_size(size)
    return Cost(size, judge.choices)


class _Judge:
    """Counts the choices of a pattern: decisions that the next character does not settle.

    These are to go on with a repeat or to leave it, and which alternative to take; each makes the matcher
    follow more possibilities at once. Inside a repeat a choice counts as often as it repeats.
    """

    def __init__(self) -> None:
        self.choices = 0
        self._firsts: dict[int, tuple[Ranges, bool]] = {}  # by id of a part of the tree, which outlives this

    def choose(self, weight: int) -> None:
        self.choices += weight
        if self.choices > MAX_CHOICES:
            raise UnsupportedPattern("too ambiguous to be matched fast")

    def check_size(self, size: int) -> None:
        if size > MAX_SIZE:
            raise UnsupportedPattern(f"more than {MAX_SIZE} characters with its repeats written out")

    def sequence(self, nodes: Sequence[Node], follow: Ranges, times: int) -> int:
        """The size of `nodes`, which come `times` times with `follow` possible after them."""
        size = 0
        next_is_nullable = False
        for node in reversed(list(nodes)):
            size += self._node(node, follow, times)
            first, nullable = self._first(node)
            if nullable and next_is_nullable:
                self.choose(times)  # xgrammar goes from every part of such a run to every later one
            follow = union(first, follow) if nullable else first
            next_is_nullable = nullable
        return size

    def _node(self, node: Node, follow: Ranges, times: int) -> int:
        op, arg = node
        if op is ops.SUBPATTERN:
            return self.sequence(arg[3], follow, times)
        if op is ops.BRANCH:
            if overlap([self._first_of(b)[0] for b in arg[1]]):
                self.choose(times)
            return sum(self.sequence(b, follow, times) for b in arg[1])
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            return self._repeat(node, follow, times)
        return 1

    def _repeat(self, node: Node, follow: Ranges, times: int) -> int:
        least, most, body = node[1]
        endless = most is ops.MAXREPEAT
        first, nullable = self._first_of(body)
        if least != most and overlap([first, follow]):
            if endless:  # in another repeat, each round of that one goes on beside the others
                weight = 3 if times == 1 else 5
            else:  # a counter of characters that JSON may escape is far more expensive
                weight = 1 + (most - least - 1) // (4 if overlap([first, _ESCAPED_IN_JSON]) else 50)
            self.choose(times * weight)
        count = max(least, _ENDLESS) if endless else most
        if nullable and count > 1:
            self.choose(times * count)
        inner = self.sequence(body, union(first, follow) if count > 1 else follow, times * count)
        size: int = inner * (max(least, 1) if endless else most)
        if not endless and most > 64 and overlap([first, _ESCAPED_IN_JSON]):
            raise UnsupportedPattern("counts more than 64 characters that JSON may escape")
        if not endless and most > 64:
            # Compiled against the whole vocabulary at every count: seconds for a class of many characters.
            n_characters = sum(high - low + 1 for low, high in first)
            size = max(size, 4000 if n_characters > 30 else 0) if n_characters <= 128 else MAX_SIZE + 1
        self.check_size(size)
        return size

    def _first_of(self, nodes: Sequence[Node]) -> tuple[Ranges, bool]:
        """The characters that `nodes` may begin with, and whether they may be nothing."""
        found: Ranges = []
        for node in nodes:
            first, nullable = self._first(node)
            found = found + first
            if not nullable:
                return union(found, []), False
        return union(found, []), True

    def _first(self, node: Node) -> tuple[Ranges, bool]:
        if id(node) not in self._firsts:
            self._firsts[id(node)] = self._find_first(*node)
        return self._firsts[id(node)]

    def _find_first(self, op: Any, arg: Any) -> tuple[Ranges, bool]:
        if op is ops.SUBPATTERN:
            return self._first_of(arg[3])
        if op is ops.BRANCH:
            firsts = [self._first_of(b) for b in arg[1]]
            return union([r for first, _ in firsts for r in first], []), any(n for _, n in firsts)
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            least, _, body = arg
            first, nullable = self._first_of(body)
            return first, nullable or least == 0
        return characters(op, arg), False
