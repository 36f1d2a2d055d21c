"""The grammar of the tools channel's calls: declared names, arguments by schema, keys in any order.

    call     = <|open|>call tool="NAME" index="K"<|sep|> argument* <|close|>call<|sep|>
    argument = <|open|>argument key="KEY" type="TYPE"<|sep|> VALUE <|close|>argument<|sep|>
    (docs/format.md#completion)

Markers are token ids. Which keys have been written is the state of an automaton, one rule a state, so that
every required key comes once and the order stays the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.xtml.grammar.cost import Budget
from gateway.xtml.grammar.json_values import AnyJson, JsonValues
from gateway.xtml.grammar.regex import Text, text_of_length
from gateway.xtml.grammar.rules import Rules, either, literal, none_of
from gateway.xtml.grammar.schema import Shapes
from gateway.xtml.json_schema import Alternative, Members, Schema
from gateway.xtml.schema_keywords import WIRE_TYPES

MAX_STATES = 512  # of one grammar, or as many as it needs for two keys of each tool
MAX_TRACKED = 9  # keys of one tool: 2**9 states
MAX_TRACKED_OPTIONAL = 6  # up to so many keys in all, an optional one cannot come twice either


@dataclass(frozen=True, slots=True)
class Marks:
    """Ids of the markers, and the ids that no text holds: these and every other special token."""

    open: int
    close: int
    sep: int
    special: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallableTool:
    """`path` is where the request declares it; `parameters` None: free arguments."""

    path: str
    name: str
    parameters: dict[str, Any] | bool | None


def escape_attribute(value: str) -> str:
    """An attribute's value as it stands between its quotes (docs/format.md#escaping)."""
    return value.replace("&", "&amp;").replace('"', "&quot;")


def type_attribute(kind: str) -> str:
    """What follows an argument's key, from the quote that closes it."""
    return f'" type="{kind}"'


def calls_grammar(
    tools: Sequence[CallableTool], marks: Marks, *, many: bool, text: Text = "raw"
) -> tuple[str, tuple[str, ...]]:
    """EBNF of one call (numbered 1), or of one or more, and what of the schemas it does not enforce.

    `text`: how strings are written, "raw" or "spelled".
    """
    return _Writer(marks, text).grammar(tools, many)


@dataclass(frozen=True, slots=True)
class _Variant:
    """One object schema that the arguments may follow."""

    members: Members
    path: str
    shapes: Shapes
    json: JsonValues


