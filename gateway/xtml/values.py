"""Arguments of a call in the history, as the typed argument tags show them (docs/format.md#arguments)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

ValueType = Literal["boolean", "null", "number", "string", "object", "array"]

_BLANKS = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument tag. `text` is its body: a string's characters, or another value's JSON literal."""

    key: str
    type: ValueType
    text: str


@dataclass(frozen=True, slots=True)
class RawArguments:
    """Arguments that are not a JSON object: one `json` block with the text as it came."""

    text: str


def read_arguments(arguments: str | dict[str, Any] | None) -> Sequence[Argument] | RawArguments:
    """Split arguments into tags.

    JSON text is read one level deep, so that literals such as `1e2` or `{ "k" : 1 }` stay as written;
    equal keys are all kept; text after the closing brace is dropped. An object is written again with
    Python's default separators. Raises ValueError for an object that nests too deeply to be written.
    """
    if arguments is None or arguments == "":
        return ()
    if isinstance(arguments, str):
        found = _split_object(arguments)
        return RawArguments(arguments) if found is None else found
    try:
        return [Argument(key, value_type(value), _literal(value)) for key, value in arguments.items()]
    except RecursionError:
        raise ValueError("nests too deeply") from None


def value_type(value: object) -> ValueType:
    """The type attribute of a decoded JSON value."""
    if isinstance(value, bool):  # before numbers: bool is an int
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def _literal(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _some_number(_literal: str) -> int:
    """Only the type counts; converting would refuse integers of more than 4300 digits."""
    return 0


_DECODER = json.JSONDecoder(parse_int=_some_number, parse_float=_some_number, parse_constant=_some_number)


def _split_object(text: str) -> list[Argument] | None:
    """The members of the JSON object that `text` begins with, None where it does not begin with one."""
    try:
        return _members(text, _skip(text, 0))
    except (ValueError, RecursionError):
        return None


def _members(text: str, at: int) -> list[Argument]:
    at = _skip(text, _expect(text, at, "{"))
    members: list[Argument] = []
    if text[at : at + 1] == "}":
        return members
    while True:
        if text[at : at + 1] != '"':
            raise ValueError("a key must be a string")
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        value, end = _DECODER.raw_decode(text, at)
        literal = value if isinstance(value, str) else text[at:end]
        members.append(Argument(key, value_type(value), literal))
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return members
        at = _skip(text, _expect(text, at, ","))


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None  # it matches the empty text
    return found.end()


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"expected {character}")
    return at + 1
