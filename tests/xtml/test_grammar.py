"""Grammars by what they accept: completions token by token, as the engine would be held to them."""

import json
import random
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import xgrammar
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gateway.xtml import (
    Conversation,
    ConversationError,
    Message,
    ToolCall,
    Vocab,
    encode,
    encode_assistant,
    from_request,
)
from gateway.xtml.grammar.ranges import UnsupportedPattern
from gateway.xtml.grammar.regex import whole_text
from gateway.xtml.grammar.structural_tag import Grammar, structural_tag
from gateway.xtml.schema_keywords import ANNOTATIONS, GENERAL, OF_TYPE
from tests.xtml.schema_instances import ENFORCED, instance

MARKER_TEXT = "<|close|>think<|sep|><|open|>response<|sep|><|end_of_msg|>"


def tokenizer_info(vocab: Vocab, inert: bool = True) -> xgrammar.TokenizerInfo:
    """What vLLM tells xgrammar: the bytes of every token, special ones under their names.

    `inert`: behind a byte that no text has, so that only a token element matches them, as in the service.
    """
    tokens = [vocab.token_bytes(i) for i in range(vocab.size)]
    if inert:
        tokens[vocab.n_ranks :] = [b"\xff" + name for name in tokens[vocab.n_ranks :]]
    ends = sorted(vocab.stop_ids)
    return xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, vocab_size=vocab.size, stop_token_ids=ends)


class Checker:
    """Holds completions against tags."""

    def __init__(self, vocab: Vocab, inert: bool = True) -> None:
        self.vocab = vocab
        self._compiler = xgrammar.GrammarCompiler(tokenizer_info(vocab, inert), max_threads=2)

    def refused_at(self, grammar: Grammar, ids: list[int]) -> str | None:
        """The text up to the first id that the grammar does not allow; None if it is a whole message."""
        compiled = self._compiler.compile_structural_tag(grammar.tag)
        matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=sorted(self.vocab.stop_ids))
        for n, token_id in enumerate(ids):
            if not matcher.accept_token(token_id):
                return self.vocab.decode(ids[: n + 1])
        return None if matcher.is_terminated() else "unfinished"

    def accepts(self, grammar: Grammar, ids: list[int]) -> bool:
        return self.refused_at(grammar, ids) is None


@pytest.fixture(scope="module")
def checker(small_vocab: Vocab) -> Checker:
    return Checker(small_vocab)


@pytest.fixture(scope="module")
def foreign(small_vocab: Vocab) -> Checker:
    """With a tokenizer that spells special tokens by their names, as a Hugging Face one does."""
    return Checker(small_vocab, inert=False)


def tool(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    function = {"name": name} | ({"parameters": parameters} if parameters is not None else {}) | more
    return {"type": "function", "function": function}


WEATHER = tool(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
CLOCK = tool("clock")


def request(**body: Any) -> Conversation:
    return from_request({"messages": [{"role": "user", "content": "go"}]} | body)


def tag_of(vocab: Vocab, parallel: bool = True, inert: bool = True, **body: Any) -> Grammar:
    grammar = structural_tag(request(**body), vocab, parallel_tool_calls=parallel, inert_special_tokens=inert)
    assert grammar is not None
    return grammar


def reply(
    vocab: Vocab, *calls: tuple[str, Any], content: str = "", reasoning: str = "hm", thinking: bool = True
) -> list[int]:
    """A completion; a call is (name, arguments)."""
    tool_calls = tuple(ToolCall(None, name, arguments) for name, arguments in calls)
    message = Message("assistant", (content,), reasoning=reasoning, tool_calls=tool_calls)
    return encode_assistant(message, vocab, thinking=thinking)


def json_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema} | more}


# What is forced


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tools": [WEATHER]},
        {"tools": [WEATHER], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
    ],
)
def test_nothing_is_forced_without_need(small_vocab: Vocab, body: dict[str, Any]) -> None:
    assert structural_tag(request(**body), small_vocab) is None


def test_one_call_at_most_is_no_matter_without_tools(small_vocab: Vocab) -> None:
    assert structural_tag(request(), small_vocab, parallel_tool_calls=False) is None


@pytest.mark.parametrize("thinking", [True, False])
def test_required_wants_one_call_or_more(checker: Checker, thinking: bool) -> None:
    vocab = checker.vocab
    effort = {} if thinking else {"reasoning_effort": "none"}
    grammar = tag_of(vocab, tools=[WEATHER, CLOCK], tool_choice="required", **effort)
    weather, clock = ("get_weather", {"city": "Bern"}), ("clock", None)
    for calls in ([weather], [clock], [clock, weather], [weather] * 12):
        for content in ("", "Let me look."):
            ids = reply(vocab, *calls, content=content, thinking=thinking)
            assert checker.refused_at(grammar, ids) is None
    assert not checker.accepts(grammar, reply(vocab, content="no", thinking=thinking))
    assert not checker.accepts(grammar, reply(vocab, ("rm_rf", {}), thinking=thinking))
    assert not checker.accepts(grammar, reply(vocab, weather, thinking=not thinking))