class _Writer:
    def __init__(self, marks: Marks, text: Text) -> None:
        self._as_text = text
        self._rules = Rules()
        self._budget = Budget()
        self._json = AnyJson(self._rules)
        self._loosened: dict[str, None] = {}
        opened, closed, sep = (f"Token({i})" for i in (marks.open, marks.close, marks.sep))
        excluded = f"ExcludeToken({', '.join(map(str, marks.special))})"
        rule = self._rules.rule
        anything = self._rules.star(excluded)
        self._by_token = (anything, rule(f"{excluded} {anything}"))
        self._free_texts = self._by_token  # any text, and any text but the empty one
        quote = literal('"')
        self._begin_call = rule(f"{opened} " + literal('call tool="'))
        index = literal('" index="')
        self._one = rule(f'{index} "1" {quote} {sep}')
        self._any_index = rule(f"{index} [1-9] [0-9]* {quote} {sep}")
        self._end_call = rule(f'{closed} "call" {sep}')
        self._begin_argument = rule(f"{opened} " + literal('argument key="'))
        self._end_argument = rule(f'{closed} "argument" {sep}')
        self._typed = {kind: rule(f"{literal(type_attribute(kind))} {sep}") for kind in WIRE_TYPES}

    def grammar(self, tools: Sequence[CallableTool], many: bool) -> tuple[str, tuple[str, ...]]:
        variants = [self._variants(tool) for tool in tools]
        tracked = _share_states([v for vs in variants for v in vs])
        index = self._any_index if many else self._one
        calls = []
        for tool, its_variants in zip(tools, variants, strict=True):
            self._free_texts = self._by_token
            if self._mixed(its_variants):
                self._free_texts = self._by_character()
            bodies = [self._arguments(v, next(tracked)) for v in its_variants]
            calls.append(f"{literal(escape_attribute(tool.name))} {index} {either(bodies)}")
        call = self._rules.rule(f"{self._begin_call} {either(calls)}")
        root = f"{call} {self._rules.star(call)}" if many else call
        return self._rules.text(root), tuple(self._loosened)

    def _report(self, path: str, what: str) -> None:
        self._loosened[f"{path}: {what}"] = None

    # Arguments of one call.

    def _variants(self, tool: CallableTool) -> list[_Variant]:
        path = f"{tool.path}.function.parameters"
        shapes = Shapes(tool.parameters, self._report, self._budget)
        values = JsonValues(shapes, self._rules, self._json)
        free = Members({}, (), True)
        if tool.parameters is None:
            return [_Variant(free, path, shapes, values)]
        try:
            found = shapes.arguments(tool.parameters, path)
        except RecursionError:
            self._report(path, "nested too deeply, any arguments allowed")
            found = []
        return [_Variant(members, path, shapes, values) for members in found or [free]]

    def _arguments(self, variant: _Variant, tracked: int) -> str:
        """The rule of all that follows a call's header: arguments, and the call's close."""
        keys = [
            *variant.members.required,
            *(k for k in variant.members.properties if k not in variant.members.required),
        ]
        for key in variant.members.required[tracked:]:
            self._report(variant.path, f"required {key!r} not enforced: only {tracked} keys are tracked")
        written = [self._argument(key, variant) for key in keys]
        if variant.members.extra is not False:
            written.append(self._extra_argument(variant))
        n_required = min(tracked, len(variant.members.required))
        states: dict[int, str] = {}
        for done in reversed(range(2**tracked)):  # a state refers only to states with more keys done
            options = []
            loops = []
            for i, argument in enumerate(written):
                if i >= tracked:
                    loops.append(argument)
                elif not done >> i & 1:
                    options.append(f"{argument} {states[done | 1 << i]}")
            may_end = all(done >> i & 1 for i in range(n_required))
            body = [self._end_call] if may_end else []
            if loops:
                loop = self._rules.star(f"{self._begin_argument} {either(loops)}")
                if options:
                    body.append(f"{self._begin_argument} {either(options)}")
                states[done] = self._rules.rule(f"{loop} {either(body)}")
            else:
                if options:
                    body.append(f"{self._begin_argument} {either(options)}")
                states[done] = self._rules.rule(" | ".join(body))
        return states[0]

    def _argument(self, key: str, variant: _Variant) -> str:
        path = f"{variant.path}.properties.{key}"
        values = self._values(variant.members.properties[key], path, variant)
        return self._rules.rule(f"{literal(escape_attribute(key))} {values}")

    def _extra_argument(self, variant: _Variant) -> str:
        """An argument whose key the schema does not declare."""
        escapes = {"&amp;": "\\u0026", "&quot;": "\\u0022"}
        unit = self._rules.rule(" | ".join(["[^\\u0026\\u0022]", *map(literal, escapes)]))
        declared = [tuple(escape_attribute(c) for c in key) for key in variant.members.properties]
        key = none_of(declared, self._rules.star(unit), escapes, self._rules)
        values = self._values(variant.members.extra, f"{variant.path}.additionalProperties", variant)
        return self._rules.rule(f"{key} {values}")

    # The value of one argument, from its type attribute on.

    def _values(self, node: Any, path: str, variant: _Variant) -> str:
        shapes = variant.shapes
        alternatives = shapes.alternatives(node, path)
        string = self._typed["string"]
        options = [f"{string} {t} {self._end_argument}" for t in self._texts(alternatives, path, shapes)]
        for other in alternatives:
            if (kind := other.wire_type) != "string":
                value = variant.json.value(other, path)
                options.append(f"{self._typed[kind]} {value} {self._end_argument}")
        return self._rules.rule(" | ".join(dict.fromkeys(options)))

    def _texts(self, alternatives: Sequence[Alternative], path: str, shapes: Shapes) -> list[str]:
        """Rules for a string, which is raw text on the wire; free text stands alone (see `_mixed`)."""
        texts = [self._text(schema, path, shapes) for kind, schema in alternatives if kind == "string"]
        any_text, some_text = self._free_texts
        if any_text in texts:
            return [any_text]
        if some_text in texts and len(set(texts)) > 1:
            self._report(path, "minLength not enforced beside another rule for the text")
            return [any_text]
        return texts

    def _mixed(self, variants: Sequence[_Variant]) -> bool:
        """Whether the text of a key is free in one variant and under a rule in another.

        Free text is written over tokens, text under a rule over characters. Where a text may be either,
        xgrammar 0.2.8 loses the first at a token of several characters that fits the second, and the text
        could not end any more.
        """
        free: set[str | None] = set()
        ruled: set[str | None] = set()
        for variant in variants if len(variants) > 1 else ():
            texts: list[tuple[str | None, Any, str]] = [
                (key, node, f"{variant.path}.properties.{key}")
                for key, node in variant.members.properties.items()
            ]
            if variant.members.extra is not False:  # the undeclared keys, None
                texts.append((None, variant.members.extra, f"{variant.path}.additionalProperties"))
            for key, node, path in texts:
                for text in self._texts(variant.shapes.alternatives(node, path), path, variant.shapes):
                    (free if text in self._by_token else ruled).add(key)
        return bool(free & ruled or (free and None in ruled) or (ruled and None in free))

    def _by_character(self) -> tuple[str, str]:
        """Free texts written over characters; "spelled" ones cannot hold the close marker's spelling."""
        any_text, some_text = (text_of_length(least, None, self._as_text) for least in (0, 1))
        return self._rules.regex(any_text), self._rules.regex(some_text)

    def _text(self, schema: Schema, path: str, shapes: Shapes) -> str:
        if "enum" in schema:
            texts = [t for t in schema["enum"] if t.isascii() or t == t.encode("utf-8", "ignore").decode()]
            return self._rules.rule(" | ".join(map(literal, texts))) if texts else self._free_texts[0]
        if schema.get("minLength") == 1 and not {"maxLength", "pattern", "format"} & set(schema):
            return self._free_texts[1]
        if (regex := shapes.text_pattern(schema, path, self._as_text)) is None:
            return self._free_texts[0]
        if self._as_text == "spelled" and "maxLength" in schema:
            self._report(path, "maxLength counts `<` and what follows it as one")
        return self._rules.regex(regex)


def _share_states(variants: Sequence[_Variant]) -> Iterator[int]:
    """How many keys (required ones first) each variant keeps track of, within MAX_STATES for all together.

    The cheap ones get all their required keys first; optional keys follow where few are declared.
    """
    tracked = [0] * len(variants)
    left = max(MAX_STATES - len(variants), 3 * len(variants))
    wishes = [(min(len(v.members.required), MAX_TRACKED), i) for i, v in enumerate(variants)]
    wishes = sorted(wishes) + sorted(
        (len(v.members.properties), i)
        for i, v in enumerate(variants)
        if len(v.members.properties) <= MAX_TRACKED_OPTIONAL
    )
    for wish, i in wishes:
        while tracked[i] < wish and 2 ** tracked[i] <= left:
            left -= 2 ** tracked[i]
            tracked[i] += 1
    return iter(tracked)
