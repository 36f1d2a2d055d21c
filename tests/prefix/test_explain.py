from typing import Any

import pytest

from gateway.prefix.explain import Account, account
from gateway.prefix.sections import SectionTree
from gateway.xtml import Reply, Vocab, encode_assistant, from_request
from tests.prefix.prompts import assistant, system, tool, user, written

TOOLS = [tool("read"), tool("write"), tool("grep")]
LONG = "word " * 300
HISTORY = [system(LONG), user("one"), assistant("two", "thought"), user("three")]
UNIT = 128


class Log:
    """A tree, and the account of each prompt that is sent through it."""

    def __init__(self, vocab: Vocab, **tree: Any) -> None:
        self.vocab = vocab
        self.tree = SectionTree(**tree)

    def send(self, *messages: dict[str, Any], cache: str = "", reply: Any = None, **fields: Any) -> Account:
        prompt = written(self.vocab, *messages, **fields)
        match = self.tree.match(cache, prompt)
        n_prompt = len(prompt.prompt.ids)
        result = account(match, n_prompt, UNIT)
        self.tree.add(cache, prompt, match, (n_prompt - 1) // UNIT * UNIT, 0)
        if reply is not None:
            message = from_request({"messages": [reply]}).messages[0]
            said = Reply(message.reasoning or "", "".join(message.parts))  # type: ignore[arg-type]
            self.tree.add_reply(match, prompt, said, encode_assistant(message, self.vocab))
        return result


@pytest.fixture
def log(vocab: Vocab) -> Log:
    return Log(vocab)


def test_a_first_prompt_differs_from_nothing(log: Log) -> None:
    first = log.send(*HISTORY)
    assert first.changed is None and first.n_shared == 0 and first.possible == 0


def test_a_conversation_that_goes_on_has_not_changed(log: Log) -> None:
    log.send(*HISTORY[:2], reply=HISTORY[2])
    second = log.send(*HISTORY)
    assert second.changed is None
    n_answered = written(log.vocab, *HISTORY).prompt.sections[3].end  # effort, system, one, two
    assert second.n_shared == n_answered
    assert second.possible == n_answered // UNIT * UNIT


@pytest.mark.parametrize(
    ("after", "changed", "kind"),
    [
        ([system(LONG + "!"), *HISTORY[1:]], "messages[0].content", "message"),
        ([*HISTORY[:3], user("four")], "messages[3].content", "message"),
        ([HISTORY[0], {**user("one"), "name": "bob"}, *HISTORY[2:]], "messages[1].name", "message"),
        ([*HISTORY[:2], assistant("two"), HISTORY[3]], "messages[2].reasoning_content", "message"),
        ([*HISTORY[:2], assistant("TWO", "thought"), HISTORY[3]], "messages[2].content", "message"),
        ([*HISTORY[:2], user("other")], "messages[2].role", "message"),
    ],
)
def test_the_part_that_differs_is_named(log: Log, after: Any, changed: str, kind: str) -> None:
    log.send(*HISTORY)
    second = log.send(*after)
    assert (second.changed, second.changed_kind) == (changed, kind)


def test_arguments_that_are_only_spelled_otherwise_are_no_change(log: Log) -> None:
    def calling(arguments: Any, call_id: str) -> list[dict[str, Any]]:
        function = {"name": "f", "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": call_id, "content": "r"}
        return [user("one"), {"role": "assistant", "content": "", "tool_calls": [call]}, result]

    log.send(*calling('{"a": 1, "b": [1, 2]}', "c1"))
    for arguments in ('{"a":1,"b":[1, 2]}', '\n{"\\u0061" : 1, "b": [1, 2]}', {"a": 1, "b": [1, 2]}):
        second = log.send(*calling(arguments, "c2"), user("two"))
        assert second.changed is None, arguments
    third = log.send(*calling('{"a": 2, "b": [1, 2]}', "c1"))
    assert third.changed == "messages[1].tool_calls"


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"tools": [TOOLS[0], TOOLS[1], tool("grep", "else")]}, "tools[2]"),
        ({"tools": [TOOLS[1], TOOLS[0], TOOLS[2]]}, "tools[0]"),
        ({"tools": TOOLS[:2]}, "tools[2]"),
        ({"tools": [*TOOLS, tool("more")]}, "tools[3]"),
        ({}, "tools"),
        ({"tools": TOOLS, "reasoning_effort": "low"}, "effort"),
        ({"tools": TOOLS, "thinking": {"type": "disabled"}}, "effort"),
    ],
)
def test_tools_and_effort_are_named(log: Log, fields: dict[str, Any], changed: str) -> None:
    log.send(*HISTORY, tools=TOOLS)
    assert log.send(*HISTORY, **fields).changed == changed


def test_notes_at_the_end_are_no_change(log: Log) -> None:
    log.send(*HISTORY, tools=TOOLS, tool_choice="required")
    after = log.send(*HISTORY, assistant("ok", "hm"), user("on"), tools=TOOLS)
    assert after.changed is None


def test_reasoning_that_the_client_dropped_is_named_at_the_first_turn(log: Log) -> None:
    log.send(*HISTORY[:2], reply=HISTORY[2])
    second = log.send(*HISTORY[:2], assistant("two"), HISTORY[3])
    assert second.changed == "messages[2].reasoning_content"
    assert second.lost_to_change > 0


def test_lines_moved_to_the_end_do_not_count_as_history(vocab: Vocab) -> None:
    log = Log(vocab)
    log.send(*HISTORY[:2], system("Today is Monday"), n_moved=1)
    assert log.send(*HISTORY, system("Today is Tuesday"), n_moved=1).changed is None


def test_caches_of_tenants_are_told_apart(log: Log) -> None:
    log.send(*HISTORY, cache="salt of a")
    other = log.send(*HISTORY, cache="salt of b")
    assert other.n_shared == 0 and other.changed is None


def test_losses_add_up_to_what_was_shared_and_not_read(log: Log) -> None:
    log.send(*HISTORY)
    again = log.send(*HISTORY[:3], user("another"))
    assert again.kept <= again.possible <= again.n_shared < again.n_prompt
    again.n_cached = 0  # all of it evicted
    assert again.lost_to_eviction == again.kept
    again.n_cached = again.kept
    assert again.lost_to_eviction == 0
    assert again.lost_to_boundary == again.n_shared - again.kept


def test_eviction_is_only_claimed_for_boundaries_that_were_reached(log: Log) -> None:
    log.send(system(LONG), user("x " * 400))  # its state lies behind the part that is shared
    second = log.send(system(LONG), user("something else"))
    second.n_cached = 0
    assert second.n_shared > UNIT and second.lost_to_eviction == 0
    assert second.lost_to_boundary == second.n_shared


def test_the_header_tells_counts_and_change(log: Log) -> None:
    log.send(*HISTORY)
    second = log.send(*HISTORY[:3], user("four"))
    assert second.header().startswith("cached=?/")
    second.n_cached = 256
    assert second.header(900) == "cached=256/900 changed=messages[3].content"
    assert second.header(250) == "cached=250/250 changed=messages[3].content"  # never more than there is


def test_the_tree_is_bounded_and_keeps_no_text(vocab: Vocab) -> None:
    log = Log(vocab, max_nodes=40)
    for number in range(60):
        log.send(system("SECRET " + str(number)), user("q"))
    assert len(log.tree) <= 40
    assert "SECRET" not in repr(log.tree._nodes)
