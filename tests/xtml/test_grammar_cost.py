"""What would be too dear for the engine is loosened and reported; what is ordinary stays enforced."""

import warnings
from string import ascii_letters
from typing import Any

import pytest

from gateway.xtml import Vocab, from_request
from gateway.xtml.grammar.ranges import UnsupportedPattern
from gateway.xtml.grammar.regex import cost, whole_text
from gateway.xtml.grammar.structural_tag import Grammar, structural_tag

DEAR_PATTERNS = {
    "a run of optionals": "^" + "(a|b)?" * 3000 + "$",
    "a run of optionals of their own": "^" + "".join(f"(?:{c}{c})?" for c in ascii_letters) + "$",
    "nullable repeat": r"^(\s*\w*\s*){0,500}$",
    "counter in a counter": r"^(\w{0,64},?){0,64}$",
    "counters in counters": "^((((a|b){0,4096}){0,4096}){0,4096}){0,4096}$",
    "ambiguous repeat": r"^(\w+\s?){0,20}$",
    "endless ones side by side": "^.*.*.*.*.*.*.*.*.*.*.*.*$",
    "endless in endless": r"^(\s*\w*\s*)*$",
    "counters side by side": "^.{1,100}.{1,100}$",
    "long repeat of a group": "^(abc|de|ab){0,4096}$",
    "exact counters in each other": "^((a{100}){100}){100}$",
    "long counter of a wide class": r'^[^"\\\x00-\x1f]{1,250}$',
    "long counter of any character": "^.{1,1000}$",
    "long text": "^" + "a" * 30_000 + "$",
}
ORDINARY_PATTERNS = [
    "foo",
    r"^\d{3}-\d{4}$",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
    r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$",
    r"^https?://[^\s/$.?#].[^\s]*$",
    r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$",
    "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$",
    r"^P(?:\d+Y)?(?:\d+M)?(?:\d+W)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?$",
    r"^(\w+\s?)+$",
    r"^\w{1,64}(,\w{1,64}){0,63}$",
    "^.{1,64}$",
    r"^[\w ]{1,500}$",
    "^(" + "|".join(f"word{i}" for i in range(300)) + ")$",
]  # fmt: skip
BIG = 100_000


def answer(vocab: Vocab, schema: dict[str, Any]) -> Grammar:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "go"}], "response_format": wanted}
    grammar = structural_tag(from_request(body), vocab)
    assert grammar is not None
    return grammar


def call(vocab: Vocab, *schemas: dict[str, Any]) -> Grammar:
    functions = [{"name": f"f{i}", "parameters": schema} for i, schema in enumerate(schemas)]
    tools = [{"type": "function", "function": function} for function in functions]
    body = {"messages": [{"role": "user", "content": "go"}], "tools": tools, "tool_choice": "required"}
    grammar = structural_tag(from_request(body), vocab)
    assert grammar is not None
    return grammar


