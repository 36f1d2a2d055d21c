"""JSON schema as this format needs it: one reading, by which the decoder and the grammar cannot disagree.

A schema document is a client's and may say anything. What cannot be understood restricts nothing; `report`
hears of it. Nothing in here raises on any JSON value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from gateway.xtml.schema_keywords import ANNOTATIONS, HINTS, JSON_TYPES, KNOWN, OF_TYPE, RULES, WIRE_TYPES
from gateway.xtml.values import value_type

Schema = dict[str, Any]
Report = Callable[[str, str], None]
"""Hears (path, what is not understood or not kept)."""

MAX_ALTERNATIVES = 64  # of one place
_MAX_DEPTH = 40  # references and combinations followed in each other at one place
_MAX_STEPS = 500  # references and combinations followed at one place

_INDEX = re.compile("[0-9]{1,9}")  # Python refuses to read thousands of digits


class Alternative(NamedTuple):
    """One thing that a value may be.

    `schema` has one `type`, or an `enum` of values of one wire type (with the type `integer` where that is
    asked for).
    """

    wire_type: str
    schema: Schema

    @property
    def json_types(self) -> frozenset[str]:
        """The JSON types of its values; `number` stands for integers too."""
        if "enum" in self.schema:
            return frozenset(json_type(v) for v in self.schema["enum"])
        name = self.schema["type"]
        return frozenset({"number", "integer"}) if name == "number" else frozenset({name})


@dataclass(frozen=True, slots=True)
class Members:
    """What an object has. `required` keys are among `properties`; `extra` is the schema of all other keys."""

    properties: dict[str, Any]
    required: tuple[str, ...]
    extra: Schema | bool

    def of(self, key: str) -> Any:
        """The schema of a key's value; False where the key may not be there."""
        return self.properties.get(key, self.extra)


def _ignore(path: str, what: str) -> None:
    pass


