"""An EBNF grammar written rule by rule, equal rules once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

# What may hold a rule's name besides names: strings, classes, counts. Only names change when rules move.
_PIECES = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{[^}]*\}|[A-Za-z_][A-Za-z0-9_]*')
_BUILT_IN = {"Token", "ExcludeToken"}
_Tree = dict[str, "_Tree"]


class Rules:
    """Rules of one grammar in xgrammar's EBNF; a body that was seen before is the same rule."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._lines: list[str] = []
        self._count = 0

    def rule(self, body: str) -> str:
        """The name of the rule with this body."""
        if body not in self._names:
            self._names[body] = self.reserve()
            self.define(self._names[body], body)
        return self._names[body]

    def reserve(self) -> str:
        """The name of a rule that is defined later, and once: what refers to itself needs its name first."""
        self._count += 1
        return f"r{self._count}"

    def define(self, name: str, body: str) -> None:
        self._lines.append(f"{name} ::= {body}")

    def star(self, body: str) -> str:
        """The name of a rule for any number of `body`."""
        key = f"{body} *"
        if key not in self._names:
            name = self._names[key] = self.reserve()
            self.define(name, f'"" | {body} {name}')
        return self._names[key]

    def embed(self, grammar: str) -> str:
        """Take over the rules of another grammar; gives the new name of its `root`."""
        if grammar not in self._names:
            prefix = self.reserve() + "_"
            self._names[grammar] = prefix + "root"
            self._lines.append(renamed(grammar, lambda name: prefix + name).strip())
        return self._names[grammar]

    def regex(self, regex: str) -> str:
        """The name of a regular expression's rule. Raises RuntimeError where xgrammar does not take it."""
        return self.embed(regex_rules(regex))

    def text(self, root: str) -> str:
        """The grammar, beginning at the rule `root`."""
        return "\n".join([*self._lines, f"root ::= {root}"])


def renamed(grammar: str, new_name: Callable[[str], str]) -> str:
    """A grammar with other names of its rules."""

    def piece(found: re.Match[str]) -> str:
        is_name = (found[0][0].isalpha() or found[0][0] == "_") and found[0] not in _BUILT_IN
        return new_name(found[0]) if is_name else found[0]

    return _PIECES.sub(piece, grammar)


@lru_cache(maxsize=4096)
def regex_rules(regex: str) -> str:
    """The grammar of a regular expression. Raises RuntimeError where xgrammar does not take it."""
    import xgrammar  # brings torch; see `grammar.load_compiler`

    return str(xgrammar.Grammar.from_regex(regex))


def escaped(char: str) -> str:
    """A character by its code, as strings and classes of EBNF take it."""
    code = ord(char)  # not \x: xgrammar reads any number of hexadecimal digits after it
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def literal(text: str) -> str:
    """A string literal of EBNF."""
    plain = set(map(chr, range(0x20, 0x7F))) - {'"', "\\"}
    return '"' + "".join(c if c in plain else escaped(c) for c in text) + '"'


def either(options: Iterable[str]) -> str:
    """A choice, in brackets."""
    return "(" + " | ".join(options) + ")"


def none_of(
    texts: Iterable[tuple[str, ...]],
    anything: str,
    escapes: dict[str, str],
    rules: Rules,
    others: Sequence[str] = (),
) -> str:
    """A rule for one or more units of text that is none of `texts`, each a tuple of units.

    A unit is a character, or one of `escapes` (unit -> what stands for a set of characters that a class
    excludes); `anything` is the rule of any number of units, `others` are units in none of `texts`. Used for
    the keys that a schema does not declare.
    """
    tree: _Tree = {}
    for text in texts:
        at = tree
        for piece in text:
            at = at.setdefault(piece, {})
        at[""] = {}

    def build(node: _Tree, first: bool) -> str:
        children = {piece: child for piece, child in node.items() if piece}
        options = [] if first or "" in node else ['""']
        options += [f"{literal(piece)} {build(child, False)}" for piece, child in children.items()]
        taken = "".join(escaped(piece) for piece in children if len(piece) == 1)
        excluded = "".join(escapes.values())
        options.append(f"[^{excluded}{taken}] {anything}")
        options += [f"{literal(e)} {anything}" for e in escapes if e not in children]
        options += [f"{other} {anything}" for other in others]
        return rules.rule(" | ".join(options))

    return build(tree, True)
