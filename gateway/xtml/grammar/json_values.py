"""JSON values by their schema, as rules: members in the prompt's order, no blanks but one after `,` and `:`.

The prompt shows every schema with its keys sorted (docs/format.md#json), so that is the order in which the
model answers; undeclared members come last. Strings may spell any character as an escape, unless a rule for
their text stands: then each character has one spelling.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gateway.xtml.grammar.numbers import NUMBER, spellings
from gateway.xtml.grammar.rules import Rules, either, literal, none_of
from gateway.xtml.grammar.schema import Shapes
from gateway.xtml.json_schema import Alternative, Schema, is_anything
from gateway.xtml.values import value_type

MAX_ITEMS = 4096  # that a list is counted to
MAX_SPELLED = 64  # numbers of one enum that may have exponents
_PLAIN = "[^\\u0022\\u005c\\u0000-\\u001f]"
_HEX = "[0-9a-fA-F]"
_ESCAPE = f'"\\\\" (["\\\\/bfnrt] | "u" {_HEX} {_HEX} {_HEX} {_HEX})'
# One character where they are counted: both halves of a surrogate pair are one.
_COUNTED = f""""\\\\" (["\\\\/bfnrt] | "u" ([0-9abcefABCEF] {_HEX} | [dD] [0-7]) {_HEX} {_HEX}
  | "u" [dD] [89abAB] {_HEX} {_HEX} "\\\\u" [dD] [c-fC-F] {_HEX} {_HEX})""".replace("\n", "")
# Of a key that is not declared: escapes that no declared key is written with.
_KEY_ESCAPES = {json.dumps(c)[1:-1]: "" for c in '"\\\b\f\n\r\t'} | {'\\"': "\\u0022\\u005c\\u0000-\\u001f"}
_OTHER_ESCAPES = (
    f'"\\\\u" ("00" [0189a-fA-F] {_HEX} | ("0" [1-9a-fA-F] | [1-9a-fA-F] {_HEX}) {_HEX} {_HEX})',
)


class AnyJson:
    """Rules for JSON values of which nothing more is asked, once for all documents of a grammar."""

    def __init__(self, rules: Rules) -> None:
        self.comma = rules.rule('"," ("" | " ")')
        self.colon = rules.rule('":" ("" | " ")')
        # Written as xgrammar's own: a repeat of a rule for one character would check the whole vocabulary at
        # every step.
        self.characters = rules.reserve()
        rules.define(self.characters, f'"" | {_PLAIN} {self.characters} | {_ESCAPE} {self.characters}')
        self.string = rules.rule(f'"\\u0022" {self.characters} "\\u0022"')
        self.value = rules.reserve()
        array = f'"" | {self.value} {rules.star(f"{self.comma} {self.value}")}'
        member = rules.rule(f"{self.string} {self.colon} {self.value}")
        members = f'"" | {member} {rules.star(f"{self.comma} {member}")}'
        self.of_type = {
            "string": self.string,
            "number": rules.rule(NUMBER),
            "boolean": rules.rule('"true" | "false"'),
            "null": rules.rule('"null"'),
            "array": rules.rule(f'"[" ({array}) "]"'),
            "object": rules.rule(f'"{{" ({members}) "}}"'),
        }
        rules.define(self.value, " | ".join(self.of_type.values()))


class JsonValues:
    """Writes the values of one document's places into `rules`; `basic` are rules of the same grammar."""

    def __init__(self, shapes: Shapes, rules: Rules, basic: AnyJson) -> None:
        self._shapes = shapes
        self._rules = rules
        self._basic = basic
        self._written: dict[str, tuple[str, list[tuple[str, str]]]] = {}  # schema -> rule, reports below it
        self._begun: dict[str, str] = {}  # schema -> the rule's name, once something inside refers to it

    def rule(self, node: Any, path: str, depth: int = 0) -> str:
        """The rule of a value by the schema `node`. Equal schemas are one rule, which may refer to itself."""
        text = json.dumps(node, sort_keys=True)
        if text in self._written:
            name, below = self._written[text]
            for at, what in below:
                self._shapes.report(path + at, what)
            return name
        if text in self._begun:
            self._begun[text] = self._begun[text] or self._rules.reserve()
            return self._begun[text]
        self._begun[text] = ""
        mark = self._shapes.said
        found = self._shapes.alternatives(node, path, depth)
        values = [self._basic.value] if is_anything(found) else [self.value(a, path, depth) for a in found]
        values = list(dict.fromkeys(values))
        if name := self._begun.pop(text):
            self._rules.define(name, " | ".join(values))
        else:  # equal rules of other documents are the same rule
            name = values[0] if len(values) == 1 else self._rules.rule(" | ".join(values))
        below = [(at.removeprefix(path), what) for at, what in self._shapes.said_since(mark)]
        self._written[text] = name, below
        return name

    def value(self, alternative: Alternative, path: str, depth: int = 0) -> str:
        """The rule of one alternative."""
        kind, schema = alternative
        if "enum" in schema:
            return self._one_of(schema)
        match kind:
            case "string":
                return self._text(schema, path)
            case "number":
                return self._shapes.number(schema, path, self._rules)
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
        return self._basic.of_type[kind]

    def _text(self, schema: Schema, path: str) -> str:
        if (regex := self._shapes.text_pattern(schema, path, "json")) is not None:
            text = self._rules.regex(regex)
        else:
            text = self._counted(*self._shapes.length(schema, path))
        return self._rules.rule(f'"\\u0022" {text} "\\u0022"')

    def _counted(self, least: int, most: int | None) -> str:
        """The rule of `least` to `most` characters."""
        if most == 0:
            return '""'
        if not least and most is None:
            return self._basic.characters
        rest = self._counted(max(0, least - 1), None if most is None else most - 1)
        nothing = "" if least else '"" | '
        return self._rules.rule(f"{nothing}{_PLAIN} {rest} | {_COUNTED} {rest}")

    # Values of enum and const.

    def _one_of(self, schema: Schema) -> str:
        values, whole = schema["enum"], schema.get("type") == "integer"
        many = sum(value_type(v) == "number" for v in values) > MAX_SPELLED
        texts = (self._literal(v, many, whole) for v in values)
        return self._rules.rule(" | ".join(dict.fromkeys(texts)))

    def _literal(self, value: Any, many: bool = False, whole: bool = False) -> str:
        match value:
            case bool() | None:
                return literal(json.dumps(value))
            case int() | float():
                return spellings(value, many=many, whole=whole)
            case str():
                return _spelled(value)
            case list():
                items = f" {self._basic.comma} ".join(self._literal(v, many) for v in value)
                return self._rules.rule(f'"[" {items} "]"')
        members = {k: f"{_spelled(k)} {self._basic.colon} {self._literal(v, many)}" for k, v in value.items()}
        orders = dict.fromkeys((tuple(sorted(members)), tuple(members)))  # as the prompt shows it, as it came
        objects = (
            f'"{{" {f" {self._basic.comma} ".join(members[k] for k in order)} "}}"' for order in orders
        )
        return self._rules.rule(" | ".join(objects))

    # Objects.

    def _object(self, schema: Schema, path: str, depth: int) -> str:
        if set(schema) == {"type"}:
            return self._basic.of_type["object"]
        members = self._shapes.members(schema, path)
        rule = self._rules.rule
        written = {}
        for key, node in sorted(members.properties.items()):
            value = self.rule(node, f"{path}.properties.{key}", depth + 1)
            written[key] = rule(f"{_spelled(key)} {self._basic.colon} {value}")
        # From the last key to the first: what follows if nothing is written yet, and if something is.
        first = rest = '""'
        if members.extra is not False:
            value = self.rule(members.extra, f"{path}.additionalProperties", depth + 1)
            key = self._undeclared(members.properties)
            extra = rule(f"{key} {self._basic.colon} {value}")
            rest = self._rules.star(f"{self._basic.comma} {extra}")
            first = rule(f'"" | {extra} {rest}')
        for key, member in reversed(written.items()):
            left_out = () if key in members.required else (first, rest)
            first = rule(" | ".join([f"{member} {rest}", *left_out[:1]]))
            rest = rule(" | ".join([f"{self._basic.comma} {member} {rest}", *left_out[1:]]))
        return rule(f'"{{" {first} "}}"')

    def _undeclared(self, declared: Iterable[str]) -> str:
        """The rule of a key that is none of these."""
        texts = [
            tuple(json.dumps(c, ensure_ascii=False)[1:-1] for c in k) for k in declared if _is_unicode(k)
        ]
        if not texts:
            return self._basic.string
        key = none_of(texts, self._basic.characters, _KEY_ESCAPES, self._rules, _OTHER_ESCAPES)
        empty = "" if () in texts else ' | "\\u0022\\u0022"'
        return self._rules.rule(f'"\\u0022" {key} "\\u0022"{empty}')

    # Lists.

    def _array(self, schema: Schema, path: str, depth: int) -> str:
        if set(schema) == {"type"}:
            return self._basic.of_type["array"]
        items, prefix = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list):  # before draft 2020-12 this was prefixItems
            prefix, items = items, True
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        most = None if most is None else int(most)
        if items is False:
            most = len(prefix) if most is None else min(most, len(prefix))
        if (most is not None and most < least) or max(least, most or 0) > MAX_ITEMS:
            self._shapes.report(path, "number of items not enforced")
            least, most = 0, len(prefix) if items is False else None
        prefix = prefix[:most]
        each = [self.rule(p, f"{path}.prefixItems[{i}]", depth + 1) for i, p in enumerate(prefix)]
        rest = '""'
        if most is None or most > len(each):
            item = self.rule(items, f"{path}.items", depth + 1)
            if not each:
                return self._list_of(item, least, most)
            rest = self._repeat(item, max(0, least - len(each)), None if most is None else most - len(each))
        for i in reversed(range(1, len(each))):
            rest = self._rules.rule(f"{self._basic.comma} {each[i]} {rest}" + ("" if i < least else ' | ""'))
        full = f"{each[0]} {rest}" if each else '""'
        return self._rules.rule(f'"[" ({full}{"" if least or not each else _OR_NOTHING}) "]"')

    def _list_of(self, item: str, least: int, most: int | None) -> str:
        rest = self._repeat(item, max(0, least - 1), None if most is None else most - 1)
        return self._rules.rule(f'"[" ({item} {rest}{"" if least else _OR_NOTHING}) "]"')

    def _repeat(self, item: str, least: int, most: int | None) -> str:
        one = self._rules.rule(f"{self._basic.comma} {item}")
        if not least and most is None:
            return self._rules.star(one)
        return f"{one}{{{least},{'' if most is None else most}}}"


_OR_NOTHING = ' | ""'


def _spelled(text: str) -> str:
    """A string as JSON writes it: in its own characters, or in ASCII."""
    as_it_is, in_ascii = json.dumps(text, ensure_ascii=False), json.dumps(text)
    if as_it_is == in_ascii:
        return literal(in_ascii)
    if not _is_unicode(text):
        return literal(in_ascii)
    return either([literal(as_it_is), literal(in_ascii)])


def _is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which only an escape can write."""
    return text == text.encode("utf-8", "ignore").decode()
