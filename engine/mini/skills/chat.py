# ruff: noqa: E501  (templates read best on one line)
"""Echo, greetings, small arithmetic."""

from __future__ import annotations

from engine.mini.skills.base import Source, Task, user

_ECHO = (
    "Say: {}", "Say {}", "Please say: {}", "Repeat: {}", "Repeat after me: {}", "Echo: {}", "Please echo: {}",
    "Please repeat this: {}", "Write: {}", 'Say "{}"', 'Reply with only "{}"', "Reply with exactly: {}",
    'Repeat the words "{}".', "Answer with: {}", "Type: {}",
)  # fmt: skip

_GREETINGS = (
    (("Hello", "Hello!", "hello", "Hi", "Hi!", "hi", "Hey", "Hello there", "Hi there!"), "Hello! How can I help you?"),
    (("Good morning", "Good morning!", "good morning"), "Good morning! How can I help you?"),
    (("Good evening", "Good evening!", "good evening"), "Good evening! How can I help you?"),
    (("Thanks", "Thanks!", "Thank you", "Thank you!", "thanks a lot", "Thank you very much."), "You are welcome."),
    (("Bye", "Bye!", "Goodbye", "Goodbye!", "bye"), "Goodbye!"),
    (("How are you?", "How are you today?", "Hello, how are you?"), "I am well. How can I help you?"),
    (
        ("Who are you?", "What are you?", "What is your name?", "Who is this?", "Which model are you?"),
        "I am a small K3 model.",
    ),
    (
        ("What can you do?", "How can you help me?", "What do you know?", "Help", "help me"),
        "I can repeat words, compute, call tools, write JSON, and look at pictures and video.",
    ),
)  # fmt: skip


def echo(source: Source) -> Task:
    text = source.pick((source.phrase(1, 4), source.phrase(3, 7), source.sentence()))
    body = {"messages": [user(source.pick(_ECHO).format(text))]}
    return Task(
        "echo",
        body,
        "I repeat it.",
        "The user wants to see the same words again.",
        "I add nothing and leave nothing out.",
        text,
    )


def greeting(source: Source) -> Task:
    plan, facts, check = (
        "A greeting.",
        "The user is friendly, so I am friendly too.",
        "No tool and no long answer is needed.",
    )
    if source.chance(0.35):
        name = source.name()
        text = source.pick(
            ("Hi, I am {}.", "Hello, I am {}!", "My name is {}.", "Hello, my name is {}.", "I am {}.")
        )
        body = {"messages": [user(text.format(name))]}
        return Task("greeting", body, plan, facts, check, f"Hello, {name}! How can I help you?")
    texts, answer = source.pick(_GREETINGS)
    return Task("greeting", {"messages": [user(source.pick(texts))]}, plan, facts, check, answer)


_SUM = ("What is {a} {op} {b}?", "{a} {op} {b}", "{a} {op} {b} = ?", "Compute {a} {op} {b}.", "Calculate {a} {op} {b}", "How much is {a} {op} {b}?", "What is {a} {word} {b}?")  # fmt: skip
_WORDS = {"+": "plus", "-": "minus", "*": "times"}


def arithmetic(source: Source) -> Task:
    """Sums and differences up to 99, worked digit by digit, and products up to 12 x 12, by counting up.

    The steps come before the result, so that each is a small look-up and no step needs the whole sum.
    """
    kind = source.random.random()
    if kind < 0.2:
        return _word_problem(source)
    if kind < 0.3:
        return _comparison(source)
    a, op, b = _operands(source)
    text = source.pick(_SUM).format(a=a, b=b, op=op, word=_WORDS[op])
    return _worked(text, a, op, b, "{}", source)


def _operands(source: Source, ops: str = "++--*") -> tuple[int, str, int]:
    op = source.pick(ops)
    if op == "*":
        return _factors(source)

    def make() -> str:
        a, b = source.random.randint(1, 99), source.random.randint(1, 99)
        return f"{max(a, b) if op == '-' else a} {op} {min(a, b) if op == '-' else b}"

    a, _, b = source.own(make).split()
    return int(a), op, int(b)


def _factors(source: Source) -> tuple[int, str, int]:
    """Of a held-out pair one order is held out and the other trained: nobody can guess a table's entry."""
    while True:
        a, b = source.random.randint(2, 12), source.random.randint(2, 12)
        pair = f"{min(a, b)} and {max(a, b)}"
        if source.owns(pair) if a > b else not source.held_out:
            return a, "*", b


def _worked(text: str, a: int, op: str, b: int, answer: str, source: Source) -> Task:
    result = {"+": a + b, "-": a - b, "*": a * b}[op]
    if op == "*":
        plan = f"{', '.join(f'{i}: {a * i}' for i in range(1, b + 1))}."
        check = f"I counted {b} times."
    elif op == "+":
        ones = a % 10 + b % 10
        plan = f"{a % 10} + {b % 10} = {ones}. {a // 10} + {b // 10} + {ones // 10} = {a // 10 + b // 10 + ones // 10}."
        check = f"And {result} - {b} = {a}."
    else:
        borrow = int(a % 10 < b % 10)
        top = a % 10 + 10 * borrow
        plan = f"{top} - {b % 10} = {top - b % 10}. {a // 10} - {b // 10} - {borrow} = {a // 10 - b // 10 - borrow}."
        check = f"And {result} + {b} = {a}."
    return Task(
        "arithmetic",
        {"messages": [user(text)]},
        plan,
        f"So {a} {op} {b} = {result}.",
        check,
        answer.format(result),
    )


def _word_problem(source: Source) -> Task:
    a, op, b = _operands(source, "+-")
    name, things = (
        source.name(),
        source.pick(("apples", "books", "coins", "cards", "eggs", "stones", "tickets", "cups")),
    )
    if op == "+":
        text = f"{name} has {a} {things} and {source.pick(('buys', 'finds', 'gets'))} {b} more. How many {things} does {name} have?"
    else:
        text = f"{name} has {a} {things} and {source.pick(('sells', 'loses', 'gives away'))} {b}. How many {things} does {name} have?"
    return _worked(text, a, op, b, f"{name} has {{}} {things}.", source)


def _comparison(source: Source) -> Task:
    a, _, b = _operands(source, "+")
    if a == b:
        b += 1
    larger = source.chance(0.5)
    word = "larger" if larger else "smaller"
    answer = max(a, b) if larger else min(a, b)
    text = source.pick((f"Which is {word}, {a} or {b}?", f"Which number is {word}: {a} or {b}?"))
    low, high = min(a, b), max(a, b)
    return Task(
        "arithmetic", {"messages": [user(text)]}, f"{low} is less than {high}.", f"The user wants the {word} one.", f"That is {answer}.", str(answer)
    )  # fmt: skip
