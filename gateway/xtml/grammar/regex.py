"""JSON-schema patterns as regular expressions that xgrammar takes literally.

xgrammar matches a pattern against the whole of what is written, where JSON schema searches for it, and inside
a JSON string it does not escape quotes. So a pattern is parsed here and written anew: anchored at both ends,
every character class spelled out, and, for use inside a JSON string, over escaped characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from gateway.xtml.grammar.cost import Cost, pattern_cost
from gateway.xtml.grammar.parsed import Node, ops, parse
from gateway.xtml.grammar.ranges import (
    LAST,
    SURROGATES,
    Ranges,
    UnsupportedPattern,
    characters,
    complement,
    without,
)

# What a text is written in: a JSON string, in which characters are escaped; raw text on the wire; or raw text
# for a vocabulary that spells its special tokens (see _NAME).
Text = Literal["json", "raw", "spelled"]

_SHORT_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}
_MAX_REPEAT = 4096
_MAX_TEXT = 20_000  # characters of one pattern as written


def whole_text(pattern: str, text: Text) -> str:
    """`pattern`, which JSON schema searches for, as a regex of the whole text.

    Where a pattern is wide, "spelled" text holds no `<` in it, nor right before it (see _NAME).
    Raises UnsupportedPattern for look-around, back-references, anchors inside, and text that is not a regex.
    """
    out = []
    for starts, body, ends in _anchored(pattern):
        after = "" if ends else text_of_length(0, None, text)
        before = "" if starts else f"(?:{_UNIT})*" if text == "spelled" else text_of_length(0, None, text)
        out.append(before + _sequence(body, text) + after)
    return out[0] if len(out) == 1 else "|".join(f"(?:{o})" for o in out)


def cost(pattern: str) -> Cost:
    """What `pattern` costs the engine. Raises UnsupportedPattern as `whole_text`, or if too expensive."""
    if len(pattern) > _MAX_TEXT:
        raise UnsupportedPattern(f"longer than {_MAX_TEXT} characters")
    return pattern_cost(_anchored(pattern))


def _anchored(pattern: str) -> list[tuple[bool, list[Node], bool]]:
    """The alternatives of a pattern, each with whether it is anchored at its start and at its end."""
    try:
        tree = parse(_as_python(pattern))
    except (re.error, OverflowError, RecursionError, ValueError) as e:
        raise UnsupportedPattern(str(e)) from None
    out = []
    for branch in _branches(tree):
        starts = bool(branch) and _is_anchor(branch[0], start=True)
        ends = bool(branch) and _is_anchor(branch[-1], start=False) and not (starts and len(branch) == 1)
        out.append((starts, branch[1 if starts else 0 : len(branch) - 1 if ends else len(branch)], ends))
    return out


def text_of_length(least: int, most: int | None, text: Text) -> str:
    """A regex for any text of `least` to `most` characters (code points).

    "spelled" text leaves out the spelling of the close marker; a `<` and what follows it may count as one.
    """
    if text != "spelled":
        return _repeat(_set([(0, LAST)], text), least, most)
    return _repeat(f"(?:{_UNIT})", least, most) + ("" if most == 0 else f"(?:{_BEGUN})*")


def _as_python(pattern: str) -> str:
    """ECMA's named groups and `\\u{...}` in Python's spelling."""
    if re.search(r"\\[pPkc]", pattern):
        raise UnsupportedPattern("character properties and named references")
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    pattern = re.sub(r"(\\.)|(\[\^?\]?)((?:\\.|[^\]\\])*)", _literal_class, pattern, flags=re.DOTALL)
    return re.sub(r"\\u\{([0-9A-Fa-f]{1,6})\}", lambda m: f"\\U{int(m[1], 16):08x}", pattern)


def _literal_class(part: re.Match[str]) -> str:
    """A class without what Python may once read as nested sets or set operations."""
    if part[1]:
        return part[1]
    return part[2] + re.sub(r"(\\.)|([\[&~|])", lambda m: m[1] or "\\" + m[2], part[3], flags=re.DOTALL)


def _branches(tree: list[Node]) -> list[list[Node]]:
    if len(tree) == 1 and tree[0][0] is ops.BRANCH:
        return [list(b) for b in tree[0][1][1]]
    return [tree]


def _is_anchor(node: Node, *, start: bool) -> bool:
    op, arg = node
    if op is not ops.AT:
        return False
    return arg in ((ops.AT_BEGINNING, ops.AT_BEGINNING_STRING) if start
                   else (ops.AT_END, ops.AT_END_STRING))  # fmt: skip


def _sequence(nodes: Iterable[Node], text: Text) -> str:
    return "".join(_node(op, arg, text) for op, arg in nodes)


def _node(op: Any, arg: Any, text: Text) -> str:
    match op:
        case ops.BRANCH:
            return "(?:" + "|".join(_sequence(b, text) for b in arg[1]) + ")"
        case ops.SUBPATTERN:
            _, added, removed, body = arg
            if added or removed:
                raise UnsupportedPattern("inline flags")
            return f"(?:{_sequence(body, text)})"
        case ops.MAX_REPEAT | ops.MIN_REPEAT:
            least, most, body = arg
            most = None if most is ops.MAXREPEAT else most
            if max(least, most or 0) > _MAX_REPEAT:
                raise UnsupportedPattern(f"a repeat of more than {_MAX_REPEAT}")
            return _repeat(f"(?:{_sequence(body, text)})", least, most)
        case _:
            return _set(characters(op, arg), text)


def _repeat(atom: str, least: int, most: int | None) -> str:
    if most is None:
        return atom + {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return atom + ("?" if (least, most) == (0, 1) else f"{{{least},{most}}}")


def _set(ranges: Ranges, text: Text) -> str:
    """One character of `ranges`; in JSON as itself where that is allowed, else as its escape."""
    ranges = without(ranges, [SURROGATES])
    if text != "json":
        ranges = without(ranges, [(0, 0)])  # xgrammar reads NUL as nothing
        if text == "spelled" and all(any(low <= ord(c) <= high for low, high in ranges) for c in _NAME):
            ranges = without(ranges, [(0x3C, 0x3C)])  # see _NAME
        return _class(ranges)
    plain = without(ranges, [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
    options = [_class(plain)] if plain else []
    for code in [*range(0x20), 0x22, 0x5C]:
        if any(low <= code <= high for low, high in ranges):
            escape = _SHORT_ESCAPES.get(code, f"\\u{code:04x}")
            options.append("".join(_class([(ord(c), ord(c))]) for c in escape))
    if not options:
        raise UnsupportedPattern("an empty character class")
    return options[0] if len(options) == 1 else "(?:" + "|".join(options) + ")"


def _class(ranges: Ranges) -> str:
    if not ranges:
        raise UnsupportedPattern("an empty character class")
    return "[" + "".join(_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in ranges) + "]"


def _char(code: int) -> str:
    c = chr(code)
    return c if c.isascii() and c.isalnum() else f"\\u{{{code:x}}}"


def _other_than(chars: str) -> str:
    return _class(complement([(ord(c), ord(c)) for c in chars] + [SURROGATES, (0, 0)]))


# Where text may hold a special token's name, and the vocabulary gives the token that name, xgrammar takes the
# token for that text before it looks for token elements: after a raw text that may go on with `<|close|>`,
# the marker that ends the text would be lost in it. So "spelled" text is written as units that never make up
# that name: a character, or beginnings of the name followed by a character that does not continue it.
_NAME = "<|close|>"
_BEGINNINGS = [_NAME[:n] for n in range(1, len(_NAME))]
_BEGUN = "|".join("".join(_class([(ord(c), ord(c))]) for c in begun) for begun in _BEGINNINGS)
_UNIT = f"{_other_than('<')}|(?:{_BEGUN})*(?:" + "|".join(
    "".join(_class([(ord(c), ord(c))]) for c in begun) + _other_than("<" + _NAME[len(begun)])
    for begun in _BEGINNINGS
) + ")"  # fmt: skip
