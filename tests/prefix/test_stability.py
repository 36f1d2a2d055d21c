import itertools

import pytest

from gateway.prefix.stability import Stability
from gateway.settings import SettingsError, load_settings
from gateway.xtml import Conversation, Vocab, encode, from_request
from tests.prefix.prompts import assistant, system, tool, user

TOOLS = [tool("read"), tool("write"), tool("grep")]
CHAT = {"messages": [system("Be good."), user("hi")], "tools": TOOLS}


def ids_of(conversation: Conversation, vocab: Vocab) -> list[int]:
    return encode(conversation, vocab).ids


def test_the_order_of_keys_in_a_tool_does_not_change_the_prompt(vocab: Vocab) -> None:
    shuffled = [{"function": dict(reversed(list(t["function"].items()))), "type": "function"} for t in TOOLS]
    assert ids_of(from_request(CHAT), vocab) == ids_of(from_request({**CHAT, "tools": shuffled}), vocab)


def test_without_options_nothing_is_changed() -> None:
    conversation = from_request({**CHAT, "tools": TOOLS[::-1]})
    stable = Stability().apply(conversation)
    assert stable.conversation is conversation and stable.notes == () and stable.n_moved == 0


def test_sorted_tools_give_one_prompt_for_every_order(vocab: Vocab) -> None:
    stability = Stability(sort_tools=True)
    prompts = {
        tuple(ids_of(stability.apply(from_request({**CHAT, "tools": list(order)})).conversation, vocab))
        for order in itertools.permutations(TOOLS)
    }
    assert len(prompts) == 1


def test_sorting_is_noted_only_where_it_changed_something() -> None:
    by_name = sorted(TOOLS, key=lambda t: t["function"]["name"])
    stability = Stability(sort_tools=True)
    assert stability.apply(from_request({**CHAT, "tools": TOOLS})).notes == ("sorted-tools",)
    assert stability.apply(from_request({**CHAT, "tools": by_name})).notes == ()


def test_a_volatile_line_leaves_the_system_prompt_and_stands_at_the_end(vocab: Vocab) -> None:
    """Field report C06: a billing header at the top of the system prompt."""
    stability = Stability(volatile_lines=[r"x-\w+-billing-header:", r"Today is "])
    history = [user("one"), assistant("two", "thought"), user("three")]

    def request(cch: int, day: str) -> Conversation:
        text = f"x-claude-billing-header: cch={cch}\nYou are a coder.\nToday is {day}\nBe brief."
        return from_request({"messages": [system(text), *history]})

    first, second = stability.apply(request(1, "Monday")), stability.apply(request(2, "Tuesday"))
    assert first.notes == ("moved-lines=2",) and first.n_moved == 1
    assert first.conversation.messages[0].parts == ("You are a coder.\nBe brief.",)
    assert first.conversation.messages[-1].parts == ("x-claude-billing-header: cch=1\nToday is Monday",)
    n_stable = encode(first.conversation, vocab).sections[-3].end  # before the moved lines and the opener
    assert ids_of(first.conversation, vocab)[:n_stable] == ids_of(second.conversation, vocab)[:n_stable]
    assert ids_of(first.conversation, vocab) != ids_of(second.conversation, vocab)


def test_volatile_lines_stand_before_a_message_that_the_model_goes_on_with() -> None:
    body = {"messages": [system("id: 7\nHi."), user("go"), {**assistant("It is"), "partial": True}]}
    stable = Stability(volatile_lines=["id: "]).apply(from_request(body))
    assert stable.conversation.partial
    assert stable.conversation.messages[-2].parts == ("id: 7",)


def test_other_messages_keep_their_lines() -> None:
    body = {"messages": [system("Hi."), user("id: 7")]}
    assert Stability(volatile_lines=["id: "]).apply(from_request(body)).notes == ()


def test_a_pattern_that_is_none_ends_the_start() -> None:
    with pytest.raises(SettingsError, match=r"volatile_lines.*regular expression"):
        load_settings(volatile_lines=["("])
