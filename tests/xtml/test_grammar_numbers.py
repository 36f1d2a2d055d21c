"""Every number that a schema allows is allowed by its grammar, in each of its spellings that are offered."""

import json
import random
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
import xgrammar
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.xtml import Vocab
from gateway.xtml.grammar.numbers import Range, UnsupportedRange, range_grammar, range_of, spellings
from gateway.xtml.grammar.rules import Rules
from tests.xtml.schema_instances import number_spellings
from tests.xtml.test_grammar import Checker, json_format, reply, tag_of, tool

BOUNDS = [
    0,
    1,
    -1,
    0.5,
    -0.5,
    10,
    9.99,
    100,
    120,
    -3,
    0.001,
    1e-7,
    2.5,
    12345.678,
    99,
    10**10,
    20,
    1.5e-9,
    2**53,
]
MULTIPLES = [0.01, 0.25, 3, 2.5, 10, 7, 1, 1000]
DECIMALS = st.decimals(-50, 50, places=3).map(float)
NUMBERS = st.sampled_from(BOUNDS) | st.integers(-200, 200) | st.floats(-1e6, 1e6) | DECIMALS
RANGES = st.fixed_dictionaries(
    {"type": st.sampled_from(["number", "integer"])},
    optional={
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "exclusiveMinimum": NUMBERS | st.booleans(),
        "exclusiveMaximum": NUMBERS | st.booleans(),
        "multipleOf": st.sampled_from(MULTIPLES),
    },
)


class Automaton:
    """A grammar of one-character steps, read back: rules `qN ::= [class]* (options)`."""

    def __init__(self, grammar: str) -> None:
        self._rules = dict(line.split(" ::= ") for line in grammar.splitlines())

    def accepts(self, text: str) -> bool:
        at: str | None = "q0"
        for char in text:
            at = self._next(at, char) if at else None
        return at is not None and (at == "end" or '""' in self._rules[at])

    def _next(self, state: str, char: str) -> str | None:
        if state == "end":
            return None
        body = self._rules[state]
        if (loop := re.match(r"(\[[^]]*\])\* ", body)) and re.fullmatch(loop[1], char):
            return state
        for symbols, target in re.findall(r"(\[[^]]*\])(?!\*)(?: (q\d+))?", body):
            if re.fullmatch(symbols, char):
                return target or "end"
        return None


def is_in(wanted: Range, value: Decimal) -> bool:
    above = wanted.low is None or value > wanted.low or (value == wanted.low and not wanted.low_open)
    below = wanted.high is None or value < wanted.high or (value == wanted.high and not wanted.high_open)
    fits = wanted.multiple is None or (Fraction(value) / wanted.multiple).denominator == 1
    return above and below and fits and (not wanted.integer or value == int(value))


@settings(deadline=None)
@given(schema=RANGES, others=st.lists(NUMBERS, max_size=3), rng=st.randoms(use_true_random=False))
def test_range_allows_what_the_schema_allows_and_nothing_else(
    schema: dict[str, Any], others: list[float], rng: random.Random
) -> None:
    wanted = range_of(schema)
    if wanted is None:
        assert not schema.keys() - {"type", "exclusiveMinimum", "exclusiveMaximum"}
        return
    try:
        grammar = Automaton(range_grammar(wanted))
    except UnsupportedRange as error:
        if "holds no number" not in str(error):
            return
        grammar = None
    values = {Decimal(0)}
    for number in [
        *others,
        *(v for v in schema.values() if isinstance(v, int | float) and not isinstance(v, bool)),
    ]:
        near = Decimal(repr(number))
        values |= {near, -near, near * 3, near + 1, near - 1, near + Decimal("1e-12"), near - Decimal("1e-3")}
    for value in values:
        expected = is_in(wanted, value)
        for text in number_spellings(value, whole=wanted.integer, plain=wanted.multiple is not None):
            assert (grammar is not None and grammar.accepts(text)) == expected, (wanted, text)


@given(value=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**25), 10**25) | NUMBERS)
@settings(deadline=None)
def test_numbers_of_an_enum_are_written_as_they_stand(value: float) -> None:
    rules = Rules()
    grammar = xgrammar.Grammar.from_ebnf(rules.text(rules.rule(spellings(value))))
    info = xgrammar.TokenizerInfo([chr(c) for c in range(128)] + ["</s>"], stop_token_ids=[128])
    compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)

    def accepts(text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiler.compile_grammar(grammar))
        return matcher.accept_string(text) and matcher.accept_token(128)

    assert accepts(json.dumps(value))
    for text in number_spellings(Decimal(repr(value) if isinstance(value, float) else value)):
        if len(text) < 40:
            assert accepts(text), text
    for text in (json.dumps(value) + "1", "1" + json.dumps(abs(value)), json.dumps(-value), f"{value}e5"):
        if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text) and Decimal(text) != Decimal(json.dumps(value)):
            assert not accepts(text), text


@pytest.fixture(scope="module")
def checker(small_vocab: Vocab) -> Checker:
    return Checker(small_vocab)


ONE_OF = [
    {"enum": [0.1, 1.5e-7, 1e22, -2.50, 3, 4.0, 0, 10**20]},
    {"type": "number", "enum": [1, 2.5]},
    {"type": "integer", "enum": [1, 2, 30]},
    {"const": 0.30000000000000004},
    {"enum": [[0.1, {"b": 1, "a": [1e-7, "é"]}], {}, [], {"ä": None}, "x\ud83d", 'q"\n']},
]  # fmt: skip


