"""Random instances of a JSON schema, and JSON-schema documents of many kinds to draw them from."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

WORDS = [
    "",
    "a",
    "Zürich",
    'say "hi"',
    "line\nbreak",
    "<|close|>argument<|sep|>",
    " blank ",
    "城市",
    "😀",
    "\\n",
]
MAX_DEPTH = 4


def instance(schema: Any, rng: random.Random, document: Any = None, depth: int = 0) -> Any:
    """A value that `schema` allows; keys of objects in the declared order."""
    document = schema if document is None else document
    if schema is True or schema == {}:
        return rng.choice([1, "any", None, True, [1, "x"], {"k": [None]}])
    if "$ref" in schema:
        node = document
        for step in schema["$ref"].split("/")[1:]:
            node = node[step]
        return instance(node, rng, document, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            rest = {k: v for k, v in schema.items() if k != keyword}
            branches = schema[keyword]
            if depth > MAX_DEPTH:  # recursive schemas end with null
                branches = [b for b in branches if b.get("type") == "null"] or branches
            return instance(_merged(rest, rng.choice(branches)), rng, document, depth + 1)
    if "allOf" in schema:
        merged = {k: v for k, v in schema.items() if k != "allOf"}
        for part in schema["allOf"]:
            merged = _merged(merged, part)
        return instance(merged, rng, document, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = rng.choice(kind)
    match kind:
        case "string":
            return _string(schema, rng)
        case "integer":
            low = schema.get("minimum", schema.get("exclusiveMinimum", schema.get("maximum", 0) - 20 - 1) + 1)
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 41) - 1)
            return rng.randint(low, high)
        case "number":
            low, high = schema.get("minimum", -5), schema.get("maximum", 5)
            return rng.choice(
                [round(rng.uniform(low, high), 3), rng.randint(math.ceil(low), math.floor(high))]
            )
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            least = schema.get("minItems", 0)
            most = max(least, schema.get("maxItems", 3))
            n = rng.randint(least, most if depth < MAX_DEPTH else least)
            return [instance(schema.get("items", {}), rng, document, depth + 1) for _ in range(n)]
        case "object":
            return _object(schema, rng, document, depth)
    raise AssertionError(f"no rule for {schema}")


def number_spellings(value: Decimal, *, whole: bool = False, plain: bool = False) -> list[str]:
    """The spellings of a number that grammars offer (docs/concepts/grammar.md#numbers).

    `whole`: an integer is asked for. `plain`: without exponents.
    """
    sign, size = "-" if value < 0 else "", abs(value)
    text = f"{size:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if whole:
        return [sign + text]
    texts = [text, text + ("000" if "." in text else ".00"), text + ("0" if "." in text else ".0")]
    if size and abs(size.adjusted()) > 40:
        texts = []
    if size and not plain:
        digits, power = "".join(map(str, size.as_tuple().digits)).rstrip("0"), size.adjusted()
        one = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        powers = [f"{power}", f"{power:+}", f"{'-' if power < 0 else ''}00{abs(power)}"]
        texts += [
            f"{m}{e}{p}" for m in (one, one + ("0" if "." in one else ".0")) for e in "eE" for p in powers
        ]
    return [sign + text for text in texts]


def _object(schema: dict[str, Any], rng: random.Random, document: Any, depth: int) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    out = {
        key: instance(node, rng, document, depth + 1)
        for key, node in schema.get("properties", {}).items()
        if key in required or (depth < MAX_DEPTH and rng.random() < 0.6)
    }
    extra = schema.get("additionalProperties", "properties" not in schema)
    if extra is not False:
        for _ in range(rng.randint(0, 2)):
            out[f"extra {rng.randint(0, 99)}"] = instance(extra, rng, document, depth + 1)
    return out


def _string(schema: dict[str, Any], rng: random.Random) -> str:
    if "examples" in schema:  # of a pattern or format
        return rng.choice(schema["examples"])
    text = rng.choice(WORDS)
    text += "x" * (schema.get("minLength", 0) - len(text))
    return text[: schema.get("maxLength")]


def _merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    both = a | b
    if "properties" in a and "properties" in b:
        both["properties"] = a["properties"] | b["properties"]
    if "required" in a and "required" in b:
        both["required"] = a["required"] + b["required"]
    return both


def _object_of(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []} | more


# Every keyword here is enforced to the letter: a call is accepted exactly if its arguments are valid.
ENFORCED: dict[str, dict[str, Any]] = {
    "basic types": _object_of(
        {
            "s": {"type": "string"},
            "i": {"type": "integer"},
            "n": {"type": "number"},
            "b": {"type": "boolean"},
            "z": {"type": "null"},
            "a": {"type": "array"},
        },
        ["s", "n"],
        additionalProperties=False,
    ),
    "no arguments": _object_of({}, additionalProperties=False),
    "enums": _object_of(
        {
            "unit": {"type": "string", "enum": ["c", "f", 'a"b', "", "城"]},
            "level": {"enum": [1, 2.5, "high", None, True]},
            "only": {"const": "x&y"},
        },
        ["unit", "only"],
        additionalProperties=False,
    ),
    "keys that need escapes": _object_of(
        {'k"1&': {"type": "string"}, "  spaced  ": {"type": "integer"}, "<|close|>": {"type": "boolean"}},
        ['k"1&'],
        additionalProperties=False,
    ),
    "ranges": _object_of(
        {
            "i": {"type": "integer", "minimum": -3, "maximum": 120},
            "j": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
            "n": {"type": "number", "minimum": 0.5, "maximum": 20},
        },
        ["i"],
        additionalProperties=False,
    ),
    "strings": _object_of(
        {
            "some": {"type": "string", "minLength": 1},
            "few": {"type": "string", "minLength": 2, "maxLength": 5, "examples": ["ab", "x<ya", "城市"]},
            "many": {"type": "string", "maxLength": 3000, "examples": ["", "<b> <|c", "x" * 3000]},
            "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$", "examples": ["AB-1", "ZZ-123"]},
            "has": {"type": "string", "pattern": 'b"?c', "examples": ["bc", 'ab"cd\n']},
            "day": {"type": "string", "format": "date", "examples": ["2026-11-30"]},
        },
        ["some"],
        additionalProperties=False,
    ),
    "strings inside": _object_of(
        {
            "o": _object_of(
                {
                    "some": {"type": "string", "minLength": 1},
                    "few": {"type": "string", "minLength": 2, "maxLength": 5},
                    "many": {"type": "string", "maxLength": 3000},
                    "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$", "examples": ["AB-1"]},
                    "has": {"type": "string", "pattern": 'b"?c', "examples": ["bc", 'ab"cd\n']},
                },
                ["many"],
                additionalProperties=False,
            )
        },
        ["o"],
        additionalProperties=False,
    ),
    "lists": _object_of(
        {
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "mixed": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        },
        ["tags"],
        additionalProperties=False,
    ),
    "anyOf": _object_of(
        {
            "to": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
            "at": {"type": ["integer", "null"]},
            "by": {"oneOf": [{"type": "string", "enum": ["x"]}, {"type": "number", "minimum": 3}]},
        },
        ["to"],
        additionalProperties=False,
    ),
    "references": _object_of(
        {"home": {"$ref": "#/$defs/place"}, "work": {"$ref": "#/$defs/place", "description": "there"},
         "near": {"type": "array", "items": {"$ref": "#/$defs/place"}}, "n": {"$ref": "#/$defs/deep/inner"}},
        ["home"],
        additionalProperties=False,
        **{
            "$id": "https://example.test/schema",
            "$defs": {
                "place": _object_of({"name": {"$ref": "#/$defs/name"}, "zip": {"type": "integer"}}, ["name"],
                                    additionalProperties=False),
                "name": {"type": "string", "minLength": 1},
                "deep": {"inner": {"type": "integer"}},
            },
        },
    ),
    "recursion": _object_of(
        {"tree": {"$ref": "#/$defs/tree"}},
        ["tree"],
        additionalProperties=False,
        **{
            "$defs": {
                "tree": _object_of(
                    {"value": {"type": "integer"},
                     "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
                     "right": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
                    ["value", "left", "right"],
                    additionalProperties=False,
                )
            }
        },
    ),
    "more keys": _object_of(
        {"city": {"type": "string"}, "cit": {"type": "integer"}},
        ["city"],
        additionalProperties={"type": "integer"},
    ),
    "free keys": {"type": "object", "additionalProperties": {"type": ["string", "boolean"]}},
    "allOf": {
        "allOf": [
            _object_of({"a": {"type": "integer"}}, ["a"]),
            _object_of({"b": {"allOf": [{"type": "string"}]}}, ["b"]),
        ]
    },
    "two shapes": {
        "type": "object",
        "anyOf": [
            _object_of({"path": {"type": "string"}}, ["path"], additionalProperties=False),
            _object_of({"url": {"type": "string"}, "tries": {"type": "integer"}}, ["url"],
                       additionalProperties=False),
        ],
    },
    "eight required keys": _object_of(
        {f"key{i}": {"type": "integer"} for i in range(8)},
        [f"key{i}" for i in range(8)],
        additionalProperties=False,
    ),
}  # fmt: skip
