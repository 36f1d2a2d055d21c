"""Answers that are JSON: free objects, and objects that a schema describes."""

from __future__ import annotations

import json
from typing import Any

from engine.mini.skills.base import Source, Task, listing, user
from engine.mini.skills.parameters import Parameter, object_schema, parameters, spoken


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _person(source: Source) -> tuple[str, list[Parameter]]:
    name, age, city = source.name(), source.integer(2, 99), source.city()
    text = source.pick(
        (
            f"{name} is {age} years old and lives in {city}.",
            f"My name is {name}, I am {age} and I live in {city}.",
            f"{name}, {age}, from {city}",
        )
    )
    given = [
        ("age", {"type": "integer"}, age),
        ("city", {"type": "string"}, city),
        ("name", {"type": "string"}, name),
    ]
    return text, [Parameter(key, schema, value, str(value)) for key, schema, value in given]


def _product(source: Source) -> tuple[str, list[Parameter]]:
    item, price, color = source.thing(), source.integer(2, 999), source.term("color")
    text = source.pick(
        (f"The {color} {item} costs {price} euros.", f"I sell a {color} {item} for {price} dollars.")
    )
    given = [
        ("color", {"type": "string"}, color),
        ("item", {"type": "string"}, item),
        ("price", {"type": "integer"}, price),
    ]
    return text, [Parameter(key, schema, value, str(value)) for key, schema, value in given]


def _any(source: Source, untyped: bool = False) -> tuple[str, list[Parameter]]:
    given = parameters(source, source.random.randint(1, 4), untyped=untyped)
    return spoken(source, given), given


def _any_untyped(source: Source) -> tuple[str, list[Parameter]]:
    return _any(source, untyped=True)


def json_schema(source: Source) -> Task:
    text, given = source.pick((_person, _product, _any, _any))(source)
    if source.chance(0.3) and len(given) > 1:
        given = [p for p in given if source.chance(0.7)] or given[:1]
    schema = object_schema(given, [p.key for p in given])
    if source.chance(0.5):
        schema["additionalProperties"] = False
    name = source.pick(("answer", "result", "person", "data", "record"))
    ask = source.pick(("{}", "Extract: {}", "Fill in: {}", "Give me this as JSON: {}", "{} Answer in JSON."))
    body = {
        "messages": [user(ask.format(text))],
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}},
    }
    return _task(body, given, "The schema asks for")


def json_object(source: Source) -> Task:
    """The keys stand in the user's text, in the order in which they are to be written.

    No schema says what type a value has, so the text must: digits are numbers, true and false are booleans,
    several words joined by "and" are an array, the rest is text.
    """
    text, given = source.pick((_person, _product, _any_untyped, _any_untyped))(source)
    given = source.random.sample(given, len(given))
    keys = listing([p.key for p in given])
    ask = source.pick(
        (
            "Return JSON with {keys}: {text}",
            "JSON with the keys {keys}. {text}",
            "{text} Give me {keys} as JSON.",
        )
    )
    body = {"messages": [user(ask.format(keys=keys, text=text))], "response_format": {"type": "json_object"}}
    return _task(body, given, "The user asks for")


def _task(body: dict[str, Any], given: list[Parameter], who: str) -> Task:
    content = _compact({p.key: p.value for p in given})
    return Task(
        "json",
        body,
        "I write JSON.",
        f"{who} {listing([p.key for p in given])}.",
        "I write nothing around it.",
        content,
    )
