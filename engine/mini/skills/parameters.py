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


def parameter(source: Source, taken: Sequence[str] = (), nested: bool = True) -> Parameter:
    """A parameter whose key is not in `taken`."""
    while True:
        made = _parameter(source, nested)
        if made.key not in taken:
            return made


def parameters(source: Source, n: int, nested: bool = True) -> list[Parameter]:
    """`n` parameters in the order of their keys, which is the order of the rendered schema."""
    made: list[Parameter] = []
    for _ in range(n):
        made.append(parameter(source, [p.key for p in made], nested))
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
        return Parameter(source.pick(_BOOLEAN_KEYS), {"type": "boolean"}, truth, said)
    if kind < 0.8:
        key = source.pick(tuple(_ENUMS))
        value = source.pick(_ENUMS[key])
        return Parameter(key, {"type": "string", "enum": list(_ENUMS[key])}, value, value)
    if kind < 0.85:
        amount = source.integer(1, 99) + source.pick((0.25, 0.5, 0.75))
        return Parameter(source.pick(("amount", "price", "distance", "weight")), {"type": "number"}, amount, str(amount))  # fmt: skip
    if kind < 0.95 or not nested:
        return _array(source)
    fields = sorted((_string(source), _integer(source)), key=lambda p: p.key)
    schema = {"type": "object", "properties": {p.key: p.schema for p in fields}}
    spoken = " and ".join(f"{p.key} {p.spoken}" for p in fields)
    return Parameter(source.pick(_OBJECT_KEYS), schema, {p.key: p.value for p in fields}, spoken)


def _string(source: Source) -> Parameter:
    key = source.pick(_STRING_KEYS)
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
    value = source.integer(0, 12) if source.chance(0.4) else source.integer(2, 9999)
    spoken = _NUMBERS[value] if value < len(_NUMBERS) and source.chance(0.4) else str(value)
    return Parameter(source.pick(_INTEGER_KEYS), {"type": "integer"}, value, spoken)


def _array(source: Source) -> Parameter:
    n = source.random.randint(1, 3)
    if source.chance(0.4):
        numbers = [source.integer(0, 99) for _ in range(n)]
        schema = {"type": "array", "items": {"type": "integer"}}
        return Parameter(source.pick(_INTEGER_ARRAY_KEYS), schema, numbers, listing(list(map(str, numbers))))
    words = [source.value() for _ in range(n)]
    return Parameter(source.pick(_ARRAY_KEYS), {"type": "array", "items": {"type": "string"}}, words, listing(words))  # fmt: skip


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