class SchemaReader:
    """What may stand at the places of one schema document, references, combinations and types resolved."""

    def __init__(self, document: Any, report: Report = _ignore) -> None:
        self._document = document
        self._report = report
        self.steps = 0  # references and combinations followed so far

    def alternatives(self, node: Any, path: str) -> list[Alternative]:
        """What a value may be by the schema `node`; a schema that allows everything gives all wire types.

        So does one that allows nothing, that refers to itself without end, or that has more than
        MAX_ALTERNATIVES; these are reported.
        """
        found: list[Alternative] = []
        for plain in self._expand(node, path, 0, self.steps + _MAX_STEPS):
            found += self._by_type(plain, path)
            if len(found) > MAX_ALTERNATIVES:
                self._report(path, f"more than {MAX_ALTERNATIVES} alternatives, any value allowed")
                return anything()
        if not found:
            self._report(path, "allows nothing, any value allowed")
            return anything()
        return list({json.dumps(a): a for a in found}.values())

    def arguments(self, parameters: Any, path: str) -> list[Members]:
        """The object schemas of a tool's `parameters`, one of which the arguments follow.

        Empty where `parameters` is not a schema of objects: then the arguments are free.
        """
        objects = [a.schema for a in self.alternatives(parameters, path) if a.wire_type == "object"]
        if not objects or any("enum" in schema for schema in objects):
            self._report(path, "not the schema of an object with properties, any arguments allowed")
            return []
        return [self.members(schema, path) for schema in objects]

    def members(self, node: Schema, path: str) -> Members:
        """Of an object's schema, as `alternatives` gives it.

        Where `additionalProperties` is absent, an object with declared properties is closed: the model
        answers with what was declared.
        """
        declared = node.get("properties")
        extra = node.get("additionalProperties", declared is None)
        properties = {k: v for k, v in (declared or {}).items() if v is not False}
        required = dict.fromkeys(node.get("required", ()))
        for key in required:
            if key in properties:
                continue
            if declared and declared.get(key) is False:
                self._report(path, f"required {key!r} not enforced: its schema allows nothing")
            else:  # A required key is a declared one.
                properties[key] = True if extra is False else extra
        return Members(properties, tuple(k for k in required if k in properties), extra)

    def only_reference(self, node: Any) -> str | None:
        """The `$ref` of a schema that says nothing else."""
        if not isinstance(node, dict) or set(node) - ANNOTATIONS != {"$ref"}:
            return None
        return node["$ref"] if isinstance(node["$ref"], str) else None

    def behind(self, ref: str, path: str) -> Any:
        """What a reference leads to, through references that say nothing else."""
        return self._without_ref({"$ref": ref}, path)

    # References, allOf, anyOf and oneOf taken apart.

    def _expand(self, node: Any, path: str, depth: int, last_step: int) -> Iterator[Schema]:
        """Schemas without $ref, allOf, anyOf or oneOf, one of which the value matches."""
        if node is False:
            return
        if not isinstance(node, dict):
            if node is not True:
                self._report(path, "is not a schema, any value allowed")
            node = {}
        self.steps += 1
        if depth > _MAX_DEPTH or self.steps > last_step:
            self._report(path, "nested too deeply, any value allowed")
            yield {}
            return
        node = self._sound(node, path)
        if "$ref" in node:
            merged = self._merge(_less(node, "$ref"), self._target(node["$ref"], path), path)
            yield from self._expand(merged, path, depth + 1, last_step)
        elif "allOf" in node:
            merged = _less(node, "allOf")
            for part in node["allOf"]:
                merged = self._merge(merged, self._without_ref(part, path), path)
            yield from self._expand(merged, path, depth + 1, last_step)
        elif (keyword := next((k for k in ("anyOf", "oneOf") if k in node), None)) is not None:
            if keyword == "oneOf" and len(node["oneOf"]) > 1:
                self._report(path, "oneOf enforced as anyOf")
            rest = _less(node, keyword)
            for branch in node[keyword]:
                merged = self._merge(rest, self._without_ref(branch, path), path)
                yield from self._expand(merged, path, depth + 1, last_step)
        else:
            yield node

    def _target(self, ref: str, path: str) -> Any:
        """What a reference within the document leads to. Its `$id` may stand before the pointer."""
        base = self._document.get("$id") if isinstance(self._document, dict) else None
        pointer = ref.removeprefix(base) if isinstance(base, str) else ref
        node = self._document
        if pointer in ("", "#") or pointer.startswith("#/"):
            for step in pointer.split("/")[1:]:
                step = unquote(step).replace("~1", "/").replace("~0", "~")
                if isinstance(node, list) and _INDEX.fullmatch(step) and int(step) < len(node):
                    node = node[int(step)]
                elif isinstance(node, dict) and step in node:
                    node = node[step]
                else:
                    break
            else:
                return node
        shown = ref if len(ref) <= 80 else ref[:80] + "..."
        self._report(path, f"$ref {shown!r} not found, any value allowed")
        return {}

    def _without_ref(self, node: Any, path: str) -> Any:
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                return node
            node = self._merge(_less(node, "$ref"), self._target(node["$ref"], path), path)
        self._report(path, "$ref to itself, any value allowed")
        return {}

    def _merge(self, a: Any, b: Any, path: str) -> Any:
        """Both schemas at once, False where they contradict each other.

        Where one key cannot say both, the first stays and the loss is reported.
        """
        if a is False or b is False:
            return False
        a, b = (self._sound(x, path) if isinstance(x, dict) else {} for x in (a, b))
        merged = dict(a)
        for key, value in b.items():
            if key not in a or key in ANNOTATIONS or a[key] == value:
                merged.setdefault(key, value)
                continue
            both = _both(key, a[key], value)
            if both is _CONTRADICTION:
                return False
            if both is None:
                self._report(path, f"second {key} not enforced")
            else:
                merged[key] = both
        return merged

    def _sound(self, node: Schema, path: str) -> Schema:
        """`node` without keywords whose value is not what JSON schema says; each is reported."""
        sound = {}
        for key, value in node.items():
            rule = RULES.get(key)
            if rule is None or rule.holds(value):
                sound[key] = value
                continue
            self._report(path, f"{key} is not {rule.wanted}, not enforced")
            if key in ("type", "required") and isinstance(value, list):
                sound[key] = [v for v in value if isinstance(v, str) and (key != "type" or v in JSON_TYPES)]
                if key == "type" and not sound[key]:
                    del sound[key]
        return sound

    # Types.

    def _by_type(self, node: Schema, path: str) -> list[Alternative]:
        for keyword in node.keys() - KNOWN:
            self._report(path, f"{keyword} not enforced")
        allowed = _types_of(node)
        if "const" in node or "enum" in node:
            values = [node["const"]] if "const" in node else node["enum"]
            if "const" in node and "enum" in node:
                values = values if same_json(node["const"]) in map(same_json, node["enum"]) else []
            if nonfinite_number(values, "") is not None:
                self._report(path, "a number of enum or const is not JSON, left out")
                values = [v for v in values if nonfinite_number(v, "") is None]
            values = [v for v in values if json_type(v) in allowed or value_type(v) in allowed]
            for keyword in sorted(node.keys() & frozenset().union(*OF_TYPE.values())):
                self._report(path, f"{keyword} not enforced beside enum or const")
            of_type = {kind: [v for v in values if value_type(v) == kind] for kind in WIRE_TYPES}
            named = {"type": "integer"} if "integer" in allowed and "number" not in allowed else {}
            return [
                Alternative(kind, {"enum": chosen} | (named if kind == "number" else {}))
                for kind, chosen in of_type.items()
                if chosen
            ]
        out = []
        for kind in dict.fromkeys("number" if t == "integer" else t for t in allowed):
            own = {k: node[k] for k in node if k in OF_TYPE.get(kind, ())}
            integer = kind == "number" and "number" not in allowed
            out.append(Alternative(kind, {"type": "integer" if integer else kind} | own))
        return out


