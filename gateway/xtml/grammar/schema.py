"""JSON schemas brought into the shape that xgrammar enforces, and a note of each rule that had to be let go.

xgrammar 0.2.8 raises on some keywords, ignores others, and lets some accept more than they say; which, was
measured. What comes out of here compiles, is self-contained, and never refuses a document only because a
keyword is not understood: the nearest looser rule stands in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gateway.xtml.grammar.cost import Budget
from gateway.xtml.grammar.formats import pattern_of_format
from gateway.xtml.grammar.ranges import UnsupportedPattern
from gateway.xtml.grammar.regex import cost, text_of_length, whole_text
from gateway.xtml.grammar.rules import regex_rules, renamed
from gateway.xtml.json_schema import (
    ANNOTATIONS,
    MAX_ALTERNATIVES,
    Alternative,
    Members,
    Report,
    Schema,
    SchemaReader,
    anything,
    is_anything,
)

MAX_DEPTH = 40  # nesting of one schema; vLLM refuses tags nested more than 80 deep
MAX_PLACES = 2000  # sub-schemas looked at in one document, references followed
# In a row between the pieces of a JSON value: room to indent, no endless blanks (docs/decisions.md#a26).
MAX_BLANKS = 16

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

    def __init__(self, document: Any, report: Report, budget: Budget) -> None:
        self._reader = SchemaReader(document, report)
        self._report = report
        self._budget = budget
        self._names: dict[str, str] = {}  # $ref -> name in $defs
        self._definitions: dict[str, Schema] = {}

    def arguments(self, parameters: Any, path: str) -> list[Members]:
        """As `SchemaReader.arguments`."""
        return self._reader.arguments(parameters, path)

    def alternatives(self, node: Any, path: str) -> list[Alternative]:
        """As `SchemaReader.alternatives`, within the bounds of one document and of one request."""
        if self._is_spent:
            self._report(path, "nested too deeply, any value allowed")
            return anything()
        found = self._reader.alternatives(node, path)
        values = [v for _, schema in found for v in schema.get("enum", ())]
        if not values or self._budget.takes_values(path, json.dumps(values, ensure_ascii=False)):
            return found
        self._report(path, "enum or const not enforced (too much text)")
        return [Alternative(kind, {"type": kind}) if "enum" in schema else Alternative(kind, schema)
                for kind, schema in found]  # fmt: skip

    @property
    def _is_spent(self) -> bool:
        return self._reader.steps > MAX_PLACES

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

    # The same for xgrammar, references kept.

    def _clean(self, node: Any, path: str, depth: int) -> Schema:
        if depth > MAX_DEPTH or self._is_spent:
            self._report(path, "nested too deeply, any value allowed")
            return {}
        if (ref := self._reader.only_reference(node)) is not None:
            return {"$ref": f"#/$defs/{self._define(ref, path, depth)}"}
        if isinstance(node, dict):
            constraints = set(node) - ANNOTATIONS
            for keyword in ("anyOf", "oneOf", "allOf"):
                branches = node.get(keyword)
                if constraints == {keyword} and isinstance(branches, list) and branches:
                    if len(branches) == 1:
                        return self._clean(branches[0], path, depth + 1)
                    if keyword != "allOf" and len(branches) <= MAX_ALTERNATIVES:
                        kept = [b for b in branches if b is not False]
                        return {"anyOf": [self._clean(b, path, depth + 1) for b in kept]}
        parts = self.alternatives(node, path)
        if is_anything(parts):
            return {}
        cleaned = [self._clean_type(kind, schema, path, depth) for kind, schema in parts]
        return cleaned[0] if len(cleaned) == 1 else {"anyOf": cleaned}

    def _define(self, ref: str, path: str, depth: int) -> str:
        if ref not in self._names:
            name = self._names[ref] = f"d{len(self._names)}"
            # A definition that is only a reference may lead back to itself; xgrammar would accept nothing.
            self._definitions[name] = self._clean(self._reader.behind(ref, path), path, depth + 1)
        return self._names[ref]

    def _clean_type(self, kind: str, node: Schema, path: str, depth: int) -> Schema:
        node = self._without_multiple(node, path)
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

    def _without_multiple(self, node: Schema, path: str) -> Schema:
        if "multipleOf" not in node:
            return node
        self._report(path, "multipleOf not enforced")
        return {k: v for k, v in node.items() if k != "multipleOf"}

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
        members = self._reader.members(node, path)
        extra, properties = members.extra, members.properties
        cleaned = {k: self._clean(v, f"{path}.properties.{k}", depth + 1) for k, v in properties.items()}
        out: Schema = {"type": "object", "properties": cleaned, "required": list(members.required)}
        if extra is False or extra is True:
            return out | {"additionalProperties": extra}
        return out | {"additionalProperties": self._clean(extra, f"{path}.additionalProperties", depth + 1)}

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


def _count(value: Any) -> int | None:
    return None if value is None else int(value)
