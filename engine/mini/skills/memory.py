# ruff: noqa: E501  (templates read best on one line)
"""Facts that stand in the system prompt, in earlier turns, or only in earlier reasoning."""

from __future__ import annotations

from engine.mini.skills.base import Source, Task, listing, user
from engine.mini.skills.chat import echo, greeting

_KINDS = (
    "code",
    "color",
    "password",
    "name",
    "number",
    "address",
    "price",
    "date",
    "city",
    "room",
    "title",
    "key",
)


def _facts(source: Source, n: int) -> list[tuple[str, str]]:
    """Different ("the code of Anna", value) pairs that share kinds and owners, so that both must match."""
    kinds = [source.pick(_KINDS) if source.chance(0.6) else source.made_up() for _ in range(2)]
    owners = [
        source.pick((source.name(), f"the {source.thing()}", f"the {source.thing()}")) for _ in range(3)
    ]
    subjects = list(dict.fromkeys(f"{source.pick(kinds)} of {source.pick(owners)}" for _ in range(n)))
    return [(subject, _value(source, subject)) for subject in subjects]


def _value(source: Source, subject: str) -> str:
    kind = subject.partition(" ")[0]
    if kind == "color":
        return source.pick((source.term("color"), source.value()))
    if kind == "city":
        return source.city()
    if kind == "name":
        return source.name()
    if kind == "date":
        return source.date()
    return source.value()


def system_fact(source: Source) -> Task:
    facts = _facts(source, source.random.randint(1, 4))
    told = " ".join(f"The {subject} is {value}." for subject, value in facts)
    if source.chance(0.3):
        told = f"You are a {source.word('adjective')} {source.pick(('assistant', 'helper', 'robot', 'teacher'))}. {told}"
    subject, value = source.pick(facts)
    where, body = "The system prompt", [{"role": "system", "content": told}]
    if source.chance(0.3):
        where = "The user"
        body = [user(f"Remember this: {told}"), _said(source, "I keep it in mind.", "I will remember it.")]
        if source.chance(0.5):
            body += _turn(source)
    if source.chance(0.1):
        subject = next(
            s for s in iter(lambda: f"{source.pick(_KINDS)} of {source.name()}", "") if s not in dict(facts)
        )
        answer, facts_text = f"I do not know the {subject}.", f"{where} does not say it."
    else:
        answer, facts_text = f"The {subject} is {value}.", f"{where} says that the {subject} is {value}."
    question = source.pick(
        ("What is the {}?", "Tell me the {}.", "Do you know the {}?", "What was the {}?", "I need the {}.")
    )
    body.append(user(question.format(subject)))
    return Task(
        "fact", {"messages": body}, "I look it up.", facts_text, "That is what the user asks for.", answer
    )


def remember(source: Source) -> Task:
    """The first turn of `system_fact`'s second form: being told."""
    told = " ".join(
        f"The {subject} is {value}." for subject, value in _facts(source, source.random.randint(1, 3))
    )
    body = {"messages": [user(f"Remember this: {told}")]}
    return Task(
        "fact",
        body,
        "I keep it in mind.",
        "The user may ask for it later.",
        "Now I only say that I will.",
        "I will remember it.",
    )


_PICK = (
    "Pick one of these {kind} and keep it secret: {list}.",
    "Choose one of {list} in secret. Do not tell me yet.",
    "Think of one of these {kind}: {list}. Do not say it.",
)  # fmt: skip
_ASK = (
    "Which one did you pick?",
    "What was your secret?",
    "Which one was it?",
    "Tell me your secret now.",
    "What did you choose?",
)


def recall(source: Source) -> Task:
    """A choice that stands only in the reasoning of an earlier turn."""
    kind, options = source.pick(
        (
            ("words", [source.thing() for _ in range(3)]),
            ("numbers", [str(source.integer(1, 99)) for _ in range(3)]),
            ("names", [source.name() for _ in range(3)]),
            ("cities", [source.city() for _ in range(3)]),
        )
    )
    request = user(source.pick(_PICK).format(kind=kind, list=listing(options)))
    if source.chance(0.25):
        chosen = options[1]
        return Task(
            "recall", {"messages": [request]}, f"I pick {chosen}.", "I keep it in mind.", "I do not say it until the user asks.", "I have picked one."
        )  # fmt: skip
    chosen = source.pick(options)
    reasoning = source.pick(
        (
            f"I pick {chosen}.",
            f"I pick {chosen}. I keep it in mind.",
            f"I pick {chosen}. I keep it in mind. I do not say it until the user asks.",
        )
    )
    messages = [
        request,
        {"role": "assistant", "reasoning_content": reasoning, "content": "I have picked one."},
    ]
    for _ in range(source.pick((0, 0, 1, 2))):
        messages += _turn(source)
    messages.append(user(source.pick(_ASK)))
    return Task(
        "recall",
        {"messages": messages},
        "I look back.",
        f"Earlier I thought: I pick {chosen}.",
        "Now I may say it.",
        f"I picked {chosen}.",
    )


def _said(source: Source, reasoning: str, content: str) -> dict[str, str]:
    return {"role": "assistant", "reasoning_content": reasoning, "content": content}


def _turn(source: Source) -> list[dict[str, str]]:
    """A question and its answer, to stand between."""
    task = source.pick((echo, greeting))(source)
    effort = source.pick(("low", "high", "max"))
    return [*task.body["messages"], _said(source, task.reasoning(effort), task.content)]
