# ruff: noqa: E501  (templates read best on one line)
"""Random parameters: a JSON schema, a value, and how a person says the value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.mini.skills.base import Source, listing
from engine.mini.words import WORDS

_STRING_KEYS = (
    "name", "city", "text", "query", "title", "color", "address", "email", "phone", "origin", "destination", "topic",
    "message", "recipient", "subject", "body", "note", "label", "code", "path", "file", "folder", "owner", "street",
    "country", "author", "artist", "song", "product", "model", "room", "date", "time", "start", "end",
)  # fmt: skip
_INTEGER_KEYS = (
    "count", "amount", "limit", "page", "days", "hours", "guests", "seats", "quantity", "size", "width", "height",
    "age", "year", "id", "price", "minutes", "level", "number", "rank", "order_id", "user_id", "max_results",
)  # fmt: skip
_BOOLEAN_KEYS = ("verbose", "urgent", "public", "active", "enabled", "notify", "loud", "hidden", "locked", "repeat", "dry_run")  # fmt: skip
_ARRAY_KEYS = ("tags", "names", "items", "cities", "colors", "words", "topics", "labels")
_INTEGER_ARRAY_KEYS = ("numbers", "values", "points", "ids", "pages")
_OBJECT_KEYS = ("user", "customer", "contact", "sender", "place", "options")
_ENUMS = {
    "unit": ("celsius", "fahrenheit"),
    "priority": ("low", "medium", "high"),
    "mode": ("fast", "slow", "quiet"),
    "format": ("short", "long", "full"),
    "level": ("easy", "hard"),
    "size": ("small", "large"),
    "status": ("open", "closed"),
    "sort": ("name", "date", "price"),
    "language": ("French", "German", "Spanish", "Italian"),
}
_NUMBERS = WORDS["number_word"]


@dataclass(frozen=True)
class Parameter:
    """`spoken` is what the user writes for `value`."""

    key: str
    schema: dict[str, Any]
    value: Any
    spoken: str


def parameter(
    source: Source, taken: Sequence[str] = (), nested: bool = True, untyped: bool = False
) -> Parameter:
    """A parameter whose key is not in `taken`; with `untyped`, one whose type shows in how it is said."""
    while True:
        made = _untyped(source) if untyped else _parameter(source, nested)
        if made.key not in taken:
            return made


def parameters(source: Source, n: int, nested: bool = True, untyped: bool = False) -> list[Parameter]:
    """`n` parameters in the order of their keys, which is the order of the rendered schema."""
    made: list[Parameter] = []
    for _ in range(n):
        made.append(parameter(source, [p.key for p in made], nested, untyped))
    return sorted(made, key=lambda p: p.key)


def _parameter(source: Source, nested: bool) -> Parameter:
    kind = source.random.random()
    if kind < 0.4:
        return _string(source)
    if kind < 0.6:
        return _integer(source)
    if kind < 0.72:
        truth = source.chance(0.5)
        said = source.pick(("true", "yes", "on") if truth else ("false", "no", "off"))
        return Parameter(_key(source, _BOOLEAN_KEYS), {"type": "boolean"}, truth, said)
    if kind < 0.8:
        return _enum(source)
    if kind < 0.85:
        amount = source.integer(1, 99) + source.pick((0.25, 0.5, 0.75))
        return Parameter(_key(source, ("amount", "price", "distance", "weight")), {"type": "number"}, amount, str(amount))  # fmt: skip
    if kind < 0.95 or not nested:
        return _array(source)
    text, number = _string(source), _integer(source)
    while number.key == text.key:
        number = _integer(source)
    fields = sorted((text, number), key=lambda p: p.key)
    schema = {"type": "object", "properties": {p.key: p.schema for p in fields}}
    spoken = " and ".join(f"{p.key} {p.spoken}" for p in fields)
    return Parameter(_key(source, _OBJECT_KEYS), schema, {p.key: p.value for p in fields}, spoken)


def _key(source: Source, known: Sequence[str]) -> str:
    """One of the known keys, or one that nobody has seen."""
    if source.chance(0.5):
        return source.pick(known)
    return source.own(
        lambda: source.made_up() if source.chance(0.7) else f"{source.made_up()}_{source.made_up()}"
    )


def _enum(source: Source) -> Parameter:
    if source.chance(0.4):
        key = source.pick(tuple(_ENUMS))
        values = list(_ENUMS[key])
    else:
        key = _key(source, tuple(_ENUMS))
        values = list(dict.fromkeys(source.value() for _ in range(source.random.randint(2, 4))))
    value = source.pick(values)
    return Parameter(key, {"type": "string", "enum": values}, value, value)


def _untyped(source: Source) -> Parameter:
    """Digits, true or false, several words with "and", or one word that is none of these."""
    kind = source.random.random()
    if kind < 0.3:
        value = source.integer(0, 9999)
        return Parameter(_key(source, _INTEGER_KEYS), {"type": "integer"}, value, str(value))
    if kind < 0.4:
        truth = source.chance(0.5)
        return Parameter(_key(source, _BOOLEAN_KEYS), {"type": "boolean"}, truth, str(truth).lower())
    if kind < 0.55:
        words = [source.term("noun") for _ in range(source.random.randint(2, 3))]
        return Parameter(_key(source, _ARRAY_KEYS), {"type": "array", "items": {"type": "string"}}, words, listing(words))  # fmt: skip
    text = source.pick((source.term("noun", "adjective"), source.name(), source.city()))
    return Parameter(_key(source, _STRING_KEYS), {"type": "string"}, text, text)


def _string(source: Source) -> Parameter:
    key = _key(source, _STRING_KEYS)
    if key in ("city", "destination", "origin"):
        value = source.city()
    elif key in ("name", "recipient", "owner", "author", "artist"):
        value = source.name()
    elif key == "email":
        value = source.email()
    elif key == "date":
        value = source.date()
    elif key in ("time", "start", "end"):
        value = source.time()
    elif key in ("text", "message", "title", "note", "body", "query", "song"):
        value = source.phrase(1, 3)
    else:
        value = source.value()
    return Parameter(key, {"type": "string"}, value, value)


def _integer(source: Source) -> Parameter:
    key = _key(source, _INTEGER_KEYS)
    if source.chance(0.2):  # a table to be learned: a number word that was never seen cannot be guessed
        value = source.random.randrange(len(_NUMBERS))
        return Parameter(key, {"type": "integer"}, value, _NUMBERS[value])
    value = source.integer(0, 12) if source.chance(0.3) else source.integer(2, 9999)
    return Parameter(key, {"type": "integer"}, value, str(value))


def _array(source: Source) -> Parameter:
    n = source.random.randint(1, 3)
    if source.chance(0.4):
        numbers = [source.integer(0, 99) for _ in range(n)]
        schema = {"type": "array", "items": {"type": "integer"}}
        return Parameter(_key(source, _INTEGER_ARRAY_KEYS), schema, numbers, listing(list(map(str, numbers))))
    words = [source.value() for _ in range(n)]
    return Parameter(_key(source, _ARRAY_KEYS), {"type": "array", "items": {"type": "string"}}, words, listing(words))  # fmt: skip


def spoken(source: Source, given: Sequence[Parameter]) -> str:
    """`city Paris, days three and verbose yes`, in any order and several styles."""
    order = source.random.sample(list(given), len(given))
    style = source.random.random()
    if style < 0.4:
        pairs = [f"{p.key} {p.spoken}" for p in order]
        return (
            listing(pairs) if all(not isinstance(p.value, list | dict) for p in order) else "; ".join(pairs)
        )
    if style < 0.7:
        return "; ".join(f"{p.key}: {p.spoken}" for p in order)
    return "; ".join(f"{p.key} = {p.spoken}" for p in order)


def object_schema(given: Sequence[Parameter], required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {p.key: p.schema for p in given}, "required": list(required)}
