"""What a schema document allows at its places, within the bounds of a document and of a request.

What xgrammar 0.2.8 cannot hold, and what would cost the engine too much, is left out for its place alone and
reported; no document is refused for a keyword that is not understood.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gateway.xtml.grammar.cost import Budget
from gateway.xtml.grammar.formats import pattern_of_format
from gateway.xtml.grammar.numbers import INTEGER, NUMBER, UnsupportedRange, range_grammar, range_of
from gateway.xtml.grammar.ranges import UnsupportedPattern
from gateway.xtml.grammar.regex import Text, cost, text_of_length, whole_text
from gateway.xtml.grammar.rules import Rules, regex_rules
from gateway.xtml.json_schema import Alternative, Members, Report, Schema, SchemaReader, anything

MAX_DEPTH = 40  # nesting of one schema
MAX_COUNTED = 64  # characters that a rule of length counts
MAX_PLACES = 2000  # sub-schemas looked at in one document, references followed


class Shapes:
    """The places of one schema document. `report(path, what)` hears what is not enforced.

    `budget` is shared by the documents of a request.
    """

    def __init__(self, document: Any, report: Report, budget: Budget) -> None:
        self._heard: list[tuple[str, str]] = []
        self._pass_on = report
        self._reader = SchemaReader(document, self.report)
        self._budget = budget

    def report(self, path: str, what: str) -> None:
        self._heard.append((path, what))
        self._pass_on(path, what)

    def said_since(self, mark: int) -> list[tuple[str, str]]:
        """What was reported after `mark`, a value of `said`."""
        return self._heard[mark:]

    @property
    def said(self) -> int:
        return len(self._heard)

    def arguments(self, parameters: Any, path: str) -> list[Members]:
        """As `SchemaReader.arguments`."""
        return self._reader.arguments(parameters, path)

    def members(self, schema: Schema, path: str) -> Members:
        """As `SchemaReader.members`."""
        return self._reader.members(schema, path)

    def alternatives(self, node: Any, path: str, depth: int = 0) -> list[Alternative]:
        """As `SchemaReader.alternatives`. Values of enums that cost too much become their types."""
        if depth > MAX_DEPTH:
            self.report(path, "nested too deeply, any value allowed")
            return anything()
        if self._reader.steps >= MAX_PLACES:
            self.report(path, f"more than {MAX_PLACES} places in one schema, any value allowed")
            return anything()
        found = self._reader.alternatives(node, path)
        values = [v for _, schema in found for v in schema.get("enum", ())]
        if not values or self._budget.takes_values(path, json.dumps(values, ensure_ascii=False)):
            return found
        self.report(path, "enum or const not enforced (too much text)")
        return [
            Alternative(kind, {"type": schema.get("type", kind)} if "enum" in schema else schema)
            for kind, schema in found
        ]

    def number(self, schema: Schema, path: str, rules: Rules) -> str:
        """The rule of a number or an integer in its range."""
        try:
            if (wanted := range_of(schema)) is not None:
                return rules.embed(range_grammar(wanted))
        except UnsupportedRange as error:
            self.report(path, f"range not enforced ({error})")
        return rules.rule(INTEGER if schema["type"] == "integer" else NUMBER)

    def text_pattern(self, schema: Schema, path: str, text: Text) -> str | None:
        """The regex of a string's text: its pattern, else its format, else its length; None for any text.

        In JSON no regex counts characters well; see `length`.
        """
        wishes: list[tuple[str, Callable[[], str]]] = []
        if (pattern := schema.get("pattern")) is not None:
            wishes.append(("pattern", lambda: self._affordable(pattern, path, text)))
        if "format" in schema:
            wishes.append(("format", lambda: whole_text(pattern_of_format(schema["format"]), text)))
        found: str | None = None
        for keyword, write in wishes:
            if found is not None:
                self.report(path, f"{keyword} not enforced beside another rule for the text")
                continue
            try:
                regex = write()
                regex_rules(regex)
                found = regex
            except (UnsupportedPattern, RuntimeError, ValueError) as e:
                why = str(e).splitlines()[0] if isinstance(e, UnsupportedPattern) else "xgrammar cannot"
                self.report(path, f"{keyword} not enforced ({why})")
        if schema.get("minLength") or schema.get("maxLength") is not None:
            if found is not None:
                self.report(path, "length not enforced beside another rule for the text")
            elif text != "json" and (lengths := self.length(schema, path)) != (0, None):
                return text_of_length(*lengths, text)
        return found

    def length(self, schema: Schema, path: str) -> tuple[int, int | None]:
        """The least and the greatest number of characters, as far as they are enforced."""
        least, most = (None if schema.get(k) is None else int(schema[k]) for k in ("minLength", "maxLength"))
        if least is not None and most is not None and most < least:
            self.report(path, "length not enforced (maxLength is less than minLength)")
            return 0, None
        if least is not None and least > MAX_COUNTED:
            self.report(path, f"minLength enforced up to {MAX_COUNTED} characters only")
            least = MAX_COUNTED
        if most is not None and most > MAX_COUNTED:
            self.report(path, f"maxLength not enforced (more than {MAX_COUNTED} characters)")
            most = None
        return least or 0, most

    def _affordable(self, pattern: str, path: str, text: Text) -> str:
        if not self._budget.takes_pattern(path, pattern, cost(pattern)):
            raise UnsupportedPattern("too much of patterns in one request")
        return whole_text(pattern, text)