def anything() -> list[Alternative]:
    """What a value may be where nothing is said."""
    return [Alternative(kind, {"type": kind}) for kind in WIRE_TYPES]


def is_anything(alternatives: list[Alternative]) -> bool:
    """Whether these allow every value."""
    return alternatives == anything()


def json_type(value: Any) -> str:
    """The JSON schema type of a decoded value: as its wire type, but `integer` for 5 and 5.0."""
    kind = value_type(value)
    whole = kind == "number" and math.isfinite(value) and value == value // 1
    return "integer" if whole else kind


def same_json(value: Any) -> str:
    """The same text for values that are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_plain(value), sort_keys=True)


def nonfinite_number(value: Any, path: str) -> str | None:
    """The path of the first number in `value` that JSON cannot write, None if there is none.

    Parsers read NaN, Infinity and literals such as 1e999 as floats that no JSON can hold, and no prompt
    either. A reader of requests that meets one refuses the request and names the path. Never raises; deep
    nesting is no matter.
    """
    left: list[tuple[Any, str]] = [(value, path)]
    while left:
        node, at = left.pop()
        if isinstance(node, float) and not math.isfinite(node):
            return at
        if isinstance(node, dict):
            left += [(v, f"{at}.{k}") for k, v in reversed(node.items())]
        elif isinstance(node, list):
            left += [(v, f"{at}[{i}]") for i, v in reversed(list(enumerate(node)))]
    return None


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(v) for v in value]
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case _:
            return value


def _types_of(node: Schema) -> list[str]:
    """The types a node names; else the one that its keywords are about; else all."""
    named = node.get("type")
    types = [named] if isinstance(named, str) else list(named or ())
    if not types and "enum" not in node and "const" not in node:
        about = [t for t in WIRE_TYPES if (OF_TYPE.get(t, set()) | HINTS.get(t, set())) & node.keys()]
        types = about if len(about) == 1 else []
    if types and node.get("nullable") is True and "null" not in types:
        types = [*types, "null"]
    return types or list(WIRE_TYPES)


def _less(node: Schema, keyword: str) -> Schema:
    return {k: v for k, v in node.items() if k != keyword}


_CONTRADICTION: Any = object()


def _both(key: str, a: Any, b: Any) -> Any:
    """One value that says `a` and `b` of a keyword; None where there is none, or _CONTRADICTION."""
    match key, a, b:
        case "properties", dict(), dict():
            shared = {k: {"allOf": [a[k], b[k]]} if a[k] != b[k] else a[k] for k in a.keys() & b.keys()}
            return a | b | shared
        case "required", list(), list():
            return list(dict.fromkeys([*a, *b]))
        case "enum", list(), list():
            in_b = set(map(same_json, b))
            return [v for v in a if same_json(v) in in_b] or _CONTRADICTION
        case "const", _, _:
            return a if same_json(a) == same_json(b) else _CONTRADICTION
        case "type", _, _:
            left, right = (dict.fromkeys([x] if isinstance(x, str) else x) for x in (a, b))
            kept = [t for t in left if t in right or (t == "integer" and "number" in right)]
            kept += [t for t in right if t == "integer" and "number" in left and "integer" not in left]
            return kept or _CONTRADICTION
        case "nullable", _, _:
            return a and b
        case (("minimum" | "minLength" | "minItems"), _, _):
            return max(a, b)
        case (("maximum" | "maxLength" | "maxItems"), _, _):
            return min(a, b)
        case (("exclusiveMinimum" | "exclusiveMaximum"), _, _):
            if isinstance(a, bool) or isinstance(b, bool):
                return None
            return max(a, b) if key == "exclusiveMinimum" else min(a, b)
        case "multipleOf", int(), int():
            return math.lcm(a, b)
        case (("items" | "additionalProperties"), _, _) if not isinstance(a, list) and not isinstance(
            b, list
        ):
            return False if a is False or b is False else {"allOf": [a, b]}
        case "allOf", _, _:
            return [*a, *b]
        case (("anyOf" | "oneOf"), _, _):
            return [{"allOf": [x, y]} for x in a for y in b] if len(a) * len(b) <= MAX_ALTERNATIVES else None
        case _:
            return None