def holding(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def words(n: int, begin: str = "word") -> dict[str, Any]:
    return {"enum": [f"{begin}{i}" for i in range(n)]}


@pytest.mark.parametrize("pattern", DEAR_PATTERNS.values(), ids=DEAR_PATTERNS)
def test_dear_pattern_is_loosened(small_vocab: Vocab, pattern: str) -> None:
    schema = holding(x={"type": "string", "pattern": pattern})
    for grammar in (answer(small_vocab, schema), call(small_vocab, schema)):
        assert len(grammar.loosened) == 1
        assert "properties.x: pattern not enforced (" in grammar.loosened[0]


@pytest.mark.parametrize("pattern", ORDINARY_PATTERNS)
def test_ordinary_pattern_stays_enforced(small_vocab: Vocab, pattern: str) -> None:
    schema = holding(x={"type": "string", "pattern": pattern})
    free = holding(x={"type": "string"})
    for make in (answer, call):
        assert make(small_vocab, schema).loosened == ()
        assert make(small_vocab, schema).tag != make(small_vocab, free).tag


def test_a_choice_counts_as_often_as_it_repeats() -> None:
    once, often = cost("^(a?ab)$"), cost("^(a?ab){5}$")
    assert (once.choices, often.choices) == (1, 5)
    assert (once.size, often.size) == (3, 15)
    assert cost("^(a?b){5}$").choices == 0  # the next character settles it
    with pytest.raises(UnsupportedPattern, match="ambiguous"):
        cost("^(a?ab){25}$")


def test_patterns_of_a_request_share_a_budget(small_vocab: Vocab) -> None:
    dear = {"type": "string", "pattern": r"^[\w ]{1,500}$"}
    grammar = call(small_vocab, *(holding(x=dear) for _ in range(4)))
    assert [line.split(".")[0] for line in grammar.loosened] == ["tools[2]", "tools[3]"]
    several = {f"k{i}": {"type": "string", "pattern": f"^[\\w ]{{1,{500 - i}}}$"} for i in range(4)}
    grammar = answer(small_vocab, holding(**several))
    assert [line.split(": ")[0][-2:] for line in grammar.loosened] == ["k2", "k3"]


def test_big_enum_stays_enforced(small_vocab: Vocab) -> None:
    for make in (answer, call):
        grammar = make(small_vocab, holding(x=words(3000)))
        assert grammar.loosened == ()
        assert "word2999" in grammar.tag


@pytest.mark.parametrize(
    "values",
    [words(BIG), {"enum": ["a" * BIG]}, {"const": "a" * BIG}, {"enum": list(range(BIG))}],
    ids=["many", "long", "const", "numbers"],
)
def test_enum_of_too_much_text_is_loosened_to_its_types(small_vocab: Vocab, values: dict[str, Any]) -> None:
    kind = "number" if isinstance(values.get("enum", [""])[0], int) else "string"
    for make in (answer, call):
        grammar = make(small_vocab, holding(x=values))
        assert [line.split(".")[-1] for line in grammar.loosened] == [
            "x: enum or const not enforced (too much text)"
        ]
        assert grammar.tag == make(small_vocab, holding(x={"type": kind})).tag


def test_enums_of_a_request_share_a_budget(small_vocab: Vocab) -> None:
    grammar = call(small_vocab, *(holding(x=words(1500, f"w{i}-")) for i in range(4)))
    assert [line.split(".")[0] for line in grammar.loosened] == ["tools[2]", "tools[3]"]


def test_allof_of_enums_keeps_what_is_in_both(small_vocab: Vocab) -> None:
    left: list[Any] = ["a", "b", 1, True, [1, {"k": 2.0}], None]
    right: list[Any] = [{"k": 1}, None, [1.0, {"k": 2}], "b", 1.0, "z"]
    both = answer(small_vocab, holding(x={"allOf": [{"enum": left}, {"enum": right}]}))
    kept = ["b", 1, [1, {"k": 2.0}], None]
    assert both == answer(small_vocab, holding(x={"enum": kept}))
    # Compared value by value, these would be as good as endless.
    huge = [words(BIG, "v"), {"enum": [*words(BIG, "w")["enum"], "v7"]}]
    assert answer(small_vocab, holding(x={"allOf": huge})) == answer(small_vocab, holding(x={"enum": ["v7"]}))


@pytest.mark.parametrize("digits", ["9" * 5000, "²", "99"])
def test_ref_to_no_index_is_reported(small_vocab: Vocab, digits: str) -> None:
    schema = {"anyOf": [{"type": "object"}], "properties": {"x": {"$ref": f"#/anyOf/{digits}"}}}
    for make in (answer, call):
        assert any("not found, any value allowed" in line for line in make(small_vocab, schema).loosened)


def test_no_warning_on_what_another_dialect_reads_as_sets() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pattern in ("[[:alpha:]]", "^[a&&b]$", "^[a||b~~c]$", r"^[\[[]$", r"\[[[]"):
            whole_text(pattern, "json")
    assert whole_text("^[a&&b]$", "json") == whole_text("^[ab&]$", "json")