def test_named_wants_that_tool(checker: Checker) -> None:
    vocab = checker.vocab
    choice = {"type": "function", "function": {"name": "clock"}}
    grammar = tag_of(vocab, tools=[WEATHER, CLOCK], tool_choice=choice)
    assert checker.accepts(grammar, reply(vocab, ("clock", {})))
    assert not checker.accepts(grammar, reply(vocab, ("get_weather", {"city": "Bern"})))
    assert not checker.accepts(grammar, reply(vocab))


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_of_allowed_tools_only_those_can_be_called(checker: Checker, mode: str) -> None:
    vocab = checker.vocab
    some = {"mode": mode, "tools": [{"type": "function", "function": {"name": "clock"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": some}
    grammar = tag_of(vocab, tools=[WEATHER, CLOCK], tool_choice=choice)
    assert checker.accepts(grammar, reply(vocab, ("clock", {})))
    assert not checker.accepts(grammar, reply(vocab, ("get_weather", {"city": "Bern"})))
    assert checker.accepts(grammar, reply(vocab, content="noon")) == (mode == "auto")


def test_forced_call_of_no_tool_is_an_error(small_vocab: Vocab) -> None:
    conversation = request(tools=[WEATHER], tool_choice="required")
    with pytest.raises(ConversationError) as caught:
        structural_tag(replace(conversation, tools=()), small_vocab)
    assert caught.value.param == "tool_choice"


def test_strict_tools_leave_the_choice_to_the_model(checker: Checker) -> None:
    vocab = checker.vocab
    strict = tool("add", WEATHER["function"]["parameters"], strict=True)
    grammar = tag_of(vocab, tools=[strict, CLOCK])
    assert checker.accepts(grammar, reply(vocab, content="text"))
    assert checker.accepts(grammar, reply(vocab, ("add", {"city": "x"}), ("clock", {}), content="text"))
    assert not checker.accepts(grammar, reply(vocab, ("add", {})))
    assert not checker.accepts(grammar, reply(vocab, ("undeclared", {})))


def test_strict_false_leaves_arguments_free(checker: Checker) -> None:
    vocab = checker.vocab
    loose = tool("loose", WEATHER["function"]["parameters"], strict=False)
    grammar = tag_of(vocab, tools=[loose], tool_choice="required")
    for arguments in (
        {},
        {"city": 5, "other": [1, {"a": None}], 'k"&': "text"},
        {"x": True, "y": None, "z": 1.5},
    ):
        assert checker.refused_at(grammar, reply(vocab, ("loose", arguments))) is None
    assert not checker.accepts(grammar, reply(vocab, ("other", {})))


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_not_parallel_allows_one_call(checker: Checker, choice: str) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, parallel=False, tools=[WEATHER, CLOCK], tool_choice=choice)
    assert checker.accepts(grammar, reply(vocab, ("clock", {})))
    assert not checker.accepts(grammar, reply(vocab, ("clock", {}), ("clock", {})))
    assert checker.accepts(grammar, reply(vocab, content="text")) == (choice == "auto")


def test_dynamic_tools_can_be_called(checker: Checker) -> None:
    vocab = checker.vocab
    messages = [{"role": "system", "tools": [WEATHER]}, {"role": "user", "content": "go"}]
    grammar = tag_of(vocab, messages=messages, tool_choice="required")
    assert checker.accepts(grammar, reply(vocab, ("get_weather", {"city": "Bern"})))
    assert not checker.accepts(grammar, reply(vocab, ("get_weather", {"days": 1})))


# JSON answers


OBJECT = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


@pytest.mark.parametrize("thinking", [True, False])
def test_json_answer(checker: Checker, thinking: bool) -> None:
    vocab = checker.vocab
    effort = {} if thinking else {"reasoning_effort": "none"}
    by_schema = tag_of(vocab, response_format=json_format(OBJECT), **effort)
    any_object = tag_of(vocab, response_format={"type": "json_object"}, **effort)
    not_strict = tag_of(vocab, response_format=json_format(OBJECT, strict=False), **effort)

    def accepted(grammar: Grammar, content: str) -> bool:
        return checker.accepts(grammar, reply(vocab, content=content, thinking=thinking))

    for text in ('{"a":true}', '{"a": false}'):
        assert accepted(by_schema, text) and accepted(any_object, text) and accepted(not_strict, text)
    for text in ('{"a":1}', "{}", '{"b":[1,{"c":"<|close|>"}]}'):
        assert not accepted(by_schema, text)
        assert accepted(any_object, text) and accepted(not_strict, text)
    for text in ('{"b":1,"a":[1, 2,{}],"c": {"d":1, "e":[]}}', '{"a":"\\ud83d\\n\\/"}'):
        assert accepted(any_object, text)
    wrong = ["", "[1]", '{"a":true', '{"a":true}}', '```json\n{"a":true}\n```', '{"a":true}' + " " * 99]
    for blanks in (
        '{\n  "a": true\n}',
        '{ "a":true}',
        '{"a" :true}',
        '{"a":  true}',
        '{"a":true }',
        ' {"a":true}',
    ):
        wrong += [blanks, blanks.replace(" ", "\t")]
    for text in wrong:
        assert not accepted(by_schema, text) and not accepted(any_object, text)


def test_json_answer_comes_in_the_order_of_the_prompt(checker: Checker) -> None:
    """The prompt shows schemas with sorted keys; undeclared members follow."""
    vocab = checker.vocab
    inner = {"type": "object", "properties": {"z": {}, "b": {}}}
    schema = {
        "type": "object",
        "properties": {"b": inner, "Z": {}, "ä": {}, "a": {}},
        "additionalProperties": True,
    }
    grammar = tag_of(vocab, response_format=json_format(schema))
    prompt = encode(request(response_format=json_format(schema)), vocab)
    shown = vocab.decode(prompt.ids)
    assert shown.index('"Z":{}') < shown.index('"a":{}') < shown.index('"b":{') < shown.index('"ä":{}')
    for text in ('{"Z":1,"a":2,"b":{"b":3,"z":4},"ä":5}', '{"a":1,"b":{},"c":2,"0":1}', "{}", '{"x":1}'):
        assert checker.refused_at(grammar, reply(vocab, content=text)) is None
    for text in ('{"b":{},"a":1}', '{"a":1,"Z":1}', '{"b":{"z":1,"b":2}}', '{"x":1,"a":1}', '{"a":1,"a":1}'):
        assert not checker.accepts(grammar, reply(vocab, content=text)), text
    by_call = tag_of(vocab, tools=[tool("f", schema)], tool_choice="required")
    assert checker.accepts(by_call, reply(vocab, ("f", '{"b":{"b": 3, "z":4},"a":2}')))
    assert not checker.accepts(by_call, reply(vocab, ("f", {"b": {"z": 4, "b": 3}})))


def test_json_answer_or_call(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, response_format=json_format(OBJECT), tools=[CLOCK])
    assert checker.accepts(grammar, reply(vocab, content='{"a":true}'))
    assert checker.accepts(grammar, reply(vocab, ("clock", {})))
    assert not checker.accepts(grammar, reply(vocab, content="text"))
    assert not checker.accepts(grammar, reply(vocab, ("clock", {}), content="text"))
    assert not checker.accepts(grammar, reply(vocab))


def test_json_answer_with_a_required_call(checker: Checker) -> None:
    vocab = checker.vocab
    body = {"response_format": json_format(OBJECT), "tools": [CLOCK]}
    grammar = tag_of(vocab, tool_choice="required", **body)
    assert checker.accepts(grammar, reply(vocab, ("clock", {})))
    assert not checker.accepts(grammar, reply(vocab, content='{"a":true}'))
    grammar = tag_of(vocab, tool_choice="none", **body)
    assert checker.accepts(grammar, reply(vocab, content='{"a":true}'))
    assert not checker.accepts(grammar, reply(vocab, ("clock", {}), content='{"a":true}'))


# Messages that the client began


def partial(vocab: Vocab, *, content: str = "", reasoning: str = "", **body: Any) -> Grammar:
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning, "partial": True}
    return tag_of(vocab, messages=[{"role": "user", "content": "go"}, message], **body)


def test_partial_message_goes_on_in_its_channel(checker: Checker) -> None:
    vocab = checker.vocab
    body = {"tools": [CLOCK], "tool_choice": "required"}
    in_thinking, in_response = reply(vocab, ("clock", {})), reply(vocab, ("clock", {}), thinking=False)
    for fields, ids in [
        ({"content": "I"}, in_response),
        ({"reasoning": "so"}, in_thinking),
        ({"reasoning": "so", "content": "I"}, in_response),
    ]:
        grammar = partial(vocab, **fields, **body)
        assert checker.accepts(grammar, ids)
        assert not checker.accepts(grammar, in_thinking if ids is in_response else in_response)


def test_json_that_the_client_began_is_reported(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = partial(vocab, content='{"a"', response_format={"type": "json_object"})
    assert [place.split(":")[0] for place in grammar.loosened] == ["response_format"]
    assert checker.accepts(grammar, reply(vocab, content=":1}", thinking=False))


# Markers


def test_every_marker_is_needed_and_nothing_follows(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, tools=[WEATHER], tool_choice="required")
    ids = reply(vocab, ("get_weather", {"days": 2, "city": "Bern"}), content="x")
    assert checker.accepts(grammar, ids)
    for i, token_id in enumerate(ids):
        if token_id >= vocab.n_ranks:
            assert not checker.accepts(grammar, ids[:i] + ids[i + 1 :]), vocab.decode(ids[: i + 1])
    assert not checker.accepts(grammar, ids[:-1])
    assert not checker.accepts(grammar, ids[:-1] + vocab.encode("more") + ids[-1:])
    assert checker.accepts(grammar, [*ids[:-1], vocab.special_ids["[EOS]"]])


def test_marker_in_ordinary_pieces_is_text(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, tools=[WEATHER], tool_choice="required")
    call = ("get_weather", {"city": MARKER_TEXT})
    ids = reply(vocab, call, content=MARKER_TEXT, reasoning=MARKER_TEXT)
    assert checker.refused_at(grammar, ids) is None
    for marker in (vocab.open, vocab.close, vocab.sep):
        for i in [i for i, token_id in enumerate(ids) if token_id == marker]:
            spelled = vocab.encode(vocab.special_name(marker) or "")
            assert not checker.accepts(grammar, ids[:i] + spelled + ids[i + 1 :])


def test_no_special_token_is_text(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, tools=[WEATHER], tool_choice="required")
    ids = reply(vocab, ("get_weather", {"city": "Bern"}), content="here", reasoning="then")
    places = [vocab.encode(text)[0] for text in ("then", "here", "Bern")]
    for special in vocab.special_ids.values():
        for place in places:
            at = ids.index(place)
            assert not checker.accepts(grammar, [*ids[:at], special, *ids[at:]])


def test_special_token_in_json_needs_inert_tokens(small_vocab: Vocab) -> None:
    """xgrammar matches a special token by its name inside JSON; the engine can tell it otherwise."""
    grammar = tag_of(small_vocab, response_format={"type": "json_object"})
    ids = reply(small_vocab, content='{"a":"<"}')
    at = ids.index(small_vocab.encode("<")[0])
    with_token = [*ids[:at], small_vocab.close, *ids[at + 1 :]]
    assert Checker(small_vocab, inert=False).accepts(grammar, with_token)
    inert = Checker(small_vocab)
    assert not inert.accepts(grammar, with_token)
    assert inert.accepts(grammar, ids)
    assert inert.accepts(grammar, reply(small_vocab, content=json.dumps({"a": MARKER_TEXT})))


# Arguments by schema


def in_prompt_order(value: Any) -> Any:
    """Every object's members in the order in which the prompt shows their schema, undeclared ones last."""
    if isinstance(value, list):
        return [in_prompt_order(v) for v in value]
    if isinstance(value, dict):
        return {k: in_prompt_order(value[k]) for k in sorted(value, key=lambda k: (k.startswith("extra"), k))}
    return value


def broken(schema: Any, rng: random.Random) -> dict[str, Any] | None:
    """Arguments that look like an instance and are none; None if this try gave none."""
    arguments = instance(schema, rng)
    keys = list(arguments)
    wrong = [None, -1000, 10**6, 0.25, "?", [], [[0]], {}, {"no": 1}, True]
    match rng.randrange(3):
        case 0 if keys:
            del arguments[rng.choice(keys)]
        case 1:
            arguments["undeclared"] = rng.choice(wrong)
        case _ if keys:
            key = rng.choice(keys)
            value = arguments[key]
            if isinstance(value, dict) and value and rng.random() < 0.7:
                value[rng.choice(list(value))] = rng.choice(wrong)
            elif isinstance(value, list) and rng.random() < 0.7:
                arguments[key] = value * 4 + [rng.choice(wrong)]
            else:
                arguments[key] = rng.choice(wrong)
    return None if jsonschema.Draft202012Validator(schema).is_valid(arguments) else arguments


@pytest.mark.parametrize("kind", ENFORCED)
def test_arguments_follow_the_schema(checker: Checker, kind: str) -> None:
    vocab, schema, rng = checker.vocab, ENFORCED[kind], random.Random(kind)
    grammar = tag_of(vocab, tools=[tool("f", schema)], tool_choice="required")
    known = ("oneOf enforced as anyOf", "many: maxLength not enforced (more than 64 characters)")
    assert [place for place in grammar.loosened if not place.endswith(known)] == []
    for _ in range(40):
        arguments = in_prompt_order(instance(schema, rng))
        jsonschema.validate(arguments, schema)
        in_any_order = dict(rng.sample(sorted(arguments.items()), len(arguments)))
        assert checker.refused_at(grammar, reply(vocab, ("f", in_any_order))) is None
    for arguments in filter(None, (broken(schema, rng) for _ in range(60))):
        assert not checker.accepts(grammar, reply(vocab, ("f", in_prompt_order(arguments)))), arguments


@pytest.mark.parametrize("kind", ENFORCED)
def test_json_answers_follow_the_schema(checker: Checker, kind: str) -> None:
    vocab, schema, rng = checker.vocab, ENFORCED[kind], random.Random(kind)
    grammar = tag_of(vocab, response_format=json_format(schema))
    for _ in range(20):
        text = json.dumps(
            in_prompt_order(instance(schema, rng)),
            ensure_ascii=False,
            separators=rng.choice([(",", ":"), None]),
        )
        assert checker.refused_at(grammar, reply(vocab, content=text)) is None
    for arguments in filter(None, (broken(schema, rng) for _ in range(40))):
        assert not checker.accepts(grammar, reply(vocab, content=json.dumps(in_prompt_order(arguments)))), (
            arguments
        )


def test_type_attribute_agrees_with_the_value(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, tools=[WEATHER], tool_choice="required")
    ids = reply(vocab, ("get_weather", {"city": "B", "days": 2}))
    number, string = vocab.encode("number"), vocab.encode("string")
    at = next(i for i in range(len(ids)) if ids[i : i + len(number)] == number)
    assert checker.accepts(grammar, ids)
    assert not checker.accepts(grammar, ids[:at] + string + ids[at + len(number) :])


ANY = {"type": "string"}
WORD = {"type": "string", "pattern": "^[a-z]{1,3}$"}
FREE_TEXT_BESIDE_A_RULE = {
    "pattern": {"type": "object", "properties": {"t": {"anyOf": [WORD, ANY]}}, "required": ["t"]},
    "enum": {"type": "object", "properties": {"t": {"anyOf": [{"enum": ["abc", "line", ""]}, ANY]}}},
    "some text": {
        "type": "object",
        "properties": {"t": {"anyOf": [{"const": "line"}, {"type": "string", "minLength": 1}]}},
    },
    "two shapes": {
        "anyOf": [
            {"type": "object", "properties": {"t": WORD, "k": {"const": 1}}, "required": ["k"]},
            {"type": "object", "properties": {"t": ANY, "k": {"const": 2}}, "required": ["k"]},
        ]
    },
    "undeclared keys": {
        "anyOf": [
            {"type": "object", "properties": {"t": WORD, "k": {"const": 1}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": 2}}, "required": ["k"],
             "additionalProperties": ANY},
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", FREE_TEXT_BESIDE_A_RULE)
def test_free_text_beside_a_rule_for_the_same_text(checker: Checker, kind: str) -> None:
    """xgrammar loses one of them where a token of several characters fits both (here `in`)."""
    vocab, schema = checker.vocab, FREE_TEXT_BESIDE_A_RULE[kind]
    grammar = tag_of(vocab, tools=[tool("f", schema)], tool_choice="required")
    assert any(len(vocab.token_bytes(i)) > 1 for i in vocab.encode("line"))
    last = {"k": 2} if "anyOf" in schema else {}
    for text in ("line", "linez", "line\nbreak", "lin", "li", "abc", "ab1", "Zürich 😀", "x <|clos"):
        assert checker.refused_at(grammar, reply(vocab, ("f", {"t": text} | last))) is None, text
    if last:
        assert checker.accepts(grammar, reply(vocab, ("f", {"t": "abc", "k": 1})))
        assert not checker.accepts(grammar, reply(vocab, ("f", {"t": "abcd", "k": 1})))


def test_no_key_comes_twice(checker: Checker) -> None:
    vocab = checker.vocab
    grammar = tag_of(vocab, tools=[WEATHER], tool_choice="required")
    for arguments in ('{"city":"a","city":"b"}', '{"city":"a","days":1,"days":2}'):
        assert not checker.accepts(grammar, reply(vocab, ("get_weather", arguments)))


def test_many_required_keys_are_enforced_as_far_as_tracked(checker: Checker) -> None:
    vocab = checker.vocab
    keys = [f"k{i}" for i in range(14)]
    schema = {"type": "object", "properties": {k: {"type": "integer"} for k in keys}, "required": keys}
    grammar = tag_of(vocab, tools=[tool("f", schema)], tool_choice="required")
    assert checker.accepts(grammar, reply(vocab, ("f", dict.fromkeys(reversed(keys), 1))))
    assert not checker.accepts(grammar, reply(vocab, ("f", dict.fromkeys(keys[1:], 1))))
    assert len(grammar.loosened) == 5
    assert grammar.loosened[0].startswith("tools[0].function.parameters: required 'k9' not enforced")


# Schemas that xgrammar does not know, or that are wrong


LOOSE = [
    ({"type": "string", "pattern": "(?=a)b"}, "properties.x: pattern not enforced"),
    ({"type": "string", "pattern": "("}, "properties.x: pattern not enforced"),
    ({"type": "string", "pattern": "(a)\\1"}, "properties.x: pattern not enforced"),
    ({"type": "string", "pattern": "\\p{L}+"}, "properties.x: pattern not enforced"),
    ({"type": "string", "pattern": "^a+b+$", "minLength": 2}, "properties.x: length not enforced"),
    ({"type": "string", "format": "iri"}, "properties.x: format not enforced ('iri' is not known)"),
    ({"type": "string", "minLength": 5, "maxLength": 2}, "properties.x: length not enforced"),
    ({"type": "integer", "multipleOf": 30011}, "properties.x: range not enforced (too many cases"),
    (
        {"type": "number", "maximum": 1e60},
        "properties.x: range not enforced (a bound of more than 40 digits)",
    ),
    ({"type": "integer", "minimum": 9, "maximum": 2}, "properties.x: range not enforced"),
    (
        {"type": "integer", "exclusiveMinimum": 3, "maximum": 3.5},
        "properties.x: range not enforced (it holds no",
    ),
    ({"type": "array", "uniqueItems": True}, "properties.x: uniqueItems not enforced"),
    ({"type": "array", "minItems": 4, "maxItems": 2}, "properties.x: number of items not enforced"),
    ({"type": "object", "patternProperties": {"^a": {}}}, "properties.x: patternProperties not enforced"),
    ({"not": {"type": "string"}}, "properties.x: not not enforced"),
    ({"if": {}, "then": {}}, "properties.x: if not enforced"),
    ({"$ref": "https://example.test/else"}, "not found, any value allowed"),
    ({"$ref": "#/properties/x"}, "properties.x: nested too deeply, any value allowed"),
    ({"anyOf": []}, "properties.x: allows nothing, any value allowed"),
    ({"type": "string", "enum": [1]}, "properties.x: allows nothing, any value allowed"),
    (
        {"type": "array", "items": {"type": "string", "pattern": "(?!a)"}},
        "properties.x.items: pattern not enforced",
    ),
    ("nonsense", "properties.x: is not a schema"),
    ({"anyOf": [{"type": "string"}, {"type": "banana"}]}, "type is not one of JSON's types"),
    ({"required": "a"}, "properties.x: required is not a list of strings, not enforced"),
    ({"type": "array", "minItems": "2"}, "properties.x: minItems is not a count, not enforced"),
    ({"pattern": 5}, "properties.x: pattern is not a string, not enforced"),
    ({"type": "string", "maxLength": -1}, "properties.x: maxLength is not a count, not enforced"),
    ({"enum": "ab"}, "properties.x: enum is not a list, not enforced"),
    ({"$ref": 5}, "properties.x: $ref is not a string, not enforced"),
    ({"type": "number", "minimum": "0"}, "properties.x: minimum is not a number, not enforced"),
    ({"type": "string", "nullable": "yes"}, "properties.x: nullable is not true or false, not enforced"),
    ({"type": "object", "properties": 5}, "properties.x: properties is not an object"),
]


@pytest.mark.parametrize(("schema", "report"), LOOSE)
def test_what_is_not_enforced_is_reported_for_its_place(checker: Checker, schema: Any, report: str) -> None:
    vocab = checker.vocab
    parameters = {"type": "object", "properties": {"x": schema, "y": {"type": "boolean"}}, "required": ["y"]}
    grammar = tag_of(vocab, tools=[CLOCK, tool("f", parameters)], tool_choice="required")
    assert any(r.startswith("tools[1].function.parameters.") and report in r for r in grammar.loosened)
    value = {"string": "aabb", "integer": 7, "number": 1.5, "array": ["a"], "object": {"ab": 1}}
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if isinstance(schema, dict) and "required" in schema:
        kind = "object"
    if not (isinstance(schema, dict) and "patternProperties" in schema):
        assert checker.refused_at(grammar, reply(vocab, ("f", {"x": value[kind], "y": True}))) is None
    assert not checker.accepts(grammar, reply(vocab, ("f", {"x": value[kind]}))), "the rest is enforced"


@pytest.mark.parametrize(
    "parameters", [{"type": "string"}, {"enum": [{}]}, True, {"anyOf": [{"type": "array"}]}]
)
def test_parameters_that_are_no_object_leave_arguments_free(checker: Checker, parameters: Any) -> None:
    vocab = checker.vocab
    conversation = request(tools=[CLOCK], tool_choice="required")
    conversation = replace(conversation, tools=(tool("f", parameters),))
    grammar = structural_tag(conversation, vocab)
    assert grammar is not None
    assert checker.accepts(grammar, reply(vocab, ("f", {"anything": [1]})))


def test_very_deep_schema_is_loosened(checker: Checker) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(120):
        schema = {"type": "object", "properties": {"k": schema}, "required": ["k"]}
    for body in (
        {"tools": [tool("f", schema)], "tool_choice": "required"},
        {"response_format": json_format(schema)},
    ):
        grammar = tag_of(checker.vocab, **body)
        assert any("nested too deeply" in place for place in grammar.loosened)
        checker.refused_at(grammar, [])


def test_schema_that_refers_to_itself_beside_other_keywords(checker: Checker) -> None:
    again = {"$ref": "#", "minProperties": 1}
    schema = {"type": "object", "properties": {"a": again, "b": again, "c": again}}
    grammar = tag_of(checker.vocab, tools=[tool("f", schema)], tool_choice="required")
    deep: dict[str, Any] = {}
    for key in "abcabcabc":
        deep = {key: deep}
    assert checker.accepts(grammar, reply(checker.vocab, ("f", deep)))
    assert not checker.accepts(grammar, reply(checker.vocab, ("f", {"a": {"d": {}}})))


def test_schema_of_very_many_places_is_cut(checker: Checker) -> None:
    properties = {f"k{i:04}": {"type": "integer", "minimum": i} for i in range(3000)}
    schema = {"type": "object", "properties": {"x": {"type": "object", "properties": properties}}}
    for body in (
        {"tools": [tool("f", schema)], "tool_choice": "required"},
        {"response_format": json_format(schema)},
    ):
        grammar = tag_of(checker.vocab, **body)
        places = [place for place in grammar.loosened if "more than 2000 places in one schema" in place]
        assert 999 <= len(places) <= 1005


KEYWORDS = st.sampled_from([*GENERAL, *ANNOTATIONS, *(k for ks in OF_TYPE.values() for k in ks), "not"])
WORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "allOf",
        "oneOf",
        "enum",
        "const",
        "$ref",
        "$defs",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "minItems",
        "prefixItems",
        "additionalProperties",
        "format",
        "not",
        "nullable",
        "exclusiveMinimum",
        "$id",
        "title",
    ]
)
WORDS = st.sampled_from(
    ["string", "integer", "object", "array", "null", "#", "#/$defs/a", "^a+$", "[", "date"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats() | st.text(max_size=2) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schema=st.dictionaries(KEYWORDS, VALUES, max_size=5))
def test_no_schema_raises(checker: Checker, schema: dict[str, Any]) -> None:
    conversation = replace(
        request(tools=[CLOCK], tool_choice="required"), tools=(tool("f", {"properties": {"x": schema}}),)
    )
    grammar = structural_tag(conversation, checker.vocab)
    assert grammar is not None
    checker.refused_at(grammar, [])
    answer = replace(request().response_format, type="json_schema", schema=schema)
    grammar = structural_tag(replace(request(), response_format=answer), checker.vocab)
    assert grammar is not None
    checker.refused_at(grammar, [])


# Patterns


PATTERNS = [
    "^[a-z]+$",
    "b+",
    "^\\d{3}-\\d{4}$",
    '^(a|b)*"\\\\\\n$',
    "^[^x]+$",
    "^a|b$",
    ".\\S+",
    "",
    "^\\x07$",
    "^é😀?$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pattern_matches_as_a_search_does(checker: Checker, pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern) | st.text(alphabet='abx"\\\n\r\té😀0', max_size=6))
    assume(text.isascii() or "\\" not in pattern)  # Python's \\d and \\s know more than ECMA's
    # Python's `$` is another, and its `.` takes more line ends than ECMA's.
    python = pattern.replace("$", r"\Z").replace(".", "[^\n\r\u2028\u2029]")
    expected = re.search(python, text) is not None
    node = {"type": "string", "pattern": pattern}
    schema = {"type": "object", "properties": {"x": node}, "required": ["x"]}
    inside = tag_of(checker.vocab, response_format=json_format(schema))
    content = json.dumps({"x": text}, ensure_ascii=False)
    assert checker.accepts(inside, reply(checker.vocab, content=content)) == expected
    raw = tag_of(checker.vocab, tools=[tool("f", schema)], tool_choice="required")
    if "\0" not in text:  # xgrammar has no NUL
        assert checker.accepts(raw, reply(checker.vocab, ("f", {"x": text}))) == expected


def test_characters_are_counted_in_json(checker: Checker) -> None:
    """An escape is one character, and so is a surrogate pair of them."""
    node = {"type": "string", "minLength": 2, "maxLength": 3}
    grammar = tag_of(
        checker.vocab, response_format=json_format({"type": "object", "properties": {"x": node}})
    )
    assert grammar.loosened == ()
    for text in (
        "ab",
        "<=",
        "😀é",
        "\\n\\u00e9",
        "\\ud83d\\ude00a",
        "\\ud83d\\ude00" * 3,
        '\\"\\/\\\\',
        "城城城",
    ):
        assert checker.refused_at(grammar, reply(checker.vocab, content=f'{{"x":"{text}"}}')) is None
    for text in (
        "a",
        "",
        "😀",
        "\\n",
        "\\ud83d\\ude00",
        "abcd",
        "\\u00e9" * 4,
        "\\ud83d\\ude00" * 4,
        "\\ud83d\\ud83d",
    ):
        assert not checker.accepts(grammar, reply(checker.vocab, content=f'{{"x":"{text}"}}'))


@pytest.mark.parametrize("place", ["answer", "argument"])
def test_long_lengths_are_named(checker: Checker, place: str) -> None:
    nodes = {
        "a": {"type": "string", "maxLength": 64},
        "b": {"type": "string", "maxLength": 65},
        "c": {"type": "string", "minLength": 100},
    }
    schema = {"type": "object", "properties": nodes}
    body: dict[str, Any] = {"tools": [tool("f", schema)], "tool_choice": "required"}
    grammar = tag_of(
        checker.vocab, **(body if place == "argument" else {"response_format": json_format(schema)})
    )
    assert [line.split(".")[-1] for line in grammar.loosened] == [
        "b: maxLength not enforced (more than 64 characters)",
        "c: minLength enforced up to 64 characters only",
    ]
    for value, accepted in (({"a": "x" * 64, "b": "y" * 99, "c": "z" * 64}, True), ({"a": "x" * 65}, False),
                            ({"c": "z" * 63}, False)):  # fmt: skip
        as_call = reply(checker.vocab, ("f", value))
        ids = as_call if place == "argument" else reply(checker.vocab, content=json.dumps(value))
        assert checker.accepts(grammar, ids) == accepted


def test_raw_text_under_a_rule_holds_anything(checker: Checker) -> None:
    node = {"type": "string", "minLength": 2, "maxLength": 20}
    schema = {"type": "object", "properties": {"x": node}, "required": ["x"]}
    grammar = tag_of(checker.vocab, tools=[tool("f", schema)], tool_choice="required")
    for text in (
        "<=",
        "a<b",
        "<<<a|close|>x",
        "x<|close|ay",
        "<|open|>x<|sep|>",
        "ab<|close|>cd",
        "<" * 20,
        "城😀",
    ):
        assert checker.refused_at(grammar, reply(checker.vocab, ("f", {"x": text}))) is None
    for text in ("<", "", "😀", "<" * 21, "<=" * 11, "a" * 21):
        assert not checker.accepts(grammar, reply(checker.vocab, ("f", {"x": text})))


def test_raw_text_of_a_foreign_vocabulary_holds_anything_but_the_close_marker(foreign: Checker) -> None:
    node = {"type": "string", "minLength": 2, "maxLength": 20}
    schema = {
        "type": "object",
        "properties": {"x": node, "y": {"type": "string", "pattern": "b+"}},
        "required": ["x"],
    }
    grammar = tag_of(foreign.vocab, inert=False, tools=[tool("f", schema)], tool_choice="required")
    assert [place.split(": ")[1] for place in grammar.loosened] == [
        "maxLength counts `<` and what follows it as one"
    ]
    for text in ("a<b", "<<<a|close|>x", "x<|close|ay", "ab<|clos", "<|open|>x<|sep|>"):
        assert foreign.refused_at(grammar, reply(foreign.vocab, ("f", {"x": text, "y": "abc"}))) is None
    assert not foreign.accepts(grammar, reply(foreign.vocab, ("f", {"x": "ab<|close|>cd"})))
    assert not foreign.accepts(grammar, reply(foreign.vocab, ("f", {"x": "ab", "y": "ac"})))


@pytest.mark.parametrize(
    "node",
    [{"pattern": "^a[^x]+$"}, {"pattern": "^a"}, {"minLength": 1}, {"maxLength": 9}, {}, {"pattern": "a.?"}],
)
def test_control_characters_stand_in_json_as_escapes_only(checker: Checker, node: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"} | node}, "required": ["x"]}
    grammar = tag_of(checker.vocab, response_format=json_format(schema))
    for code in [*range(0x20), 0x22, 0x5C]:
        raw, text = f'{{"x":"a{chr(code)}"}}', json.dumps({"x": f"a{chr(code)}"}, separators=(",", ":"))
        assert not checker.accepts(grammar, reply(checker.vocab, content=raw))
        assert checker.refused_at(grammar, reply(checker.vocab, content=text)) is None
    for code in (0x7F, 0x80, 0x2028, 0xFFFF):
        text = json.dumps({"x": f"a{chr(code)}"}, separators=(",", ":"), ensure_ascii=False)
        if "." not in node.get("pattern", "") or code != 0x2028:
            assert checker.refused_at(grammar, reply(checker.vocab, content=text)) is None


def test_blanks_of_a_pattern_are_those_of_ecma(checker: Checker) -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^\\s$"}},
        "required": ["x"],
    }
    grammar = tag_of(checker.vocab, tools=[tool("f", schema)], tool_choice="required")
    blanks = {
        *range(0x09, 0x0E),
        0x20,
        0xA0,
        0x1680,
        *range(0x2000, 0x200B),
        0x2028,
        0x2029,
        0x202F,
        0x205F,
        0x3000,
    }
    for code in [
        *blanks,
        0xFEFF,
        0x08,
        0x0E,
        0x1F,
        0x21,
        0x9F,
        0xA1,
        0x85,
        0x180E,
        0x1FFF,
        0x200B,
        0x2027,
        0x202A,
    ]:
        accepted = checker.accepts(grammar, reply(checker.vocab, ("f", {"x": chr(code)})))
        assert accepted == (code in blanks or code == 0xFEFF), hex(code)


def test_pattern_beyond_regular_languages_is_refused() -> None:
    for pattern in ("(?=a)", "(?<!a)b", "(a)\\1", "a^b", "a{9999}", "(?i:a)", "[", "\\p{Han}"):
        with pytest.raises(UnsupportedPattern):
            whole_text(pattern, "raw")


# The real vocabulary


def test_real_vocabulary(real_vocab: Vocab) -> None:
    checker = Checker(real_vocab)
    rng = random.Random(1)
    tools = [tool(f"tool_{i}", schema) for i, schema in enumerate(ENFORCED.values())]
    grammar = tag_of(real_vocab, tools=tools, tool_choice="required")
    for _ in range(20):
        calls = [
            (t["function"]["name"], in_prompt_order(instance(t["function"]["parameters"], rng)))
            for t in rng.sample(tools, 3)
        ]
        ids = reply(real_vocab, *calls, content=MARKER_TEXT, reasoning=MARKER_TEXT)
        assert checker.refused_at(grammar, ids) is None
    assert not checker.accepts(grammar, reply(real_vocab, ("tool_0", {"s": "x"})))
