"""JSON-schema patterns as regular expressions that xgrammar takes literally.

xgrammar matches a pattern against the whole of what is written, where JSON schema searches for it, and inside
a JSON string it does not escape quotes. So a pattern is parsed here and written anew: anchored at both ends,
every character class spelled out, and, for use inside a JSON string, over escaped characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

try:
    from re import _constants, _parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover - the names before Python 3.11
    import sre_constants as _constants  # type: ignore[no-redef]
    import sre_parse as _parser  # type: ignore[no-redef]

Ranges = list[tuple[int, int]]

_SURROGATES = (0xD800, 0xDFFF)
_LAST = 0x10FFFF
_DIGIT: Ranges = [(0x30, 0x39)]
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_SPACE: Ranges = [
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip
_NEWLINE: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_SHORT_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}
_MAX_REPEAT = 4096


class UnsupportedPattern(ValueError):
    """The pattern needs more than a regular language, or more than can be written out."""


def whole_text(pattern: str, *, in_json: bool) -> str:
    """`pattern`, which JSON schema searches for, as a regex of the whole text; `in_json`: of escaped text.

    Where a pattern is wide, raw text holds no `<` in it, nor right before it (see _NAME).
    Raises UnsupportedPattern for look-around, back-references, anchors inside, and text that is no regex.
    """
    try:
        tree = list(_parser.parse(_as_python(pattern)))
    except (re.error, OverflowError, RecursionError, ValueError) as e:
        raise UnsupportedPattern(str(e)) from None
    branches = _branches(tree)
    out = []
    for branch in branches:
        starts = bool(branch) and _is_anchor(branch[0], start=True)
        ends = bool(branch) and _is_anchor(branch[-1], start=False) and not (starts and len(branch) == 1)
        body = branch[1 if starts else 0 : len(branch) - 1 if ends else len(branch)]
        after = "" if ends else text_of_length(0, None, in_json=in_json)
        before = "" if starts else text_of_length(0, None, in_json=True) if in_json else f"(?:{_UNIT})*"
        out.append(before + _sequence(body, in_json) + after)
    return out[0] if len(out) == 1 else "|".join(f"(?:{o})" for o in out)


def text_of_length(least: int, most: int | None, *, in_json: bool) -> str:
    """A regex for any text of `least` to `most` characters (code points).

    Raw text leaves out the spelling of the close marker, and a `<` and what follows it may count as one.
    """
    if max(least, most or 0) > _MAX_REPEAT:
        raise UnsupportedPattern(f"more than {_MAX_REPEAT} characters")
    if most is not None and most < least:
        raise UnsupportedPattern("maxLength is less than minLength")
    if in_json:
        return _repeat(_set([(0, _LAST)], in_json=True), least, most)
    return _repeat(f"(?:{_UNIT})", least, most) + ("" if most == 0 else f"(?:{_BEGUN})*")


def _as_python(pattern: str) -> str:
    """ECMA's named groups and `\\u{...}` in Python's spelling."""
    if re.search(r"\\[pPkc]", pattern):
        raise UnsupportedPattern("character properties and named references")
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    return re.sub(r"\\u\{([0-9A-Fa-f]{1,6})\}", lambda m: f"\\U{int(m[1], 16):08x}", pattern)


def _branches(tree: list) -> list[list]:
    if len(tree) == 1 and tree[0][0] is _constants.BRANCH:
        return [list(b) for b in tree[0][1][1]]
    return [tree]


def _is_anchor(node: tuple, *, start: bool) -> bool:
    op, arg = node
    if op is not _constants.AT:
        return False
    return arg in ((_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING) if start
                   else (_constants.AT_END, _constants.AT_END_STRING))  # fmt: skip


def _sequence(nodes: Iterable[tuple], in_json: bool) -> str:
    return "".join(_node(op, arg, in_json) for op, arg in nodes)


def _node(op: Any, arg: Any, in_json: bool) -> str:
    match op:
        case _constants.LITERAL:
            return _set([(arg, arg)], in_json)
        case _constants.NOT_LITERAL:
            return _set(_complement([(arg, arg)]), in_json)
        case _constants.ANY:
            return _set(_complement(_NEWLINE), in_json)
        case _constants.IN:
            return _set(_members(arg), in_json)
        case _constants.BRANCH:
            return "(?:" + "|".join(_sequence(b, in_json) for b in arg[1]) + ")"
        case _constants.SUBPATTERN:
            _, added, removed, body = arg
            if added or removed:
                raise UnsupportedPattern("inline flags")
            return f"(?:{_sequence(body, in_json)})"
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT:
            least, most, body = arg
            most = None if most is _constants.MAXREPEAT else most
            if max(least, most or 0) > _MAX_REPEAT:
                raise UnsupportedPattern(f"a repeat of more than {_MAX_REPEAT}")
            return _repeat(f"(?:{_sequence(body, in_json)})", least, most)
        case _:
            raise UnsupportedPattern(str(op).lower())


def _repeat(atom: str, least: int, most: int | None) -> str:
    if most is None:
        return atom + {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return atom + ("?" if (least, most) == (0, 1) else f"{{{least},{most}}}")


def _members(items: list[tuple]) -> Ranges:
    ranges: Ranges = []
    negated = False
    for op, arg in items:
        match op:
            case _constants.NEGATE:
                negated = True
            case _constants.LITERAL:
                ranges.append((arg, arg))
            case _constants.RANGE:
                ranges.append(arg)
            case _constants.CATEGORY:
                ranges += _category(arg)
            case _:
                raise UnsupportedPattern(str(op).lower())
    return _complement(ranges) if negated else ranges


def _category(name: object) -> Ranges:
    table = {
        _constants.CATEGORY_DIGIT: _DIGIT,
        _constants.CATEGORY_WORD: _WORD,
        _constants.CATEGORY_SPACE: _SPACE,
        _constants.CATEGORY_NOT_DIGIT: _complement(_DIGIT),
        _constants.CATEGORY_NOT_WORD: _complement(_WORD),
        _constants.CATEGORY_NOT_SPACE: _complement(_SPACE),
    }
    return table[name]


def _complement(ranges: Ranges) -> Ranges:
    out, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            out.append((at, low - 1))
        at = max(at, high + 1)
    return out + ([(at, _LAST)] if at <= _LAST else [])


def _without(ranges: Ranges, removed: Ranges) -> Ranges:
    return _complement(_complement(ranges) + removed)


def _set(ranges: Ranges, in_json: bool) -> str:
    """One character of `ranges`; in JSON as itself where that is allowed, else as its escape."""
    ranges = _without(ranges, [_SURROGATES])
    if not in_json:
        ranges = _without(ranges, [(0, 0)])  # xgrammar reads NUL as nothing
        if all(any(low <= ord(c) <= high for low, high in ranges) for c in _NAME):
            ranges = _without(ranges, [(0x3C, 0x3C)])  # see _NAME
        return _class(ranges)
    plain = _without(ranges, [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
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
    return _class(_complement([(ord(c), ord(c)) for c in chars] + [_SURROGATES, (0, 0)]))


# Where text may hold a special token's name, xgrammar takes the token for that text before it looks for token
# elements: after a raw text that may go on with `<|close|>`, the marker that ends the text would be lost in
# it. So raw text is written as units that never make up that name: a character, or beginnings of the name
# followed by a character that does not continue it.
_NAME = "<|close|>"
_BEGINNINGS = [_NAME[:n] for n in range(1, len(_NAME))]
_BEGUN = "|".join("".join(_class([(ord(c), ord(c))]) for c in begun) for begun in _BEGINNINGS)
_UNIT = f"{_other_than('<')}|(?:{_BEGUN})*(?:" + "|".join(
    "".join(_class([(ord(c), ord(c))]) for c in begun) + _other_than("<" + _NAME[len(begun)])
    for begun in _BEGINNINGS
) + ")"  # fmt: skip
