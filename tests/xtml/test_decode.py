"""What the decoder makes of completions as they come, well-formed and not.

Every completion is decoded at once, id by id and a few ids at a time, and must come out the same.
Numbers such as A01 and D3 are those of docs/decisions.md.
"""

import json
from typing import Any

import pytest

from gateway.xtml import (
    CallArguments,
    CallClosed,
    CallIds,
    CallOpened,
    Decoder,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    ToolChoice,
    Vocab,
)
from gateway.xtml.decode.ending import Ending, failure_of
from tests.xtml.completions import (
    AC,
    CALL,
    CC,
    END,
    MC,
    RC,
    RO,
    TC,
    TO,
    WEATHER,
    XC,
    XO,
    Decoded,
    Spelled,
    argument,
    call,
    call_opener,
    decode,
    to_ids,
)

OTHER = {"type": "function", "function": {"name": "other"}}
GW = call_opener("get_weather")
OSLO = ("get_weather", '{"city":"Oslo"}')


@pytest.fixture(scope="module")
def vocab(small_vocab: Vocab) -> Vocab:
    return small_vocab


def test_well_formed_completion_needs_no_repair(vocab: Vocab) -> None:
    got = decode(vocab, "reason ", TC, RO, " hi\n", RC, XO, CALL, XC, END)
    assert (got.reply.reasoning, got.reply.content, got.calls) == ("reason ", " hi\n", [OSLO])
    assert got.finish_reason == "tool_calls"
    assert got.repairs == {}


def test_completion_without_thinking_starts_in_the_response(vocab: Vocab) -> None:
    got = decode(vocab, "hi", RC, END, thinking=False)
    assert (got.reply.content, got.reply.reasoning, got.repairs) == ("hi", "", {})
    assert ReasoningClosed() not in got.events


def test_partial_message_may_leave_off_in_either_channel(vocab: Vocab) -> None:
    assert decode(vocab, "so", TC, RO, "hi", RC, END, start="think").reply.reasoning == "so"
    assert decode(vocab, " there", RC, END, start="response").reply.content == " there"


class TestThinkCloseMissing:
    """A01, A02, A03, D3, D6"""

    def test_response_opener_ends_thinking(self, vocab: Vocab) -> None:
        got = decode(vocab, "reason", RO, "hi", RC, XO, CALL, XC, MC)
        assert (got.reply.reasoning, got.reply.content, got.calls) == ("reason", "hi", [OSLO])
        assert got.finish_reason == "tool_calls"
        assert got.repairs == {"think_close_missing": 1}

    def test_tools_opener_ends_thinking(self, vocab: Vocab) -> None:
        got = decode(vocab, "reason", XO, CALL, XC, MC)
        assert (got.reply.reasoning, got.reply.content, got.calls) == ("reason", "", [OSLO])

    def test_reasoning_is_counted_all_the_same(self, vocab: Vocab) -> None:
        got = decode(vocab, "reason", XO, CALL, XC, MC)
        assert got.decoder.n_reasoning == len(vocab.encode("reason"))  # C13

    @pytest.mark.parametrize("ending", [[RC, MC], [MC], ["<|end_of_msg|>"], [RC, END]])
    def test_closer_of_the_answer_makes_it_content(self, vocab: Vocab, ending: list[str]) -> None:
        """D4: nothing but the answer was written, in the thinking channel."""
        got = decode(vocab, "the answer", *ending)
        assert (got.reply.reasoning, got.reply.content) == ("", "the answer")
        assert got.finish_reason == "stop"
        assert (got.decoder.n_reasoning, got.decoder.n_content) == (0, len(vocab.encode("the answer")))

    def test_stream_gets_the_answer_once_more_as_content(self, vocab: Vocab) -> None:
        events = decode(vocab, "answer", RC, MC).events
        assert events[-2:] == [ReasoningClosed(), ReasoningWasContent("answer")]
        assert all(isinstance(event, Reasoning) for event in events[:-2])

    @pytest.mark.parametrize("closer", [RC, MC, RC + "\n", "<|close|>message"])
    def test_response_that_follows_refutes_the_closer(self, vocab: Vocab, closer: str) -> None:
        """R4: then thinking was closed by the wrong closer, and was thinking."""
        got = decode(vocab, "thoughts", closer, RO, "answer", RC, END)
        assert (got.reply.reasoning, got.reply.content) == ("thoughts", "answer")
        assert (got.unparsed, got.decoder.n_reasoning) == ([], len(vocab.encode("thoughts")))

    def test_response_after_calls_refutes_the_closer_too(self, vocab: Vocab) -> None:
        got = decode(vocab, "thoughts", MC, XO, CALL, XC, RO, "answer", RC, END)
        assert (got.reply.reasoning, got.reply.content, got.calls) == ("thoughts", "answer", [OSLO])

    def test_response_that_was_cut_in_its_opener_refutes_the_closer(self, vocab: Vocab) -> None:
        got = decode(vocab, "thoughts", RC, "<|open|>response", reason="length")
        assert (got.reply.reasoning, got.reply.content) == ("thoughts", "")

    @pytest.mark.parametrize("closer", [RC, MC])
    def test_text_after_the_answer_is_not_a_response(self, vocab: Vocab, closer: str) -> None:
        got = decode(vocab, "answer", closer, "more", END)
        assert (got.reply.content, got.unparsed) == ("answer", [("more", "outside_channels")])

    def test_thoughts_after_the_answer_stay_thoughts(self, vocab: Vocab) -> None:
        got = decode(vocab, "answer", RC, TO, "b", TC, END)
        assert (got.reply.reasoning, got.reply.content) == ("b", "answer")

    def test_answer_in_thinking_may_be_followed_by_calls(self, vocab: Vocab) -> None:
        got = decode(vocab, "answer", RC, XO, CALL, XC, END)
        assert (got.reply.reasoning, got.reply.content, got.calls) == ("", "answer", [OSLO])

    def test_stop_string_cuts_an_answer_in_thinking(self, vocab: Vocab) -> None:
        got = decode(vocab, "an answer STOP and more", RC, MC, stop=["STOP"])
        assert (got.reply.content, got.decoder.stop_string) == ("an answer ", "STOP")

    def test_thoughts_before_a_real_answer_stay_reasoning(self, vocab: Vocab) -> None:
        got = decode(vocab, "I should first...", RO, "real answer", RC, MC)  # A14
        assert (got.reply.reasoning, got.reply.content) == ("I should first...", "real answer")


