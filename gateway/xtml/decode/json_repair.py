"""JSON as a model writes it, made readable for every client, and left as it is where it is readable already.

Text that strict readers take stays byte for byte, so that a replay gives the same ids. What they would
refuse, or read in different ways, is repaired where nothing is lost by it (docs/concepts/decoding.md,
Arguments):

* raw control characters in strings are escaped, and so is a backslash that begins no escape;
* `True`, `False`, `None` and other spellings of the three words are read;
* NaN, Infinity and numbers that no double holds become strings of the same text;
* half a surrogate pair, which is not a character, becomes U+FFFD;
* of equal keys of an object the first stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from math import isinf
from typing import Any, NamedTuple

MAX_DEPTH = 100
"""Levels of nesting that are read; what is deeper is not JSON. Clients' readers stop at 64 to 1,000."""

_DIGITS_OF_A_DOUBLE = 308  # an integer of no more digits is finite as a double
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(
    r"""
      (?P<string> "[^"\\]*+(?:\\.[^"\\]*+)*+" )
    | (?P<number> -?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)? )
    | (?P<word> -?[A-Za-z]++ )
    | (?P<mark> [][{}:,] )
    | (?P<blank> [ \t\n\r]++ )
    """,
    re.DOTALL | re.VERBOSE,
)
_IN_STRING = re.compile(
    r"""
      (?P<pair> \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} )
    | (?P<half> \\u[dD][89a-fA-F][0-9a-fA-F]{2} )
    | (?P<good> \\(?: ["\\/bfnrt] | u[0-9a-fA-F]{4} ) )
    | (?P<bare> \\ )
    | (?P<control> [\x00-\x1f] )
    """,
    re.VERBOSE,
)
_WORDS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_NOT_A_NUMBER = ("NaN", "Infinity", "-Infinity")


class JsonText(NamedTuple):
    """A JSON text that every reader takes, and its type (integer: a number without a fraction)."""

    text: str
    type: str


def read_json(text: str) -> JsonText | None:
    """`text` as JSON, repaired as the module says; None if that cannot be done. Never raises.

    Time and memory grow with the length of `text`, not faster; nesting is not followed by recursion.
    """
    good = text if _is_good(text) else _repaired(text)
    return None if good is None else JsonText(good, _type_of(good))


def _is_good(text: str) -> bool:
    """Whether every reader takes `text` as it is."""
    if text.count("[") + text.count("{") > MAX_DEPTH or _HALF_A_PAIR.search(text):
        return False  # perhaps; brackets in strings count here too
    try:
        json.loads(
            text,
            parse_int=_check_number,
            parse_float=_check_number,
            parse_constant=_refuse,
            object_pairs_hook=_check_keys,
        )
    except ValueError:
        return False
    return True


def _check_number(number: str) -> int:
    if _is_too_big(number):
        _refuse(number)
    return 0


def _check_keys(members: list[tuple[str, Any]]) -> None:
    if len(members) > 1 and len({key for key, _ in members}) < len(members):
        _refuse("equal keys")


def _refuse(what: str) -> None:
    raise ValueError(what)


def _is_too_big(number: str) -> bool:
    """Whether no double is near: readers make it infinite, or refuse it."""
    return (len(number) > _DIGITS_OF_A_DOUBLE or "e" in number or "E" in number) and isinf(float(number))


def _repaired(text: str) -> str | None:
    return _Repair().run(text)


class _Container:
    """An object or array that is open. `keys` of an object; `drop_from`: where a repeated member begins."""

    __slots__ = ("drop_from", "keys")

    def __init__(self, keys: set[str] | None) -> None:
        self.keys = keys
        self.drop_from: int | None = None


class _Repair:
    """One pass over the tokens of a text. `_next` is what may come: the method that takes it."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._open: list[_Container] = []
        self._next: Callable[[str, str], bool] = self._value

    def run(self, text: str) -> str | None:
        tokens = _TOKEN.scanner(text)  # type: ignore[attr-defined]
        end = 0
        while (match := tokens.match()) is not None:
            end = match.end()
            if match.lastgroup == "blank":
                self._out.append(match[0])
            elif not self._next(match.lastgroup, match[0]):
                return None
        whole = end == len(text) and not self._open and self._next == self._nothing
        return "".join(self._out) if whole else None

    def _value(self, kind: str, token: str) -> bool:
        if token == "{" or token == "[":
            self._out.append(token)
            self._open.append(_Container(set() if token == "{" else None))
            self._next = self._first_key if token == "{" else self._first_item
            return len(self._open) <= MAX_DEPTH
        written = _scalar(kind, token)
        if written is None:
            return False
        self._out.append(written)
        self._next = self._after_value if self._open else self._nothing
        return True

    def _first_item(self, kind: str, token: str) -> bool:
        return self._close(token) if token == "]" else self._value(kind, token)

    def _first_key(self, kind: str, token: str) -> bool:
        return self._close(token) if token == "}" else self._key(kind, token)

    def _key(self, kind: str, token: str) -> bool:
        if kind != "string":
            return False
        written = _string(token)
        key = json.loads(written)
        container = self._open[-1]
        assert container.keys is not None
        if key in container.keys:
            container.drop_from = self._last_comma()
        container.keys.add(key)
        self._out.append(written)
        self._next = self._colon
        return True

    def _colon(self, kind: str, token: str) -> bool:
        self._out.append(token)
        self._next = self._value
        return token == ":"

    def _after_value(self, kind: str, token: str) -> bool:
        container = self._open[-1]
        if container.drop_from is not None:
            del self._out[container.drop_from :]
            container.drop_from = None
        if token == ",":
            self._out.append(token)
            self._next = self._value if container.keys is None else self._key
            return True
        return self._close(token)

    def _close(self, token: str) -> bool:
        if not self._open or token != ("]" if self._open[-1].keys is None else "}"):
            return False
        self._open.pop()
        self._out.append(token)
        self._next = self._after_value if self._open else self._nothing
        return True

    def _nothing(self, kind: str, token: str) -> bool:
        return False

    def _last_comma(self) -> int:
        """Where the comma before the key that is being read stands; only blanks can be between."""
        at = len(self._out) - 1
        while self._out[at] != ",":
            at -= 1
        return at


def _scalar(kind: str, token: str) -> str | None:
    match kind:
        case "string":
            return _string(token)
        case "number":
            return f'"{token}"' if _is_too_big(token) else token
        case "word":
            return f'"{token}"' if token in _NOT_A_NUMBER else _WORDS.get(token.lower())
    return None


def _string(token: str) -> str:
    return _IN_STRING.sub(_mend, token)


def _mend(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "half":
            return r"\ufffd"
        case "bare":
            return r"\\"
        case "control":
            return encode_basestring(found[0])[1:-1]
    return found[0]


def _type_of(text: str) -> str:
    """The JSON type of a good text."""
    whole = text.strip()
    named = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}
    if whole[0] in named:
        return named[whole[0]]
    return "integer" if whole.lstrip("-").isdigit() or float(whole).is_integer() else "number"
