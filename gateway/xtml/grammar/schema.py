"""JSON schemas brought into the shape that xgrammar enforces, and a note of each rule that had to be let go.

xgrammar 0.2.8 raises on some keywords, ignores others, and lets some accept more than they say; which, was
measured. What comes out of here compiles, is self-contained, and never refuses a document only because a
keyword is not understood: the nearest looser rule stands in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from gateway.xtml.grammar.cost import Budget
from gateway.xtml.grammar.formats import pattern_of_format
from gateway.xtml.grammar.ranges import UnsupportedPattern
from gateway.xtml.grammar.regex import cost, text_of_length, whole_text
from gateway.xtml.grammar.rules import regex_rules, renamed

Schema = dict[str, Any]

# The types of the wire (docs/format.md#arguments).
TYPES = ("string", "number", "boolean", "null", "object", "array")
MAX_DEPTH = 40  # nesting of one schema; vLLM refuses tags nested more than 80 deep
MAX_ALTERNATIVES = 32
MAX_PLACES = 2000  # sub-schemas looked at in one document, references followed
# In a row between the pieces of a JSON value: room to indent, no endless blanks (docs/decisions.md#a26).
MAX_BLANKS = 16

_ANNOTATIONS = {
    "$anchor", "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description",
    "example", "examples", "readOnly", "title", "writeOnly",
}  # fmt: skip
_OF_TYPE = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
}
# Keywords that hint at a type and are not enforced themselves.
_NOT_ENFORCED = {
    "number": {"multipleOf"},
    "object": {"minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired",
               "dependentSchemas", "dependencies", "unevaluatedProperties"},
    "array": {"uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems", "additionalItems"},
}  # fmt: skip
_GENERAL = {"$ref", "type", "enum", "const", "anyOf", "oneOf", "allOf", "nullable"}
_INDEX = re.compile("[0-9]{1,9}")  # Python refuses to read thousands of digits
_PATTERN_RULE = re.compile(r'^(\w+) ::= Regex\("((?:\\.|[^"\\])*)", json_string=true\)$', re.MULTILINE)


@lru_cache(maxsize=4096)
def compiled(schema: str) -> str | None:
    """The EBNF of a JSON schema (as JSON text), None where xgrammar refuses it."""
    import xgrammar  # brings torch; see `grammar.load_compiler`

    try:
        grammar = xgrammar.Grammar.from_json_schema(schema, max_whitespace_cnt=MAX_BLANKS)
        return _PATTERN_RULE.sub(_written_out, str(grammar))
    except (RuntimeError, ValueError, TypeError):
        return None


def _written_out(rule: re.Match[str]) -> str:
    """The rules of a pattern inside a JSON string.

    Patterns given to xgrammar are over escaped characters already (`whole_text(in_json=True)`); its own way
    would leave out every character that needs an escape.
    """
    grammar = regex_rules(re.sub(r"\\(.)", r"\1", rule[2]))
    return renamed(grammar, lambda name: rule[1] if name == "root" else f"{rule[1]}_regex_{name}").strip()


class Shapes:
    """What may stand at a place of one schema document. `report(path, what)` hears what is not enforced.

    `budget` is shared by the documents of a request.
    """

    def __init__(self, document: Any, report: Callable[[str, str], None], budget: Budget) -> None:
        self._document = document
        self._report = report
        self._budget = budget
        self._names: dict[str, str] = {}  # $ref -> name in $defs
        self._definitions: dict[str, Schema] = {}
        self._places_left = MAX_PLACES

    def alternatives(self, node: Any, path: str, depth: int = 0) -> list[tuple[str, Schema]]:
        """The node as (wire type, schema) pairs, each of one type with references resolved at this level.

        A schema that allows everything gives all six types.
        """
        found: list[tuple[str, Schema]] = []
        for plain in self._expand(node, path, depth):
            found += self._by_type(plain, path)
            if len(found) > MAX_ALTERNATIVES:
                self._report(path, f"more than {MAX_ALTERNATIVES} alternatives, any value allowed")
                return [(t, {"type": t}) for t in TYPES]
        if not found:
            self._report(path, "allows nothing, any value allowed")
            return [(t, {"type": t}) for t in TYPES]
        return list({json.dumps(pair): pair for pair in found}.values())

    def json_schema(self, node: Any, path: str) -> str:
        """A self-contained schema that xgrammar compiles, as JSON text."""
        self._definitions, self._names = {}, {}
        return self._document_of(self._clean(node, path, 0), path, None)

    def json_of_type(self, kind: str, node: Schema, path: str) -> str:
        """As `json_schema`, of one pair of `alternatives`."""
        self._definitions, self._names = {}, {}
        return self._document_of(self._clean_type(kind, node, path, 0), path, kind)

    def _document_of(self, schema: Schema, path: str, kind: str | None) -> str:
        document = schema | {"$defs": self._definitions} if self._definitions else schema
        text = json.dumps(document)
        if compiled(text) is None:
            self._report(path, "schema not enforced" + (f" beyond its type {kind}" if kind else ""))
            return json.dumps({"type": kind} if kind else {})
        return text

    # What a node says: references, allOf and anyOf taken apart.

    def _expand(self, node: Any, path: str, depth: int) -> Iterator[Schema]:
        """Schemas without $ref, allOf, anyOf or oneOf, one of which the value matches."""
        if node is False:
            return
        if not isinstance(node, dict):
            if node is not True:
                self._report(path, "is not a schema")
            node = {}
        self._places_left -= 1
        if depth > MAX_DEPTH or self._places_left < 0:
            self._report(path, "nested too deeply, any value allowed")
            yield {}
            return
        if "$ref" in node:
            rest = {k: v for k, v in node.items() if k != "$ref"}
            merged: Any = self._merge(rest, self._target(node["$ref"], path), path)
            yield from self._expand(merged, path, depth + 1)
        elif isinstance(node.get("allOf"), list):
            merged = {k: v for k, v in node.items() if k != "allOf"}
            for part in node["allOf"]:
                merged = self._merge(merged, self._without_ref(part, path), path)
            yield from self._expand(merged, path, depth + 1)
        else:
            for keyword in ("anyOf", "oneOf"):
                if isinstance(node.get(keyword), list):
                    rest = {k: v for k, v in node.items() if k != keyword}
                    for branch in node[keyword]:
                        merged = self._merge(rest, self._without_ref(branch, path), path)
                        yield from self._expand(merged, path, depth + 1)
                    return
            yield node

    def _target(self, ref: Any, path: str) -> Any:
        base = self._document.get("$id") if isinstance(self._document, dict) else None
        pointer = ref.removeprefix(base) if isinstance(ref, str) and isinstance(base, str) else ref
        node = self._document
        if isinstance(pointer, str) and (pointer in ("", "#") or pointer.startswith("#/")):
            for step in pointer.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                if isinstance(node, list) and _INDEX.fullmatch(step) and int(step) < len(node):
                    node = node[int(step)]
                elif isinstance(node, dict) and step in node:
                    node = node[step]
                else:
                    break
            else:
                return node
        self._report(path, f"$ref {ref!r} not found, any value allowed")
        return {}

    def _without_ref(self, node: Any, path: str) -> Any:
        for _ in range(MAX_DEPTH):
            if not isinstance(node, dict) or "$ref" not in node:
                return node
            rest = {k: v for k, v in node.items() if k != "$ref"}
            node = self._merge(rest, self._target(node["$ref"], path), path)
        self._report(path, "$ref to itself, any value allowed")
        return {}

    def _merge(self, a: Any, b: Any, path: str) -> Any:
        """Both schemas at once; where one key cannot say both, the first stays and the loss is reported."""
        if a is False or b is False:
            return False
        a, b = (x if isinstance(x, dict) else {} for x in (a, b))
        merged = dict(a)
        for key, value in b.items():
            if key not in a or key in _ANNOTATIONS or a[key] == value:
                merged.setdefault(key, value)
            else:
                both = _both(key, a[key], value)
                if both is None:
                    self._report(path, f"second {key} not enforced")
                else:
                    merged[key] = both
        return merged

    def _by_type(self, node: Schema, path: str) -> list[tuple[str, Schema]]:
        unknown = set(node) - _ANNOTATIONS - _GENERAL - set().union(*_OF_TYPE.values())
        for keyword in sorted(unknown):
            self._report(path, f"{keyword} not enforced")
        named = node.get("type", [])
        for name in named if isinstance(named, list) else [named]:
            if name not in (*TYPES, "integer"):
                self._report(path, f"type {json.dumps(name)[:40]} is none of JSON's, not enforced")
        values = [node["const"]] if "const" in node else node.get("enum")
        if "const" in node and isinstance(node.get("enum"), list) and node["const"] not in node["enum"]:
            return []
        allowed = _types_of(node)
        out: list[tuple[str, Schema]] = []
        if isinstance(values, list):
            enforced = self._budget.takes_values(path, json.dumps(values, ensure_ascii=False))
            if not enforced:
                self._report(path, "enum or const not enforced (too much text)")
            for kind in TYPES:
                chosen = [v for v in values if _wire_type(v) == kind]
                if chosen and (kind in allowed or (kind == "number" and "integer" in allowed)):
                    out.append((kind, {"enum": chosen} if enforced else {"type": kind}))
            return out
        for kind in dict.fromkeys("number" if t == "integer" else t for t in allowed):
            own = {k: node[k] for k in _OF_TYPE.get(kind, ()) if k in node}
            integer = kind == "number" and "number" not in allowed
            out.append((kind, {"type": "integer" if integer else kind} | own))
        return out

    # The same for xgrammar, references kept.

    def _clean(self, node: Any, path: str, depth: int) -> Schema:
        if depth > MAX_DEPTH or self._places_left < 0:
            self._report(path, "nested too deeply, any value allowed")
            return {}
        if isinstance(node, dict):
            constraints = set(node) - _ANNOTATIONS
            if constraints == {"$ref"}:
                return {"$ref": f"#/$defs/{self._define(node['$ref'], path, depth)}"}
            for keyword in ("anyOf", "oneOf", "allOf"):
                branches = node.get(keyword)
                if constraints == {keyword} and isinstance(branches, list) and branches:
                    if len(branches) == 1:
                        return self._clean(branches[0], path, depth + 1)
                    if keyword != "allOf" and len(branches) <= MAX_ALTERNATIVES:
                        kept = [b for b in branches if b is not False]
                        return {"anyOf": [self._clean(b, path, depth + 1) for b in kept]}
        parts = self.alternatives(node, path, depth)
        if len(parts) == len(TYPES) and all(set(s) == {"type"} for _, s in parts):
            return {}
        cleaned = [self._clean_type(kind, schema, path, depth) for kind, schema in parts]
        return cleaned[0] if len(cleaned) == 1 else {"anyOf": cleaned}

    def _define(self, ref: Any, path: str, depth: int) -> str:
        key = str(ref)
        if key not in self._names:
            name = self._names[key] = f"d{len(self._names)}"
            target = self._target(ref, path)
            # A definition that is only a reference may lead back to itself; xgrammar would accept nothing.
            self._definitions[name] = self._clean(self._without_ref(target, path), path, depth + 1)
        return self._names[key]

    def _clean_type(self, kind: str, node: Schema, path: str, depth: int) -> Schema:
        if "enum" in node:
            return {"enum": node["enum"]}
        match kind:
            case "string":
                return self._clean_string(node, path)
            case "object":
                return self._clean_object(node, path, depth)
            case "array":
                return self._clean_array(node, path, depth)
        if compiled(json.dumps(node)) is None:
            self._report(path, "range not enforced")
            return {"type": node["type"]}
        return node

    def _clean_string(self, node: Schema, path: str) -> Schema:
        pattern = self.text_pattern(node, path, in_json=True)
        return {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}

    def text_pattern(self, node: Schema, path: str, *, in_json: bool) -> str | None:
        """The regex of a string's text: its pattern, else its format, else its length; None for any text."""
        least, most = (_count(node.get(k)) for k in ("minLength", "maxLength"))
        wishes: list[tuple[str, Callable[[], str]]] = []
        if isinstance(pattern := node.get("pattern"), str):
            wishes.append(("pattern", lambda: self._affordable(pattern, path, in_json)))
        if "format" in node:
            wishes.append(("format", lambda: whole_text(pattern_of_format(node["format"]), in_json=in_json)))
        if least or most is not None:
            wishes.append(("length", lambda: text_of_length(least or 0, most, in_json=in_json)))
        if most and not in_json:
            self._report(path, "maxLength counts `<` and what follows it as one")
        found: str | None = None
        for keyword, write in wishes:
            if found is not None:
                self._report(path, f"{keyword} not enforced beside another rule for the text")
                continue
            try:
                regex = write()
                regex_rules(regex)
                found = regex
            except (UnsupportedPattern, RuntimeError, ValueError) as e:
                why = str(e).splitlines()[0] if isinstance(e, UnsupportedPattern) else "xgrammar cannot"
                self._report(path, f"{keyword} not enforced ({why})")
        return found

    def _affordable(self, pattern: str, path: str, in_json: bool) -> str:
        if not self._budget.takes_pattern(path, pattern, cost(pattern)):
            raise UnsupportedPattern("too much of patterns in one request")
        return whole_text(pattern, in_json=in_json)

    def _clean_object(self, node: Schema, path: str, depth: int) -> Schema:
        properties, required, extra = self.members(node, path)
        cleaned = {k: self._clean(v, f"{path}.properties.{k}", depth + 1) for k, v in properties.items()}
        out: Schema = {"type": "object", "properties": cleaned, "required": required}
        if extra is False or extra is True:
            return out | {"additionalProperties": extra}
        return out | {"additionalProperties": self._clean(extra, f"{path}.additionalProperties", depth + 1)}

    def members(self, node: Schema, path: str) -> tuple[dict[str, Any], list[str], Any]:
        """Of an object schema: its properties, the required ones of them, and the schema of all others.

        Where `additionalProperties` is absent, an object with declared properties is closed: the model
        answers with what was declared.
        """
        declared, named = node.get("properties"), node.get("required")
        properties: dict[str, Any] = {}
        required: list[str] = []
        if isinstance(declared, dict):
            properties = {k: v for k, v in declared.items() if v is not False}
        elif "properties" in node:
            self._report(path, "properties is not an object, not enforced")
        if isinstance(named, list):
            required = list(dict.fromkeys(k for k in named if isinstance(k, str)))
        extra = node.get("additionalProperties", not isinstance(declared, dict))
        for key in required:
            if key in properties:
                continue
            if isinstance(declared, dict) and declared.get(key) is False:
                self._report(path, f"required {key!r} not enforced: its schema allows nothing")
            else:  # A required key is a declared one.
                properties[key] = extra if extra is not False else True
        required = [k for k in required if k in properties]
        return properties, required, extra if isinstance(extra, dict | bool) else True

    def _clean_array(self, node: Schema, path: str, depth: int) -> Schema:
        items = node.get("items", True)
        out: Schema = {"type": "array"}
        prefix: Any = node.get("prefixItems")
        if isinstance(items, list):  # before draft 2020-12 this was prefixItems
            prefix, items = items, True
        if isinstance(prefix, list) and prefix:
            out["prefixItems"] = [
                self._clean(p, f"{path}.prefixItems[{i}]", depth + 1) for i, p in enumerate(prefix)
            ]
        out["items"] = False if items is False else self._clean(items, f"{path}.items", depth + 1)
        for keyword in ("minItems", "maxItems"):
            if (count := _count(node.get(keyword))) is not None:
                out[keyword] = count
        # Tried with items of any kind: whether the counts fit each other does not depend on the items.
        shape = out | {"prefixItems": [{} for _ in prefix]} if "prefixItems" in out and prefix else dict(out)
        shape["items"] = out["items"] and {}
        if compiled(json.dumps(shape)) is None:
            self._report(path, "number of items not enforced")
            out = {k: v for k, v in out.items() if k not in ("minItems", "maxItems")}
        return out