@pytest.mark.parametrize("node", ONE_OF, ids=str)
def test_literals_of_an_enum(checker: Checker, node: dict[str, Any]) -> None:
    """As the schema has them, and as the prompt shows them: with sorted keys."""
    vocab, schema = checker.vocab, {"type": "object", "properties": {"x": node}, "required": ["x"]}
    grammar = tag_of(vocab, response_format=json_format(schema))
    assert grammar.loosened == ()
    for value in node.get("enum", [node.get("const")]):
        texts = [json.dumps(value), json.dumps(value, sort_keys=True, separators=(",", ":"))]
        if "\\u" not in texts[0] or "é" in str(value):
            texts.append(json.dumps(value, ensure_ascii=False))
        if isinstance(value, int | float) and node.get("type") != "integer":
            texts += number_spellings(Decimal(json.dumps(value)))
        for text in texts:
            assert checker.refused_at(grammar, reply(vocab, content=f'{{"x": {text}}}')) is None, text
    for text in ("0.2", "0.10000000000000001", "5", "1.0000001", "[0.1]", '{"a":1}', "true", "-1"):
        assert not checker.accepts(grammar, reply(vocab, content=f'{{"x":{text}}}')), text
    if node.get("type") == "integer":
        assert not checker.accepts(grammar, reply(vocab, content='{"x":1.0}'))


def test_numbers_in_both_places(checker: Checker) -> None:
    """Through the whole grammar: in a JSON answer and as an argument."""
    vocab = checker.vocab
    nodes = {
        "a": {"type": "number", "minimum": 0, "maximum": 1},
        "b": {"type": "number", "exclusiveMinimum": 0},
        "c": {"type": "integer", "minimum": -5, "maximum": 2**53},
        "d": {"type": "number", "multipleOf": 0.01, "minimum": 0},
        "e": {"type": "number"},
        "f": {"type": "integer"},
    }
    schema = {"type": "object", "properties": nodes}
    answer = tag_of(vocab, response_format=json_format(schema))
    call = tag_of(vocab, tools=[tool("f", schema)], tool_choice="required")
    assert answer.loosened == call.loosened == ()
    good = {
        "a": ["0.12345678", "1e-7", "0", "1", "1.000", "0.99999999999999999999", "9.9E-1", "0.0"],
        "b": ["1e-300", "0.000000000001", "1e300", "123456789012345678901234567890.5"],
        "c": ["-5", "0", "9007199254740992", "17"],
        "d": ["0.01", "19.90", "3", "3.1", "0.050"],
        "e": ["-0", "1E+5", "12.5e-3", "0.0", "25e-8", "1e0005"],
        "f": ["0", "-12", "123456789012345678901234567890"],
    }
    bad = {
        "a": ["1.0000001", "2", "-0.1", "1e1", "10e-1", ".5", "01", "1.", "-"],
        "b": ["0", "0.000", "-1", "-1e-7", "0e5"],
        "c": ["-6", "9007199254740993", "1.0", "1e2", "1.5", "+1"],
        "d": ["0.001", "1.005", "-1"],
        "e": ["01", "1.", ".5", "e5", "1e", "+1", "NaN", "Infinity"],
        "f": ["1.0", "1e3", "00", "--1"],
    }
    for accepted, cases in ((True, good), (False, bad)):
        for key, texts in cases.items():
            for text in texts:
                in_answer = checker.accepts(answer, reply(vocab, content=f'{{"{key}":{text}}}'))
                assert in_answer == accepted, (key, text)
                if accepted:
                    ids = reply(vocab, ("f", f'{{"{key}":{text}}}'))
                    assert checker.refused_at(call, ids) is None, (key, text)


NODES = st.one_of(
    RANGES,
    st.lists(NUMBERS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    st.just({"type": "number"}),
    st.just({"minimum": 0.125}),
)


@settings(deadline=None, max_examples=30)
@given(node=NODES, more=st.lists(NUMBERS, min_size=1, max_size=4))
def test_every_literal_is_allowed_or_its_place_is_named(
    small_vocab: Vocab, node: Any, more: list[float]
) -> None:
    """Judged by another reader of JSON schema."""
    schema = {"type": "object", "properties": {"x": node}, "required": ["x"]}
    if any(isinstance(node.get(k), bool) for k in ("exclusiveMinimum", "exclusiveMaximum")):
        return  # draft 4, which this judge does not know
    grammar = tag_of(small_vocab, response_format=json_format(schema))
    if any(".properties.x: " in place for place in grammar.loosened):
        return
    checker = Checker(small_vocab)
    judge = jsonschema.Draft202012Validator(schema)
    bounds = [v for v in node.values() if isinstance(v, int | float)]
    for number in [*node.get("enum", ()), *more, *bounds, 0, 1]:
        whole = node.get("type") == "integer"
        exact = Decimal(repr(number))
        if not judge.is_valid({"x": number}):
            if "multipleOf" not in node:  # that judge divides floats
                assert not checker.accepts(grammar, reply(small_vocab, content=f'{{"x":{number!r}}}'))
            continue
        if "multipleOf" in node and (Fraction(exact) / Fraction(repr(node["multipleOf"]))).denominator != 1:
            continue
        for text in number_spellings(exact, whole=whole, plain="multipleOf" in node):
            assert checker.refused_at(grammar, reply(small_vocab, content=f'{{"x":{text}}}')) is None, text


def test_ranges_too_long_to_write_are_named() -> None:
    with pytest.raises(UnsupportedRange, match="more than 40 digits"):
        range_grammar(Range(Decimal("1e60"), False, None, False, None, False))
    with pytest.raises(UnsupportedRange, match="holds no number"):
        range_grammar(Range(Decimal(2), False, Decimal(1), False, None, False))
    with pytest.raises(UnsupportedRange, match="too many cases"):
        range_grammar(Range(None, False, None, False, Fraction(30011), True))