class TestThinkMarkers:
    """A11, D1, D2"""

    @pytest.mark.parametrize(
        "opener",
        [
            [TO],
            ["<|open|> think <|sep|>"],
            ["<|open|>thinking<|sep|>"],
            [Spelled("<|open|>think<|sep"), Spelled("|>")],
            [Spelled("<|open|> think <|sep|>")],
            [Spelled("<|open|>think"), "<|sep|>"],
            ["<|open|>think", Spelled("<|sep|>")],
            [TO, TO],
        ],
    )
    def test_repeated_opener_is_dropped(self, vocab: Vocab, opener: list[str]) -> None:
        got = decode(vocab, *opener, "reason", TC, RO, "hi", RC, MC)
        assert (got.reply.reasoning, got.reply.content) == ("reason", "hi")
        assert got.repairs.get("think_opener_repeated") or got.repairs.get("think_opener_respelled")

    @pytest.mark.parametrize(
        "close",
        [
            ["<|close|>think"],
            ["<|close|>"],
            ["<|close|><|sep|>"],
            ["<|close|> think <|sep|>"],
            ["<|close|>thinking<|sep|>"],
            [TC, TC],
            [Spelled("<|close|>think<|sep|>")],
            [Spelled("<|close|>think"), "<|sep|>"],
            ["<|close|>think", Spelled("<|sep|>")],
        ],
    )
    def test_misspelled_close_ends_thinking(self, vocab: Vocab, close: list[str]) -> None:
        got = decode(vocab, "reason", *close, RO, "hi", RC, XO, CALL, XC, END)
        assert (got.reply.reasoning, got.reply.content, got.calls) == ("reason", "hi", [OSLO])
        assert got.repairs

    @pytest.mark.parametrize(
        "text", ["<|open|>think about it", "<|open|>think<|sep", "<", "a <|open|>think<|sep|> b", " <|op"]
    )
    def test_text_that_only_looks_like_an_opener_is_reasoning(self, vocab: Vocab, text: str) -> None:
        got = decode(vocab, Spelled(text), TC, RO, "hi", RC, END)
        assert (got.reply.reasoning, got.reply.content, got.repairs) == (text, "hi", {})

    def test_spelled_close_before_another_special_token_is_text(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", Spelled(TC), "<|media_pad|>", "more", TC, RO, "hi", RC, END)
        assert (got.reply.reasoning, got.reply.content) == (f"r{TC}more", "hi")

    @pytest.mark.parametrize("text", ["<|close|>think<|sep|> is how it ends", "<|close|>think", "a <|clo"])
    def test_spelled_close_amid_reasoning_is_text(self, vocab: Vocab, text: str) -> None:
        got = decode(vocab, Spelled(text), TC, RO, "hi", RC, END)
        assert (got.reply.reasoning, got.reply.content, got.repairs) == (text, "hi", {})

    def test_separator_may_be_missing_before_text(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", "<|close|>think<|open|>response", "A long enough answer to tell", RC, END)
        assert (got.reply.reasoning, got.reply.content) == ("r", "A long enough answer to tell")
        got = decode(vocab, "r", "<|close|>think<|open|>response", "Hi", RC, END)
        assert got.reply.content == "Hi"


class TestChannels:
    """D5, D7, D12, and channels out of order"""

    def test_response_may_be_absent(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, CALL, XC, END)
        assert (got.reply.content, got.calls, got.repairs) == ("", [OSLO], {})

    @pytest.mark.parametrize("ending", [MC, END, "<|end_of_msg|>", "<|close|>message"])
    def test_message_close_does_not_leak_into_content(self, vocab: Vocab, ending: str) -> None:
        got = decode(vocab, "r", TC, RO, "Hello", ending)  # A05
        assert got.reply.content == "Hello"

    def test_bare_answer_after_thinking_is_content(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, '{"reply":"x"}')  # A13
        assert (got.reply.content, got.finish_reason) == ('{"reply":"x"}', "stop")
        assert decode(vocab, "r", TC, "\n x", RC, END).reply.content == "\n x"

    def test_blanks_between_channels_are_nothing(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, "\n", RO, "hi", RC, " \n", XO, "\n", CALL, "\n", XC, "\n", END)
        assert (got.reply.content, got.calls, got.unparsed) == ("hi", [OSLO], [])

    def test_tools_before_response(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, CALL, XC, RO, "hi", RC, END)
        assert (got.reply.content, got.calls) == ("hi", [OSLO])

    def test_tools_opener_ends_the_response(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, "hi", XO, CALL, XC, END)
        assert (got.reply.content, got.calls) == ("hi", [OSLO])

    def test_response_opener_ends_the_tools(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, CALL, RO, "hi", RC, END)
        assert (got.reply.content, got.calls) == ("hi", [OSLO])

    def test_thinking_may_be_taken_up_again(self, vocab: Vocab) -> None:
        got = decode(vocab, "a", TC, RO, "hi", RC, TO, "b", TC, RO, " again", RC, END)
        assert (got.reply.reasoning, got.reply.content) == ("ab", "hi again")
        assert got.events.count(ReasoningClosed()) == 1

    def test_response_goes_on_after_an_element_inside_it(self, vocab: Vocab) -> None:
        """R6: it was not closed. Blanks alone do not open it again."""
        got = decode(vocab, "r", TC, RO, "one", TO, "b", TC, " two", RC, END)
        assert (got.reply.reasoning, got.reply.content, got.unparsed) == ("rb", "one two", [])
        got = decode(vocab, "r", TC, RO, "one", XO, CALL, XC, "\n", "two", RC, END)
        assert (got.reply.content, got.calls, got.unparsed) == ("one\ntwo", [OSLO], [])
        got = decode(vocab, "r", TC, RO, "one", XO, CALL, XC, "\n", RC, "\n", "more", END)
        assert (got.reply.content, got.unparsed) == ("one", [("\nmore", "outside_channels")])

    @pytest.mark.parametrize("role", ["user", "tool", " system"])
    def test_opener_of_another_role_ends_the_message(self, vocab: Vocab, role: str) -> None:
        """R8"""
        other = f'<|open|>message role="{role}"<|sep|>'
        got = decode(vocab, "r", TC, RO, "answer", other, "question", MC, RO, "no", RC, END)
        assert (got.reply.content, got.finish_reason) == ("answer", "stop")
        assert got.unparsed == [("questionno", "outside_channels")]
        got = decode(vocab, "answer", other, RO, "no", RC, END)  # D4: it ends thinking, too
        assert (got.reply.content, got.reply.reasoning) == ("answer", "")
        got = decode(vocab, "r", TC, XO, GW, argument("city", "Oslo"), other, "question")
        assert (got.calls, got.finish_reason) == ([], "length")

    @pytest.mark.parametrize("opener", ['<|open|>message role="assistant"<|sep|>', "<|open|>message<|sep|>"])
    def test_its_own_opener_is_dropped(self, vocab: Vocab, opener: str) -> None:
        got = decode(vocab, "r", TC, opener, RO, "an", opener, "swer", RC, END)
        assert (got.reply.content, got.repairs) == ("answer", {"message_opener": 2})

    def test_unknown_channel_keeps_its_text(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, "<|open|>final<|sep|>", "hi", "<|close|>final<|sep|>", END)
        assert got.reply.content == "hi"

    def test_text_after_the_channels_is_shown_as_unparsed(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, "hi", RC, "more", END)
        assert (got.reply.content, got.unparsed) == ("hi", [("more", "outside_channels")])

    def test_nothing_after_the_end_is_read(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, "hi", RC, END, "<|open|>message", RO, "no", XO, CALL)
        assert (got.reply.content, got.calls) == ("hi", [])
        assert got.repairs["after_end"]

    def test_other_special_tokens_are_dropped(self, vocab: Vocab) -> None:
        odd = [*to_ids(vocab, "[EOS]<|media_pad|>"), vocab.size - 7, vocab.size + 99, -1]
        ids = to_ids(vocab, "a", TC, RO, "h") + odd + to_ids(vocab, "i", RC, END)
        decoder = Decoder(vocab)
        events = decoder.feed(ids)
        assert "".join(e.text for e in events if not isinstance(e, ReasoningClosed)) == "ahi"
        assert decoder.repairs["special_token"] == len(odd)


class TestCut:
    """A07, D8, D9: `length` in the middle of something"""

    def test_thinking_stays_reasoning(self, vocab: Vocab) -> None:
        got = decode(vocab, "reason so far", reason="length")
        assert (got.reply.reasoning, got.reply.content) == ("reason so far", "")
        assert got.finish_reason == "length"

    @pytest.mark.parametrize("half", ["<|close|>", "<|close|>resp", "<|close|>response", "<|open|>"])
    def test_half_a_marker_is_dropped(self, vocab: Vocab, half: str) -> None:
        got = decode(vocab, "r", TC, RO, "hi", half, reason="length")
        assert (got.reply.content, got.unparsed, got.finish_reason) == ("hi", [], "length")

    @pytest.mark.parametrize(
        "marker", ["<|close|>think", "<|open|>", "<|close|> response", "<|open|>nonsense"]
    )
    def test_text_behind_a_marker_without_separator_is_not_cut(self, vocab: Vocab, marker: str) -> None:
        """R6"""
        got = decode(vocab, "r", TC, RO, "one", marker, " two", reason="length")
        shown = got.reply.content + "".join(text for text, _ in got.unparsed)
        assert shown == "one two" or (marker == "<|open|>nonsense" and shown == "onenonsense two")

    @pytest.mark.parametrize(
        ("cut", "shown"),
        [
            (GW, "get_weather"),
            ('<|open|>call tool="get_wea', "get_wea"),
            (GW + '<|open|>argument key="city"', "get_weather"),
            (GW + argument("city", "Os").removesuffix(AC), 'get_weather {"city":"Os'),
            (GW + argument("city", "Oslo"), 'get_weather {"city":"Oslo"'),
            (GW + argument("city", "Oslo") + "<|close|>call", 'get_weather {"city":"Oslo"'),
            (GW + argument("days", "4", "number").removesuffix(AC), 'get_weather {"days":4'),
            (GW + '<|open|>json type="object"<|sep|>{"ci', 'get_weather {"ci'),
        ],
    )
    def test_cut_call_is_shown_but_not_run(self, vocab: Vocab, cut: str, shown: str) -> None:
        got = decode(vocab, "r", TC, XO, cut, reason="length")
        assert (got.calls, got.unparsed, got.finish_reason) == ([], [(shown, "cut_call")], "length")

    def test_complete_calls_before_the_cut_one_stay(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, CALL, call_opener("get_weather", 2), reason="length")
        assert (got.calls, got.finish_reason) == ([OSLO], "length")

    def test_message_that_ends_inside_a_value_makes_no_call(self, vocab: Vocab) -> None:
        cut = GW + argument("city", "Oslo").removesuffix(AC)
        got = decode(vocab, "r", TC, XO, cut, "<|end_of_msg|>")
        assert (got.calls, got.finish_reason) == ([], "length")  # R2: a stream has announced it
        got = decode(vocab, "r", TC, XO, CALL, cut, "<|end_of_msg|>")
        assert (got.calls, got.finish_reason) == ([OSLO], "length")
        got = decode(vocab, "r", TC, XO, CALL, GW, "<|end_of_msg|>")  # nobody has heard of the second
        assert (got.calls, got.finish_reason) == ([OSLO], "tool_calls")

    def test_character_cut_in_half_becomes_a_replacement(self, vocab: Vocab) -> None:
        half = [*to_ids(vocab, "r", TC, RO, "caf"), vocab.encode("é")[0]]
        decoder = Decoder(vocab)
        assert [e.text for e in decoder.feed(half)[2:]] == ["caf"]
        assert [e.text for e in decoder.finish("length")] == ["\N{REPLACEMENT CHARACTER}"]

    def test_tools_without_a_call(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, "hi", RC, XO, XC, END)
        assert (got.calls, got.finish_reason, got.unparsed) == ([], "stop", [])


class TestCalls:
    """A15, A16, A18, A20, A27, D10, D11"""

    def test_undeclared_tool_is_not_called(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, call("rm_rf", argument("path", "/")), CALL, XC, END)
        assert (got.calls, got.unparsed) == ([OSLO], [('rm_rf {"path":"/"}', "undeclared_tool")])
        assert got.repairs == {"undeclared_tool": 1}
        assert got.finish_reason == "tool_calls"

    @pytest.mark.parametrize(
        "options",
        [
            {"tools": []},
            {"tool_choice": ToolChoice("none")},
            {"tool_choice": ToolChoice("named", "other"), "tools": [WEATHER, OTHER]},
            {"tool_choice": ToolChoice("auto", allowed=frozenset({"other"})), "tools": [WEATHER, OTHER]},
        ],
    )
    def test_no_call_where_none_is_allowed(self, vocab: Vocab, options: dict[str, object]) -> None:
        got = decode(vocab, "r", TC, RO, "hi", RC, XO, CALL, XC, END, **options)
        assert (got.reply.content, got.calls, got.finish_reason) == ("hi", [], "stop")
        assert got.unparsed == [('get_weather {"city":"Oslo"}', "call_not_allowed")]

    def test_calls_after_the_tools_channel_are_ignored(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, CALL, XC, CALL, XO, CALL, XC, MC, CALL, END)
        assert got.calls == [OSLO]
        assert got.repairs["call_after_tools"] == 2

    def test_first_of_two_equal_keys_wins(self, vocab: Vocab) -> None:
        twice = call("get_weather", argument("city", "Oslo"), argument("city", "Rome"))
        got = decode(vocab, "r", TC, XO, twice, XC, END)
        assert (got.calls, got.repairs) == ([OSLO], {"duplicate_argument": 1})

    def test_missing_argument_passes_and_is_counted(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, call("get_weather"), XC, END)
        assert (got.calls, got.repairs) == ([("get_weather", "{}")], {"missing_argument": 1})

    def test_closer_spelled_in_a_value_is_text(self, vocab: Vocab) -> None:
        opened = GW + '<|open|>argument key="city" type="string"<|sep|>'
        got = decode(vocab, "r", TC, XO, opened, "x", Spelled(AC), "y", AC, CC, XC, END)
        assert json.loads(got.calls[0][1]) == {"city": f"x{AC}y"}
        assert got.repairs == {}

    @pytest.mark.parametrize(
        "body",
        [
            argument("city", "Oslo").removesuffix(AC) + CC + XC,
            argument("city", "Oslo").removesuffix(AC) + XC,
            argument("city", "Oslo") + XC,
            argument("city", "Oslo") + MC,
            argument("city", "Oslo").removesuffix("<|sep|>") + CC + XC,
            argument("city", "Oslo").replace("argument<", " argument <") + CC + XC,
            argument("city", "Oslo").replace(AC, "<|close|><|sep|>") + CC + XC,
            "<|open|>argument key='city' type='string'<|sep|>Oslo" + AC + CC + XC,
            "<|open|>  argument  key = city type=string <|sep|>Oslo" + AC + CC + XC,
            '<|open|>argument key="city" type="string"Oslo' + AC + CC + XC,
            '<|open|>argument key="city"<|sep|>Oslo' + AC + CC + XC,
            '<|open|>argument type="string" key="city<|sep|>Oslo' + AC + CC + XC,
            '<|open|>json type="object"<|sep|>{"city":"Oslo"}<|close|>json<|sep|>' + CC + XC,
            '<|open|>json<|sep|>{"city":"Oslo"}' + CC + XC,
            '{"city":"Oslo"}' + CC + XC,
        ],
    )
    def test_call_written_oddly_is_read(self, vocab: Vocab, body: str) -> None:
        got = decode(vocab, "r", TC, XO, GW, body, END)
        assert got.calls == [OSLO]

    @pytest.mark.parametrize(
        "opener",
        [
            "<|open|>call tool='get_weather' index='1'<|sep|>",
            "<|open|> call  tool=get_weather<|sep|>",
            '<|open|>call index="x" tool=" get_weather "<|sep|>',
            "<|open|>call tool=get_weather index=1<|sep|>",
            "<|open|>call index=12 tool = get_weather<|sep|>",
            "<|open|>call tool=get_weather index=1",
            '<|open|>call tool="get_weather" index="1"',
        ],
    )
    def test_call_header_written_oddly_is_read(self, vocab: Vocab, opener: str) -> None:
        got = decode(vocab, "r", TC, XO, opener, argument("city", "Oslo"), CC, XC, END)
        assert got.calls == [OSLO]

    def test_closers_missing_between_arguments_and_calls(self, vocab: Vocab) -> None:
        first = GW + argument("city", "Oslo").removesuffix(AC)
        second = argument("days", "5", "number").removesuffix(AC) + call_opener("get_weather", 2)
        got = decode(vocab, "r", TC, XO, first, second, argument("city", "Rome"), CC, XC, END)
        assert got.calls == [("get_weather", '{"city":"Oslo","days":5}'), ("get_weather", '{"city":"Rome"}')]
        assert got.repairs == {"argument_close_missing": 2, "call_close_missing": 1}

    def test_tools_opener_missing(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, "hi", RC, CALL, END)
        assert (got.reply.content, got.calls) == ("hi", [OSLO])

    def test_channel_opener_inside_a_value_cuts_the_call(self, vocab: Vocab) -> None:
        cut = GW + argument("city", "Os").removesuffix(AC)
        got = decode(vocab, "r", TC, XO, cut, RO, "hi", RC, END)
        assert (got.calls, got.reply.content) == ([], "hi")
        assert got.unparsed == [('get_weather {"city":"Os', "cut_call")]

    def test_json_block_keeps_its_text(self, vocab: Vocab) -> None:
        block = '<|open|>json type="object"<|sep|>{ "city" : "Oslo", "n": 1e2}<|close|>json<|sep|>'
        got = decode(vocab, "r", TC, XO, GW, block, CC, XC, END)
        assert got.calls == [("get_weather", '{ "city" : "Oslo", "n": 1e2}')]

    def test_json_block_beside_arguments_adds_what_is_new(self, vocab: Vocab) -> None:
        block = (
            '<|open|>json type="object"<|sep|>{"city": "Rome", "n": 1e2, "s": "\\u00e9"}<|close|>json<|sep|>'
        )
        got = decode(vocab, "r", TC, XO, GW, argument("city", "Oslo"), block, CC, XC, END)
        assert got.calls == [("get_weather", '{"city":"Oslo","n":1e2,"s":"é"}')]

    def test_block_inside_a_value_ends_with_its_own_close(self, vocab: Vocab) -> None:
        """R6: what follows is still the value."""
        value = "a<|open|>json<|sep|>{}<|close|>json<|sep|>b"
        got = decode(vocab, "r", TC, XO, call("get_weather", argument("city", value)), XC, END)
        assert got.calls == [("get_weather", '{"city":"a{}b"}')]

    def test_block_goes_on_after_an_argument_inside_it(self, vocab: Vocab) -> None:
        body = ['<|open|>json<|sep|>{"n": 1', argument("city", "Oslo"), "}<|close|>json<|sep|>"]
        got = decode(vocab, "r", TC, XO, GW, *body, CC, XC, END)
        assert got.calls == [("get_weather", '{"city":"Oslo","n":1}')]

    def test_argument_without_a_key_is_text_of_the_call(self, vocab: Vocab) -> None:
        """R6: nothing that was written is lost."""
        keyless = f"<|open|>argument<|sep|>lost{AC}"
        got = decode(vocab, "r", TC, XO, GW, argument("city", "Oslo"), keyless, CC, XC, END)
        assert (got.calls, got.unparsed) == ([OSLO], [("lost", "outside_channels")])
        got = decode(vocab, "r", TC, XO, GW, keyless.replace("lost", '{"city":"Oslo"}'), CC, XC, END)
        assert (got.calls, got.unparsed) == ([OSLO], [])

    @pytest.mark.parametrize("ending", ["", "<|end_of_msg|>", RO])
    def test_stray_text_of_a_cut_call_is_shown(self, vocab: Vocab, ending: str) -> None:
        """R6"""
        got = decode(vocab, "r", TC, XO, GW, argument("city", "Oslo"), "LOST", ending, reason="length")
        shown = [("LOST", "outside_channels"), ('get_weather {"city":"Oslo"', "cut_call")]
        if ending == RO:  # a channel that opens inside a call, but not inside a value, closes the call
            assert (got.calls, got.unparsed) == ([OSLO], shown[:1])
        else:
            assert (got.calls, got.unparsed) == ([], shown)

    @pytest.mark.parametrize("block", ['{"city": "Os', "[1]", "Oslo", "{} {}"])
    def test_json_block_that_is_no_object_makes_no_call(self, vocab: Vocab, block: str) -> None:
        body = f'<|open|>json type="object"<|sep|>{block}<|close|>json<|sep|>'
        got = decode(vocab, "r", TC, RO, "hi", RC, XO, GW, body, CC, XC, END)
        assert (got.calls, got.unparsed) == ([], [(f"get_weather {block}", "invalid_arguments")])
        assert got.finish_reason == "stop"

    def test_max_calls_stops_the_decoder(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, CALL, CALL, XC, END, max_calls=1)  # G05
        assert (got.calls, got.decoder.stopped, got.finish_reason) == ([OSLO], True, "tool_calls")

    @pytest.mark.parametrize("key", ['a"b', "a&b", "&quot;", "", "é 城", "<|close|>", "a=b 'c'"])
    def test_attribute_values_are_unescaped(self, vocab: Vocab, key: str) -> None:
        escaped = key.replace("&", "&amp;").replace('"', "&quot;")
        header = f'argument key="{escaped}" type="string"'
        got = decode(
            vocab,
            "r",
            TC,
            XO,
            GW,
            "<|open|>",
            Spelled(header),
            "<|sep|>v",
            AC,
            CC,
            XC,
        )
        assert json.loads(got.calls[0][1]) == {key: "v"}


def opened(got: Decoded) -> list[CallOpened]:
    return [event for event in got.events if isinstance(event, CallOpened)]


class TestFaultyCalls:
    """R3: a call that cannot be run, and that is all the reply has, goes to the client"""

    BLOCK = GW + '<|open|>json type="object"<|sep|>["Os<|close|>json<|sep|>' + CC
    UNDECLARED = call("rm_rf", argument("path", "/"))

    def test_undeclared_tool(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, " \n", RC, XO, self.UNDECLARED, XC, END)
        assert (got.calls, got.unparsed) == ([("rm_rf", '{"path":"/"}')], [])
        assert opened(got) == [CallOpened(0, "id1", "rm_rf", declared=False)]
        assert (got.finish_reason, got.failure) == ("tool_calls", None)
        assert not got.reply.tool_calls[0].declared

    @pytest.mark.parametrize("name", ["get_weather", "rm_rf"])
    def test_arguments_that_are_not_an_object(self, vocab: Vocab, name: str) -> None:
        got = decode(vocab, "r", TC, XO, self.BLOCK.replace("get_weather", name), XC, END)
        assert (got.calls, got.unparsed) == ([(name, '["Os')], [])
        declared = name == "get_weather"
        assert opened(got) == [CallOpened(0, "id1", name, declared, valid_arguments=False)]
        assert not got.reply.tool_calls[0].valid_arguments

    def test_all_of_them_in_order_but_no_more_than_allowed(self, vocab: Vocab) -> None:
        both = [self.BLOCK, self.UNDECLARED]
        got = decode(vocab, "r", TC, XO, *both, XC, END)
        assert [call.name for call in opened(got)] == ["get_weather", "rm_rf"]
        got = decode(vocab, "r", TC, XO, *both, XC, END, max_calls=1)
        assert [call.name for call in opened(got)] == ["get_weather"]
        assert got.unparsed == [('rm_rf {"path":"/"}', "undeclared_tool")]

    @pytest.mark.parametrize(
        ("before", "after"), [([RO, "hi", RC], []), ([], [CALL]), ([], [XC, RO, "hi", RC])]
    )
    def test_not_beside_anything_else(self, vocab: Vocab, before: list[str], after: list[str]) -> None:
        got = decode(vocab, "r", TC, *before, XO, self.UNDECLARED, *after, END)
        assert got.calls == ([OSLO] if CALL in after else [])
        assert got.unparsed == [('rm_rf {"path":"/"}', "undeclared_tool")]
        assert got.failure is None

    def test_not_where_it_was_cut(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, self.UNDECLARED, reason="length")
        assert (got.calls, got.finish_reason, got.failure) == ([], "length", None)
        got = decode(vocab, "r", TC, XO, self.UNDECLARED.removesuffix(CC), "<|end_of_msg|>")
        assert (got.calls, got.failure) == ([], "empty_reply")
        got = decode(vocab, "r", TC, XO, GW, "<|end_of_msg|>")
        assert (got.calls, got.failure) == ([], "empty_reply")

    def test_not_where_it_has_no_name(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, "<|open|>call<|sep|>", argument("a", "b"), CC, XC, END)
        assert (got.calls, got.failure) == ([], "empty_reply")

    def test_not_where_the_strict_way_is_set(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, XO, self.UNDECLARED, XC, END, passes_faulty_calls=False)
        assert (got.calls, got.finish_reason, got.failure) == ([], "stop", "empty_reply")
        assert got.unparsed == [('rm_rf {"path":"/"}', "undeclared_tool")]

    @pytest.mark.parametrize("options", [{"tools": []}, {"tool_choice": ToolChoice("none")}])
    def test_not_where_no_call_is_allowed(self, vocab: Vocab, options: dict[str, object]) -> None:
        for body in (self.UNDECLARED, self.BLOCK, CALL):
            got = decode(vocab, "r", TC, XO, body, XC, END, **options)
            assert (got.calls, got.failure) == ([], "empty_reply")
            assert got.unparsed[0][1] == "call_not_allowed"


class TestFailures:
    """R3: what looks like a success is one"""

    def test_thinking_alone_is_an_answer_only_where_it_is_sent(self, vocab: Vocab) -> None:
        assert decode(vocab, "r", TC, RO, RC, END).failure is None
        assert decode(vocab, TC, RO, " \n", RC, END).failure == "empty_reply"
        got = decode(vocab, TO, "thoughts", TC, RO, RC, END, thinking=False)
        assert (got.failure, got.events) == ("empty_reply", [])
        assert got.decoder.n_reasoning == len(vocab.encode("thoughts"))

    def test_thoughts_are_not_sent_where_thinking_is_off(self, vocab: Vocab) -> None:
        got = decode(vocab, "a", TO, "thoughts", TC, RO, "b", RC, END, thinking=False)
        assert (got.reply.reasoning, got.reply.content, got.failure) == ("", "ab", None)

    @pytest.mark.parametrize(
        ("parts", "options", "failure"),
        [
            ([RC, END], {}, "empty_reply"),
            ([RC, END], {"may_be_empty": True}, None),
            ([], {"reason": "length"}, None),
            (["STOP"], {"stop": ["STOP"]}, None),
            (["hi", RC, END], {}, None),
            (["hi", RC, END], {"tool_choice": ToolChoice("required")}, "tool_choice_not_kept"),
            (["hi", RC, END], {"tool_choice": ToolChoice("named", "get_weather")}, "tool_choice_not_kept"),
            (["hi", RC, XO, CALL, XC, END], {"tool_choice": ToolChoice("required")}, None),
            ([RC, XO, CALL, XC, END], {"tool_choice": ToolChoice("named", "get_weather")}, None),
            (
                [RC, XO, CALL, XC, END],
                {"tool_choice": ToolChoice("named", "other"), "tools": [WEATHER, OTHER]},
                "tool_choice_not_kept",
            ),
            (
                [RC, XO, call("rm_rf"), XC, END],
                {"tool_choice": ToolChoice("named", "get_weather")},
                "tool_choice_not_kept",
            ),
            ([RC, XO, call("rm_rf"), XC, END], {"tool_choice": ToolChoice("required")}, None),
            (["hi"], {"reason": "length", "tool_choice": ToolChoice("required")}, None),
            (["hi STOP"], {"stop": ["STOP"], "tool_choice": ToolChoice("required")}, None),
        ],
    )
    def test_failure(
        self, vocab: Vocab, parts: list[str], options: dict[str, Any], failure: str | None
    ) -> None:
        assert decode(vocab, *parts, thinking=False, **options).failure == failure

    def test_several_choices_fail_together(self) -> None:
        good, empty = Ending("stop", None), Ending("stop", "empty_reply")
        assert failure_of([empty, good]) is None
        assert failure_of([empty, empty]) == "empty_reply"
        assert failure_of([]) is None


class TestArgumentStream:
    """A08: name and id as soon as it is certain that this is a call, a string as it is written"""

    def test_call_opens_with_its_first_argument(self, vocab: Vocab) -> None:
        decoder = Decoder(vocab, tools=[WEATHER], new_call_id=lambda name: "id")
        assert decoder.feed(to_ids(vocab, "r", TC, XO, GW))[-1] == ReasoningClosed()
        events = decoder.feed(to_ids(vocab, '<|open|>argument key="city" type="string"<|sep|>'))
        assert events == [CallOpened(0, "id", "get_weather"), CallArguments(0, '{"city":"')]

    @pytest.mark.parametrize("body", ["", '{"city":"Oslo"}', '<|open|>json<|sep|>{"city":"Oslo"}'])
    def test_call_without_arguments_of_its_own_opens_when_it_is_whole(self, vocab: Vocab, body: str) -> None:
        """R2: until then it may turn out that it is not one."""
        decoder = Decoder(vocab, tools=[WEATHER], new_call_id=lambda name: "id")
        assert decoder.feed(to_ids(vocab, "r", TC, XO, GW, body))[-1] == ReasoningClosed()
        arguments = '{"city":"Oslo"}' if body else "{}"
        opened = [CallOpened(0, "id", "get_weather"), CallArguments(0, arguments), CallClosed(0)]
        assert decoder.feed(to_ids(vocab, CC)) == opened

    @pytest.mark.parametrize("order", ["block first", "block last"])
    def test_bad_block_beside_arguments_does_not_withdraw_the_call(self, vocab: Vocab, order: str) -> None:
        body = [argument("city", "Oslo"), '<|open|>json type="object"<|sep|>["x"]<|close|>json<|sep|>']
        if order == "block first":
            body.reverse()
        got = decode(vocab, "r", TC, XO, GW, *body, CC, XC, END)
        assert (got.calls, got.unparsed) == ([OSLO], [('["x"]', "outside_channels")])
        assert (got.finish_reason, got.repairs) == ("tool_calls", {"text_in_call": 1})

    def test_every_token_of_a_long_string_is_sent_at_once(self, vocab: Vocab) -> None:
        opened = GW + '<|open|>argument key="city" type="string"<|sep|>'
        decoder = Decoder(vocab, tools=[WEATHER])
        decoder.feed(to_ids(vocab, "r", TC, XO, opened))
        for token in vocab.encode('50 kB of "text"\n' * 300):
            assert [type(event) for event in decoder.feed([token])] == [CallArguments]

    def test_pieces_never_cut_an_escape_or_a_character(self, vocab: Vocab) -> None:
        text = 'é城🙂"\\\n\x00\x7f\u2028</script>'
        opened = GW + '<|open|>argument key="city" type="string"<|sep|>'
        decoder = Decoder(vocab, tools=[WEATHER])
        decoder.feed(to_ids(vocab, "r", TC, XO, opened))
        pieces = [e.text for token in vocab.encode(text) for e in decoder.feed([token])]
        assert [json.loads(f'"{piece}"') for piece in pieces] == list(text)

    def test_other_values_are_sent_when_complete(self, vocab: Vocab) -> None:
        opened = GW + '<|open|>argument key="days" type="string"<|sep|>'
        decoder = Decoder(vocab, tools=[WEATHER])
        decoder.feed(to_ids(vocab, "r", TC, XO, opened))
        assert decoder.feed(to_ids(vocab, "200")) == []
        assert decoder.feed(to_ids(vocab, AC)) == [CallArguments(0, "200")]


class TestStopStrings:
    def test_act_on_content(self, vocab: Vocab) -> None:
        got = decode(vocab, "r", TC, RO, "one END two", RC, XO, CALL, XC, END, stop=["END"])
        assert (got.reply.content, got.calls, got.finish_reason) == ("one ", [], "stop")
        assert (got.decoder.stopped, got.decoder.stop_string) == (True, "END")

    def test_do_not_act_on_reasoning_arguments_or_markers(self, vocab: Vocab) -> None:
        got = decode(
            vocab, "Oslo", TC, RO, "hi", RC, XO, CALL, XC, END, stop=["Oslo", "response", "<|close|>"]
        )
        assert (got.reply.reasoning, got.reply.content, got.calls) == ("Oslo", "hi", [OSLO])
        assert not got.decoder.stopped

    def test_beginning_of_one_is_sent_when_it_comes_to_nothing(self, vocab: Vocab) -> None:
        assert decode(vocab, "EN", RC, END, thinking=False, stop=["END"]).reply.content == "EN"
        assert decode(vocab, "EN", thinking=False, stop=["END"], reason="length").reply.content == "EN"

    def test_one_in_the_last_step_is_a_stop(self, vocab: Vocab) -> None:
        got = decode(vocab, "x END", thinking=False, stop=["END"], reason="length")
        assert got.finish_reason == "stop"


class TestCounts:
    def test_ids_are_counted_by_channel(self, vocab: Vocab) -> None:
        ids = to_ids(vocab, "reason", TC, RO, "hi", RC, XO, CALL, XC, END)
        decoder = Decoder(vocab, tools=[WEATHER])
        decoder.feed(ids)
        counts = decoder.n_reasoning, decoder.n_content, decoder.n_tool, decoder.n_other
        texts = [len(vocab.encode(text)) for text in ("reason", "hi", "Oslo")]
        assert counts == (*texts, len(ids) - sum(texts))

    def test_ids_of_visible_content_are_told_apart(self, vocab: Vocab) -> None:
        ids = to_ids(vocab, "reason", RO, "hi there", RC, END)  # G06
        decoder = Decoder(vocab)
        decoder.feed(ids)
        visible = [
            token for token, channel in zip(ids, decoder.channels, strict=True) if channel == "content"
        ]
        assert vocab.decode(visible) == "hi there"


@pytest.mark.parametrize("reason", ["stop", "abort", "stop_163586", "error"])
def test_finish_reason_is_one_of_openais(vocab: Vocab, reason: str) -> None:
    assert decode(vocab, "r", TC, RO, "hi", RC, END, reason=reason).finish_reason == "stop"  # A28
    assert decode(vocab, "r", TC, XO, CALL, XC, END, reason=reason).finish_reason == "tool_calls"


class TestCallIds:
    """A20, A21, A29"""

    def test_opaque_ids_differ_and_fit_other_protocols(self, vocab: Vocab) -> None:
        new_id = CallIds("opaque", [])
        ids = {new_id("a.b:c") for _ in range(100)}
        assert len(ids) == 100
        assert all(i.startswith("call_") and len(i) == 29 and i[5:].isalnum() and i.isascii() for i in ids)

    def test_positional_ids_go_on_from_the_history(self) -> None:
        new_id = CallIds("positional", ["f_0", "whatever", None])
        assert [new_id("f"), new_id("g.h")] == ["f_3", "g_h_4"]

    def test_positional_ids_avoid_those_of_an_edited_history(self) -> None:
        assert CallIds("positional", ["f_1"])("f") == "f_2"
