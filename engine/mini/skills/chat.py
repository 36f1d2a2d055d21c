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
    """Sums and differences up to 99 and products up to 12 x 12, worked digit by digit at higher effort."""
    kind = source.random.random()
    if kind < 0.2:
        return _word_problem(source)
    if kind < 0.3:
        return _comparison(source)
    a, op, b = _operands(source)
    text = source.pick(_SUM).format(a=a, b=b, op=op, word=_WORDS[op])
    return _worked(text, a, op, b, "{}", source)


def _operands(source: Source, ops: str = "++--*") -> tuple[int, str, int]:
    def make() -> str:
        op = source.pick(ops)
        if op == "*":
            return f"{source.random.randint(2, 12)} * {source.random.randint(2, 12)}"
        a, b = source.random.randint(1, 99), source.random.randint(1, 99)
        return f"{max(a, b) if op == '-' else a} {op} {min(a, b) if op == '-' else b}"

    a, op, b = source.own(make).split()
    return int(a), op, int(b)


def _worked(text: str, a: int, op: str, b: int, answer: str, source: Source) -> Task:
    result = {"+": a + b, "-": a - b, "*": a * b}[op]
    if op == "*":
        facts = f"{a} times {b} is {result}."
        check = f"{result} is {' + '.join([str(a)] * min(b, 3))}{' and so on' if b > 3 else ''}."
    elif op == "+":
        ones = a % 10 + b % 10
        carry = ones // 10
        facts = f"Ones: {a % 10} + {b % 10} = {ones}. Tens: {a // 10} + {b // 10} + {carry} = {a // 10 + b // 10 + carry}."
        check = f"Together {result}. And {result} - {b} = {a}."
    else:
        borrow = a % 10 < b % 10
        ones = a % 10 + 10 * borrow - b % 10
        facts = f"Ones: {a % 10 + 10 * borrow} - {b % 10} = {ones}. Tens: {a // 10 - borrow} - {b // 10} = {a // 10 - borrow - b // 10}."
        check = f"Together {result}. And {result} + {b} = {a}."
    plan = f"{a} {op} {b} = {result}."
    return Task("arithmetic", {"messages": [user(text)]}, plan, facts, check, answer.format(result))


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
        "arithmetic", {"messages": [user(text)]}, "I compare.", f"{low} is less than {high}.", f"So the {word} one is {answer}.", str(answer)
    )  # fmt: skip
