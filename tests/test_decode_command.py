"""`k3 decode`, as a person runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.xtml import Vocab
from tests.xtml.completions import CALL, END, RC, RO, TC, WEATHER, XC, XO, to_ids
from tests.xtml.small_vocab import write_small_vocab

TEXT = f"reason{TC}{RO}hé{RC}{XO}{CALL}{XC}{END}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_vocab(tmp_path_factory.mktemp("decode"))


def run(folder: Path, completion: Any, *options: str) -> Any:
    arguments = ["decode", "-", "--tokenizer", str(folder), *options]
    return CliRunner().invoke(app, arguments, input=json.dumps(completion))


def message(folder: Path, completion: Any, *options: str) -> dict[str, Any]:
    result = run(folder, completion, *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_message_of_a_completion(folder: Path) -> None:
    got = message(folder, {"text": TEXT, "tools": [WEATHER]})
    [call] = got.pop("tool_calls")
    assert got == {
        "role": "assistant",
        "content": "hé",
        "reasoning_content": "reason",
        "finish_reason": "tool_calls",
    }
    assert (call["type"], call["function"]) == (
        "function",
        {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
    )


def test_ids_and_file_say_the_same_as_text(folder: Path, tmp_path: Path) -> None:
    ids = to_ids(Vocab.load(folder), TEXT)
    path = tmp_path / "completion.json"
    path.write_text(json.dumps({"ids": ids}))
    result = CliRunner().invoke(app, ["decode", str(path), "--tokenizer", str(folder)])
    assert json.loads(result.stdout) == message(folder, {"text": TEXT})


def test_cut_call_is_in_the_extension_field(folder: Path) -> None:
    text = TEXT.partition("Oslo")[0] + "Os"
    got = message(folder, {"text": text, "tools": [WEATHER], "finish_reason": "length"})
    assert got["k3_unparsed"] == [{"text": 'get_weather {"city":"Os', "why": "cut_call"}]
    assert got["finish_reason"] == "length"
    assert "tool_calls" not in got


def test_thinking_off_and_tool_choice(folder: Path) -> None:
    got = message(
        folder,
        {"text": f"hi{RC}{XO}{CALL}{XC}{END}", "thinking": False, "tools": [WEATHER], "tool_choice": "none"},
    )
    assert (got["content"], got["finish_reason"]) == ("hi", "stop")
    assert "tool_calls" not in got and "reasoning_content" not in got


@pytest.mark.parametrize("split", ["0", "1", "3"])
def test_chunks_add_up_to_the_message(folder: Path, split: str) -> None:
    result = run(folder, {"text": TEXT, "tools": [WEATHER]}, "--stream", "--split", split)
    choices = [json.loads(line)["choices"][0] for line in result.stdout.splitlines()]
    deltas = [choice["delta"] for choice in choices]
    assert deltas[0]["role"] == "assistant"
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "reason"
    assert "".join(d.get("content", "") for d in deltas) == "hé"
    calls = [call for d in deltas for call in d.get("tool_calls", ())]
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert all(set(call) == {"index", "function"} for call in calls[1:])
    assert "".join(call["function"]["arguments"] for call in calls) == '{"city":"Oslo"}'
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["tool_calls"]
    assert deltas[-1] == {}


@pytest.mark.parametrize(
    ("completion", "complaint"),
    [
        ([], "object"),
        ({}, "either `text` or `ids`"),
        ({"text": "a", "ids": [1]}, "either `text` or `ids`"),
        ({"ids": ["a"]}, "ids: must be whole numbers"),
        ({"text": 5}, "text: is of the wrong type"),
        ({"text": "a", "tool": []}, "tool: no such field"),
        ({"text": "a", "tool_choice": "maybe"}, "tool_choice: must be"),
        ({"text": "a", "tool_choice": {}}, "tool_choice: an object must have function.name"),
    ],
)
def test_wrong_input_is_named(folder: Path, completion: Any, complaint: str) -> None:
    result = run(folder, completion)
    assert result.exit_code == 1
    assert complaint in result.output


def test_missing_file_and_text_that_is_no_json(folder: Path, tmp_path: Path) -> None:
    missing = CliRunner().invoke(app, ["decode", str(tmp_path / "none"), "--tokenizer", str(folder)])
    assert (missing.exit_code, "cannot be read" in missing.output) == (1, True)
    broken = CliRunner().invoke(app, ["decode", "-", "--tokenizer", str(folder)], input="{")
    assert (broken.exit_code, "is not JSON" in broken.output) == (1, True)


@pytest.mark.parametrize("reason", ["banana", "tool_calls", ["stop"]])
def test_only_finish_reasons_of_the_engine(folder: Path, reason: Any) -> None:
    result = run(folder, {"text": TEXT, "finish_reason": reason})
    assert result.exit_code == 1 and "finish_reason" in result.stderr and not result.stdout