def _types_of(node: Schema) -> list[str]:
    """The types a node names; else those its keywords are about; else all."""
    named = node.get("type")
    types = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    types = [t for t in types if isinstance(t, str) and t in (*TYPES, "integer")]
    if not types and not isinstance(node.get("enum"), list) and "const" not in node:
        about = [t for t in TYPES if (_OF_TYPE.get(t, set()) | _NOT_ENFORCED.get(t, set())) & set(node)]
        types = about if len(about) == 1 else []
    if types and node.get("nullable") is True and "null" not in types:
        types = [*types, "null"]
    return types or list(TYPES)


def _wire_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return int(value) if value == value // 1 else None  # 2.0 counts as 2 in JSON schema


def _canonical(value: Any) -> str:
    """The same text for values that are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_plain(value), sort_keys=True)


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


def _both(key: str, a: Any, b: Any) -> Any:
    """One value that says `a` and `b` of a keyword; None where there is none."""
    match key, a, b:
        case "properties", dict(), dict():
            shared = {k: {"allOf": [a[k], b[k]]} if a[k] != b[k] else a[k] for k in a.keys() & b.keys()}
            return a | b | shared
        case "required", list(), list():
            return list(dict.fromkeys(k for k in [*a, *b] if isinstance(k, str)))
        case "enum", list(), list():
            in_b = {_canonical(v) for v in b}
            return [v for v in a if _canonical(v) in in_b]
        case "type", _, _:
            left, right = ([x] if isinstance(x, str) else x for x in (a, b))
            if not (isinstance(left, list) and isinstance(right, list)):
                return None
            left, right = (dict.fromkeys(t for t in ts if isinstance(t, str)) for ts in (left, right))
            kept = [t for t in left if t in right or (t == "integer" and "number" in right)]
            kept += [t for t in right if t == "integer" and "number" in left and "integer" not in left]
            return kept or None
        case (("minimum" | "exclusiveMinimum" | "minLength" | "minItems"), int() | float(), int() | float()):
            return max(a, b)
        case (("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems"), int() | float(), int() | float()):
            return min(a, b)
        case (("items" | "additionalProperties"), _, _):
            return False if a is False or b is False else {"allOf": [a, b]}
        case (("anyOf" | "oneOf"), list(), list()):
            return [{"allOf": [x, y]} for x in a for y in b] if len(a) * len(b) <= MAX_ALTERNATIVES else None
        case _:
            return None
