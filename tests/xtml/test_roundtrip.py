"""What the model wrote, decoded and sent back by the client, is encoded as the same ids."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.xtml import Message, Reply, ToolCall, Vocab, encode_assistant
from tests.xtml.completions import AC, CC, END, RC, RO, TC, XC, XO, Decoded, argument, call_opener, to_ids

NAMES = ["f", "get_weather", "a.b"]
TOOLS = [{"type": "function", "function": {"name": name}} for name in NAMES]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    [
        "trailing  ",
        " \n",
        "\ttab",
        "é城🙂",
        '"quoted" \\ and \x00',
        "</think>",
        "a <|close|>response<|sep|> b",
        "\r\n",
    ]
)
numbers = st.sampled_from(["1e2", "1.50", "-0.0", "0", "1E+5", "123456789012345678901234567890", "-1.0e-7"])
scalars = numbers | st.sampled_from(["true", "false", "null"]) | texts.map(json.dumps)
blanks = st.sampled_from(["", " ", "\n  "])


def _array(items: list[str], blank: str) -> str:
    return f"[{blank}{f',{blank}'.join(items)}{blank}]"


def _object(members: list[tuple[str, str]], blank: str) -> str:
    return f"{{{blank}{f',{blank}'.join(f'{json.dumps(k)}{blank}: {v}' for k, v in members)}{blank}}}"


literals = st.recursive(
    scalars,
    lambda inner: (
        st.builds(_array, st.lists(inner, max_size=3), blanks)
        | st.builds(
            _object,
            st.lists(st.tuples(texts, inner), max_size=3, unique_by=lambda member: member[0]),
            blanks,
        )
    ),
    max_leaves=8,
)
arguments = st.builds(
    _object, st.lists(st.tuples(texts, literals), max_size=4, unique_by=lambda member: member[0]), blanks
)
calls = st.lists(st.builds(ToolCall, st.none(), st.sampled_from(NAMES), arguments), max_size=3)
messages = st.builds(
    lambda reasoning, content, calls: Message(
        "assistant", parts=(content,), reasoning=reasoning, tool_calls=tuple(calls)
    ),
    texts,
    texts,
    calls,
)


def as_message(reply: Reply) -> Message:
    """The message that a client sends back."""
    returned = tuple(ToolCall(call.id, call.name, call.arguments) for call in reply.tool_calls)
    return Message("assistant", parts=(reply.content,), reasoning=reply.reasoning, tool_calls=returned)


@settings(max_examples=300, deadline=None)
@given(message=messages, thinking=st.booleans(), size=st.sampled_from([0, 1, 3]))
def test_replay_gives_the_same_ids(small_vocab: Vocab, message: Message, thinking: bool, size: int) -> None:
    ids = encode_assistant(message, small_vocab, thinking=thinking)
    got = Decoded(small_vocab, ids, size=size, thinking=thinking, tools=TOOLS)
    assert encode_assistant(as_message(got.reply), small_vocab, thinking=thinking) == ids
    assert got.repairs == {}


@settings(max_examples=100, deadline=None)
@given(message=messages)
def test_replay_gives_the_same_ids_in_the_real_vocabulary(real_vocab: Vocab, message: Message) -> None:
    ids = encode_assistant(message, real_vocab)
    got = Decoded(real_vocab, ids, size=1, tools=TOOLS)
    assert encode_assistant(as_message(got.reply), real_vocab) == ids


def test_literals_of_a_call_survive_the_replay(small_vocab: Vocab) -> None:
    """Field report C08: float, nested object, unicode, trailing blank."""
    written = [
        argument("n", "1e2", "number"),
        argument("m", "1.50", "number"),
        argument("o", '{ "k" : [1,2.0, "\\u00e9"] }', "object"),
        argument("s", "Ünï 城 ", "string"),
        argument("z", "null", "null"),
    ]
    parts = ["r ", TC, RO, "hi ", RC, XO, call_opener("f"), *written, CC, XC, END]
    # Segment by segment, as the model writes: a marker's name and attributes are several.
    message = as_message(Decoded(small_vocab, to_ids(small_vocab, *parts), tools=TOOLS).reply)
    assert message.tool_calls[0].arguments == (
        '{"n":1e2,"m":1.50,"o":{ "k" : [1,2.0, "\\u00e9"] },"s":"Ünï 城 ","z":null}'
    )
    assert AC not in str(message.tool_calls[0].arguments)
    ids = encode_assistant(message, small_vocab)
    assert encode_assistant(as_message(Decoded(small_vocab, ids, tools=TOOLS).reply), small_vocab) == ids


@pytest.mark.parametrize("thinking", [True, False])
def test_worked_example_is_decoded_and_encoded_again(small_vocab: Vocab, thinking: bool) -> None:
    """The arguments of golden prompt E06."""
    text = '{"s":"a\\nb","n":1e2,"b":true,"z":null,"o":{ "k" : [1,2] },"l":[1, "two"]}'
    message = Message(
        "assistant",
        parts=("",),
        reasoning="r",
        tool_calls=(ToolCall(None, "f", text), ToolCall(None, "get_weather", "{}")),
    )
    ids = encode_assistant(message, small_vocab, thinking=thinking)
    got = Decoded(small_vocab, ids, thinking=thinking, tools=TOOLS)
    assert got.calls == [("f", text), ("get_weather", "{}")]
