"""Each kind of repair: found once where it is due and nowhere else, and described in the documents."""

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.xtml import ToolChoice, Vocab
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
    XC,
    XO,
    Spelled,
    argument,
    call,
    call_opener,
    decode,
)

DOCS = Path(__file__).parents[2] / "docs" / "concepts" / "decoding.md"
GW = call_opener("get_weather")
OSLO = argument("city", "Oslo")
JSON = "<|open|>json<|sep|>"
HI = [TC, RO, "hi", RC]

# Kind -> completions whose only repair it is, with options of the decoder.
REPAIRS: dict[str, list[tuple[list[str], dict[str, Any]]]] = {
    "think_opener_repeated": [([TO, "r", *HI, END], {})],
    "think_opener_respelled": [([Spelled(TO), "r", *HI, END], {})],
    "think_close_respelled": [(["r", Spelled(TC), RO, "hi", RC, END], {})],
    "think_close_missing": [(["r", RO, "hi", RC, END], {}), (["r", XO, CALL, XC, END], {})],
    "think_close_repeated": [(["r", TC, TC, RO, "hi", RC, END], {}), (["r", *HI, TC, END], {})],
    "think_reopened": [(["r", *HI, TO, "b", TC, END], {})],
    "response_close_in_think": [(["hi", RC, END], {}), (["r", RC, RO, "hi", RC, END], {})],
    "message_close_in_think": [(["hi", MC, "<|end_of_msg|>"], {}), (["r", MC, RO, "hi", RC, END], {})],
    "response_opener_missing": [(["r", TC, "hi", RC, END], {})],
    "response_opener_repeated": [],
    "response_close_missing": [
        (["r", TC, RO, "hi", XO, CALL, XC, END], {}),
        (["r", TC, RO, "hi", END], {}),
        (["r", TC, RO, "hi", XO, CALL, XC, RC, END], {}),
    ],
    "tools_opener_missing": [(["r", *HI, CALL, XC, END], {})],
    "tools_opener_repeated": [
        (["r", *HI, XO, XO, CALL, XC, END], {}),
        (["r", *HI, XO, CALL, XO, XC, END], {}),
    ],
    "tools_close_missing": [(["r", *HI, XO, CALL, END], {}), (["r", TC, XO, CALL, RO, "hi", RC, END], {})],
    "call_close_missing": [
        (["r", *HI, XO, GW, OSLO, XC, END], {}),
        (["r", *HI, XO, GW, OSLO, CALL, XC, END], {}),
    ],
    "argument_close_missing": [
        (["r", *HI, XO, GW, OSLO.removesuffix(AC), CC, XC, END], {}),
        (["r", *HI, XO, GW, OSLO.removesuffix(AC), argument("days", "1", "number"), CC, XC, END], {}),
    ],
    "message_opener": [(["r", TC, '<|open|>message role="assistant"<|sep|>', RO, "hi", RC, END], {})],
    "other_message_opener": [(["r", *HI, '<|open|>message role="user"<|sep|>'], {})],
    "message_close_missing": [(["r", *HI, "<|end_of_msg|>"], {})],
    "after_message": [(["r", *HI, MC, opener, "<|end_of_msg|>"], {}) for opener in (RO, XO, TO)],
    "after_end": [(["r", *HI, END, "x"], {}), (["r", *HI, END, "<|sep|>"], {})],
    "missing_separator": [(["r", "<|close|>think", RO, "hi", RC, END], {})],
    "odd_marker": [
        (["r", "<|close|> think <|sep|>", RO, "hi", RC, END], {}),
        (["r", *HI, XO, CALL.replace('"1"', "1"), XC, END], {}),
    ],
    "marker_without_name": [
        (["r", "<|close|><|sep|>", RO, "hi", RC, END], {}),
        (["r", TC, RO, "hi", "<|close|>", END], {}),
    ],
    "unknown_marker": [(["r", TC, RO, "<|open|>b<|sep|>hi", RC, END], {})],
    "stray_marker": [(["r", TC, RO, "<|open|>", "hi there", RC, END], {})],
    "stray_separator": [(["r", TC, RO, "h<|sep|>i", RC, END], {})],
    "misplaced_marker": [
        (["r", TC, RO, "h", AC, "i", RC, END], {}),
        (["r", TC, RO, "h", CC, "i", RC, END], {}),
        (["r", TC, RO, "h", XC, "i", RC, END], {}),
        (["r", TC, RO, "h", JSON, "i", RC, END], {}),
        (["r", *HI, RC, END], {}),
        (["r", *HI, MC, MC, "<|end_of_msg|>"], {}),
        (["r", *HI, MC, GW, "<|end_of_msg|>"], {}),
    ],
    "cut_marker": [
        (["r", TC, RO, "hi", "<|close|>resp"], {"reason": "length"}),
        (["r", "<|close|>"], {"reason": "length"}),
    ],
    "special_token": [(["r", TC, RO, "h<|media_pad|>i", RC, END], {})],
    "channel_in_value": [],
    "cut_call": [(["r", *HI, XO, GW, OSLO], {}), (["r", *HI, XO, GW], {"reason": "length"})],
    "undeclared_tool": [
        (["r", *HI, XO, call("nope"), XC, END], {}),
        (["r", TC, XO, call("nope"), XC, END], {}),
    ],
    "call_not_allowed": [
        (["r", *HI, XO, CALL, XC, END], {"tools": []}),
        (["r", *HI, XO, CALL, XC, END], {"tool_choice": ToolChoice("none")}),
    ],
    "call_after_tools": [(["r", *HI, XO, CALL, XC, XO, CALL, XC, END], {})],
    "invalid_arguments": [(["r", *HI, XO, GW, JSON, "[]<|close|>json<|sep|>", CC, XC, END], {})],
    "duplicate_argument": [(["r", *HI, XO, GW, OSLO, OSLO, CC, XC, END], {})],
    "argument_without_key": [],
    "missing_argument": [(["r", *HI, XO, call("get_weather"), XC, END], {})],
    "type_mismatch": [(["r", *HI, XO, call("get_weather", OSLO, argument("days", "x")), XC, END], {})],
    "bare_json_body": [(["r", *HI, XO, call("get_weather", '{"city":"Oslo"}'), XC, END], {})],
    "mixed_body": [(["r", *HI, XO, GW, OSLO, JSON, '{"days":1}<|close|>json<|sep|>', CC, XC, END], {})],
    "text_in_call": [(["r", *HI, XO, call("get_weather", OSLO, "text"), XC, END], {})],
    "text_outside_channels": [(["r", *HI, "text", END], {}), (["r", *HI, XO, "text", CALL, XC, END], {})],
}
# These never come alone.
TOGETHER: list[tuple[list[str], dict[str, int]]] = [
    (["r", TC, RO, "h", RO, "i", RC, END], {"response_opener_repeated": 1, "response_close_missing": 1}),
    (["r", *HI, XO, GW, OSLO.removesuffix(AC), RO, "x", RC, END], {"channel_in_value": 1, "cut_call": 1}),
    (
        ["r", *HI, XO, call("get_weather", OSLO, f"<|open|>argument<|sep|>x{AC}"), XC, END],
        {"argument_without_key": 1, "text_in_call": 1},
    ),
    (["r", *HI, CALL, END], {"tools_opener_missing": 1, "tools_close_missing": 1}),
    (["r", *HI, MC, "x", END], {"text_outside_channels": 1, "misplaced_marker": 1}),
    (
        ["r", *HI, XO, GW, OSLO.removesuffix(AC), MC],
        {"tools_close_missing": 1, "call_close_missing": 1, "argument_close_missing": 1},
    ),
    (
        ["r", *HI, XO, GW, OSLO, "<|end_of_msg|>"],
        {"message_close_missing": 1, "cut_call": 1, "tools_close_missing": 1},
    ),
    (["r", *HI, END, "a<|sep|>", "<|close|>"], {"after_end": 3}),
]


@pytest.mark.parametrize(
    ("kind", "parts", "options"),
    [
        pytest.param(kind, parts, options, id=f"{kind}-{n}")
        for kind, completions in REPAIRS.items()
        for n, (parts, options) in enumerate(completions)
    ],
)
def test_repair_is_counted_once(
    small_vocab: Vocab, kind: str, parts: list[str], options: dict[str, Any]
) -> None:
    assert decode(small_vocab, *parts, **options).repairs == {kind: 1}


@pytest.mark.parametrize(("parts", "repairs"), TOGETHER)
def test_repairs_that_come_together(small_vocab: Vocab, parts: list[str], repairs: dict[str, int]) -> None:
    assert decode(small_vocab, *parts).repairs == repairs


def test_every_kind_has_a_completion_and_is_described() -> None:
    section = DOCS.read_text().partition("## Repairs")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert set(REPAIRS) == documented
    alone = {kind for kind, completions in REPAIRS.items() if completions}
    assert alone | {kind for _, repairs in TOGETHER for kind in repairs} == documented
