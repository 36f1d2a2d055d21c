from typing import Any

import pytest

from gateway.prefix.history import HistoryRepair
from gateway.xtml import CallResult, Conversation, Reply, from_request
from tests.prefix.prompts import assistant, system, tool, user

ASK = [system("Be good."), user("hi")]
ANSWER = Reply(reasoning="They greet me.", content="Hello!")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def conversation(*messages: dict[str, Any], **fields: Any) -> Conversation:
    return from_request({"messages": list(messages), **fields})


def repair_of(when: Any = "always", max_bytes: int = 1 << 20, **kwargs: Any) -> HistoryRepair:
    return HistoryRepair(when, max_bytes, 60.0, **kwargs)


def reasonings(history: HistoryRepair, tenant: str, chat: Conversation) -> list[str | None]:
    return [m.reasoning for m in history.repair(tenant, chat).conversation.messages]


def test_dropped_reasoning_is_restored() -> None:
    history = repair_of()
    history.remember("a", conversation(*ASK), [ANSWER])
    repaired = history.repair("a", conversation(*ASK, assistant("Hello!"), user("more")))
    assert [m.reasoning for m in repaired.conversation.messages] == [None, None, "They greet me.", None]
    assert (repaired.n_restored, repaired.n_missing) == (1, 0)


def test_reasoning_that_the_client_sent_stays() -> None:
    history = repair_of()
    history.remember("a", conversation(*ASK), [ANSWER])
    assert reasonings(history, "a", conversation(*ASK, assistant("Hello!", "mine")))[2] == "mine"


def test_never_across_tenants() -> None:
    history = repair_of()
    history.remember("a", conversation(*ASK), [ANSWER])
    repaired = history.repair("b", conversation(*ASK, assistant("Hello!")))
    assert repaired.conversation.messages[2].reasoning is None and repaired.n_missing == 1


@pytest.mark.parametrize(
    "sent",
    [
        [*ASK, assistant("Hello.")],
        [system("Be bad."), user("hi"), assistant("Hello!")],
        [user("hi"), assistant("Hello!")],
    ],
    ids=["other turn", "other beginning", "missing message"],
)
def test_another_conversation_gets_nothing(sent: list[dict[str, Any]]) -> None:
    history = repair_of()
    history.remember("a", conversation(*ASK), [ANSWER])
    assert reasonings(history, "a", conversation(*sent))[-1] is None


def test_turns_are_found_after_other_turns_were_repaired() -> None:
    history = repair_of()
    chat = list(ASK)
    for turn in range(5):
        history.remember(
            "a",
            history.repair("a", conversation(*chat)).conversation,
            [Reply(reasoning=f"thought {turn}", content=f"answer {turn}")],
        )
        chat += [assistant(f"answer {turn}"), user(f"question {turn}")]
    found = [r for r in reasonings(history, "a", conversation(*chat)) if r]
    assert found == [f"thought {turn}" for turn in range(5)]


def test_calls_are_known_again_however_the_client_writes_their_arguments() -> None:
    history = repair_of("tools")
    chat = conversation(*ASK, tools=[tool("read")])
    reply = Reply(reasoning="I must read.", tool_calls=[CallResult("call_1", "read", '{"a": 1, "b": [2]}')])
    history.remember("a", chat, [reply])
    call = {"id": "other", "type": "function", "function": {"name": "read", "arguments": '{"b":[2],"a":1}'}}
    sent = conversation(
        *ASK, {"role": "assistant", "content": None, "tool_calls": [call]}, tools=[tool("read")]
    )
    assert reasonings(history, "a", sent)[2] == "I must read."


def test_with_tools_only_means_conversations_that_declare_tools() -> None:
    history = repair_of("tools")
    history.remember("a", conversation(*ASK), [ANSWER])
    assert len(history) == 0


def test_off_keeps_nothing() -> None:
    history = repair_of("off")
    history.remember("a", conversation(*ASK), [ANSWER])
    assert len(history) == 0


def test_thinking_off_has_no_reasoning_to_restore() -> None:
    history = repair_of()
    history.remember("a", conversation(*ASK), [ANSWER])
    sent = conversation(*ASK, assistant("Hello!"), thinking={"type": "disabled"})
    assert reasonings(history, "a", sent)[2] is None


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    history = repair_of(max_bytes=10_000)
    for number in range(50):
        asked = conversation(user(f"q{number}"))
        history.remember("a", asked, [Reply(reasoning="x" * 500, content="ok")])
        assert history.n_bytes <= 10_000
    assert reasonings(history, "a", conversation(user("q49"), assistant("ok")))[1]
    assert reasonings(history, "a", conversation(user("q0"), assistant("ok")))[1] is None


def test_one_text_larger_than_the_memory_is_not_kept() -> None:
    history = repair_of(max_bytes=1000)
    history.remember("a", conversation(*ASK), [Reply(reasoning="x" * 5000, content="ok")])
    assert len(history) == 0 and history.n_bytes == 0


def test_what_nobody_asked_for_is_forgotten() -> None:
    clock = Clock()
    history = repair_of(clock=clock)
    history.remember("a", conversation(*ASK), [ANSWER])
    clock.now += 59
    assert reasonings(history, "a", conversation(*ASK, assistant("Hello!")))[2]  # and lives on from here
    clock.now += 59
    assert reasonings(history, "a", conversation(*ASK, assistant("Hello!")))[2]
    clock.now += 61
    assert reasonings(history, "a", conversation(*ASK, assistant("Hello!")))[2] is None
    assert history.n_bytes == 0


def test_choices_are_told_apart_by_what_they_say() -> None:
    history = repair_of()
    history.remember("a", conversation(*ASK), [ANSWER, Reply(reasoning="Short.", content="Hey")])
    assert reasonings(history, "a", conversation(*ASK, assistant("Hey")))[2] == "Short."
    assert reasonings(history, "a", conversation(*ASK, assistant("Hello!")))[2] == "They greet me."
