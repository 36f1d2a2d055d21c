"""The classes of a pattern are ECMA's, at every code point; the rule is said another way here."""

import unicodedata
from collections.abc import Callable

import pytest

from gateway.xtml.grammar.parsed import parse
from gateway.xtml.grammar.ranges import characters

BLANKS = "\t\n\v\f\r\ufeff\u2028\u2029"  # beside Unicode's space separators

CLASSES: dict[str, Callable[[str], bool]] = {
    r"\s": lambda c: c in BLANKS or unicodedata.category(c) == "Zs",
    r"\d": lambda c: c in "0123456789",
    r"\w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
    ".": lambda c: c not in "\n\r\u2028\u2029",
    r"[^\d\s]": lambda c: not CLASSES[r"\d"](c) and not CLASSES[r"\s"](c),
    r"[a-f\d]": lambda c: c in "abcdef0123456789",
    "[^a]": lambda c: c != "a",
}
CLASSES |= {
    r"\S": lambda c: not CLASSES[r"\s"](c),
    r"\D": lambda c: not CLASSES[r"\d"](c),
    r"\W": lambda c: not CLASSES[r"\w"](c),
}


@pytest.mark.parametrize("pattern", CLASSES)
def test_class_holds_the_characters_that_it_should(pattern: str) -> None:
    [(op, arg)] = parse(pattern)
    held = {code for first, last in characters(op, arg) for code in range(first, last + 1)}
    belongs = CLASSES[pattern]
    wrong = [code for code in range(0x11_0000) if (code in held) != belongs(chr(code))]
    assert [hex(code) for code in wrong if not 0xD800 <= code <= 0xDFFF] == []
