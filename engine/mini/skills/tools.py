# ruff: noqa: E501  (templates read best on one line)
"""Tool calling: one call, several at once, chains, results, dynamic tools, and no call where none is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.mini.skills.base import Source, Task, capital, listing, user
from engine.mini.skills.chat import arithmetic, echo, greeting
from engine.mini.skills.everyday import EVERYDAY, asked
from engine.mini.skills.parameters import Parameter, object_schema, parameters, spoken
from engine.mini.words import WORDS


@dataclass(frozen=True)
class Wish:
    """A declared tool, a sentence that asks for it, the call that is right, and what it returns."""

    declared: dict[str, Any]
    text: str
    arguments: dict[str, Any]
    result: Any

    @property
    def name(self) -> str:
        return str(self.declared["function"]["name"])

    @property
    def call(self) -> tuple[str, dict[str, Any]]:
        return self.name, self.arguments


def _declared(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def wish(source: Source, taken: Sequence[str] = (), short: bool = False) -> Wish:
    """A wish for a tool whose name is not in `taken`: an everyday one, or a made-up one."""
    while True:
        made = _everyday(source) if source.chance(0.4) else _random_wish(source, 1 if short else 3)
        if made.name not in taken:
            return made


def _everyday(source: Source) -> Wish:
    tool = source.pick(EVERYDAY)
    values = tool.values(source)
    schema = {"type": "object", "properties": tool.properties, "required": list(tool.properties)}
    declared = _declared(tool.name, tool.description, schema)
    return Wish(declared, asked(source, tool, values), values, tool.result(source))


_KNOWN_VERBS = frozenset((*WORDS["tool_verb"], *WORDS["verb"]))


def tool_name(source: Source) -> str:
    def make() -> str:
        kind = source.random.random()
        verb = (
            source.made_up(str.lower)
            if kind < 0.35
            else source.pick(WORDS["tool_verb" if kind < 0.85 else "verb"])
        )
        noun = source.pick(WORDS["tool_noun"]) if source.chance(0.4) else source.thing()
        return f"{verb}_{noun}"

    return source.own(make)


def _random_wish(source: Source, most: int) -> Wish:
    name = tool_name(source)
    verb, noun = name.split("_")
    declared_parameters = parameters(source, source.random.randint(1, most + 1))
    given = [p for p in declared_parameters if source.chance(0.75)][:most] or declared_parameters[:1]
    required = [p.key for p in given if source.chance(0.8)]
    declared = _declared(
        name, f"{capital(verb)} {_article(noun)} {noun}", object_schema(declared_parameters, required)
    )
    return Wish(
        declared,
        _request(source, name, verb, noun, declared_parameters, given),
        {p.key: p.value for p in given},
        _result(source),
    )


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _request(
    source: Source, name: str, verb: str, noun: str, declared: Sequence[Parameter], given: Sequence[Parameter]
) -> str:
    """A made-up verb is never capitalised: nothing says which pieces the small letters would be."""
    details = spoken(source, given)
    if len(declared) == 1 and isinstance(given[0].value, str) and source.chance(0.4):
        return source.pick(
            (
                f"I need to {verb} the {noun} for {given[0].spoken}.",
                f"Please {verb} the {noun} of {given[0].spoken}.",
            )
        )
    if verb in _KNOWN_VERBS and source.chance(0.35):
        return source.pick(
            (
                f"{capital(verb)} the {noun} with {details}.",
                f"{capital(verb)} {_article(noun)} {noun}. {details}",
            )
        )
    return source.pick(
        (
            f"Please {verb} the {noun}: {details}",
            f"I want to {verb} the {noun} with {details}.",
            f"Can you {verb} the {noun}? {details}",
            f"Call {name} with {details}.",
        )
    )


def _result(source: Source) -> Any:
    kind = source.random.random()
    if kind < 0.25:
        return source.pick(("ok", "done", "sent", "saved", "ok"))
    if kind < 0.35:
        return {
            "error": source.pick(("not found", "no access", "too many requests", f"no such {source.thing()}"))
        }
    given = parameters(source, source.random.randint(1, 2), nested=False)
    return {p.key: p.value for p in given if not isinstance(p.value, list)} or {
        "count": source.integer(1, 99)
    }


def _others(source: Source, wishes: Sequence[Wish], least: int = 0, most: int = 3) -> list[dict[str, Any]]:
    """The wishes' tools among others, shuffled; each tool once."""
    declared = {w.name: w.declared for w in wishes}
    for _ in range(source.random.randint(least, most)):
        other = wish(source, list(declared), short=True)
        declared[other.name] = other.declared
    return source.random.sample(list(declared.values()), len(declared))


def _keys(arguments: dict[str, Any]) -> str:
    return f"with {listing(list(arguments))}" if arguments else "with no argument"


def _call_task(skill: str, body: dict[str, Any], wishes: Sequence[Wish]) -> Task:
    names = list(dict.fromkeys(w.name for w in wishes))
    if len(wishes) == 1:
        facts = f"The tool fits what the user wants. I call it {_keys(wishes[0].arguments)}."
        check = "Then I wait for the result."
    else:
        facts = f"That makes {len(wishes)} calls, which do not depend on each other."
        check = "I make them together and wait for the results."
    return Task(skill, body, f"I call {listing(names)}.", facts, check, calls=tuple(w.call for w in wishes))


def single_call(source: Source) -> Task:
    wanted = wish(source)
    body: dict[str, Any] = {"tools": _others(source, [wanted]), "messages": [user(wanted.text)]}
    if source.chance(0.2):
        body["messages"].insert(0, {"role": "system", "content": source.pick(("Use the tools.", "You are a helpful assistant.", f"You work for {source.name()}."))})  # fmt: skip
    if source.chance(0.15):
        body["tool_choice"] = "required"
    return _call_task("tool", body, [wanted])


def parallel_calls(source: Source) -> Task:
    wishes = _parallel(source)
    texts = [w.text for w in wishes if w.text]
    body = {"tools": _others(source, wishes, 0, 2), "messages": [user(_joined(source, texts))]}
    return _call_task("parallel", body, wishes)


def _joined(source: Source, texts: Sequence[str]) -> str:
    if source.chance(0.5):
        return " ".join(text if text[-1] in ".?!" else f"{text}." for text in texts)
    return " Also: ".join(texts)


def _parallel(source: Source) -> list[Wish]:
    """The same tool for several values, or different tools."""
    if source.chance(0.4):
        tool = source.pick([t for t in EVERYDAY if t.name in ("get_weather", "get_time", "find_user", "get_stock_price", "set_alarm")])  # fmt: skip
        schema = {"type": "object", "properties": tool.properties, "required": list(tool.properties)}
        declared = _declared(tool.name, tool.description, schema)
        (key,) = tool.properties
        different = {v[key]: v for v in (tool.values(source) for _ in range(source.pick((2, 2, 3))))}
        values = list(different.values())
        text = source.pick(tool.questions).format(**{key: listing([v[key] for v in values])})
        return [Wish(declared, text if i == 0 else "", v, tool.result(source)) for i, v in enumerate(values)]
    wishes: list[Wish] = []
    for _ in range(source.pick((2, 2, 3))):
        wishes.append(wish(source, [w.name for w in wishes], short=True))
    return wishes


def _history(source: Source, wishes: Sequence[Wish], reasoning: str) -> list[dict[str, Any]]:
    """The calls and their results."""
    ids = [f"call_{source.random.randrange(10**6)}_{i}" for i in range(len(wishes))]
    calls = [
        {"id": i, "type": "function", "function": {"name": w.name, "arguments": json.dumps(w.arguments, ensure_ascii=False)}}
        for i, w in zip(ids, wishes, strict=True)
    ]  # fmt: skip
    results = [
        {"role": "tool", "tool_call_id": i, "content": w.result if isinstance(w.result, str) else json.dumps(w.result)}
        for i, w in zip(ids, wishes, strict=True)
    ]  # fmt: skip
    return [
        {"role": "assistant", "reasoning_content": reasoning, "content": "", "tool_calls": calls},
        *results,
    ]


def answer_of(result: Any) -> str:
    """The sentence that tells a result."""
    if isinstance(result, dict):
        if "error" in result:
            return f"It failed: {result['error']}."
        pairs = [f"the {key.replace('_', ' ')} is {_plain(value)}" for key, value in result.items()]
        return f"{capital(listing(pairs))}."
    if result in ("ok", "done", "sent", "saved"):
        return "Done."
    return f"The result is {_plain(result)}."


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def result_answer(source: Source) -> Task:
    wishes = [wish(source)] if source.chance(0.7) else _parallel(source)
    shown = [w for w in wishes if w.text]
    ask = user(_joined(source, [w.text for w in shown]))
    before = _call_task("result", {}, wishes).reasoning(source.pick(("low", "high", "max")))
    body = {"tools": _others(source, wishes, 0, 2), "messages": [ask, *_history(source, wishes, before)]}
    if len(wishes) == 1:
        content, facts = answer_of(wishes[0].result), "It came from the tool, and I tell it in a sentence."
    else:
        content = " ".join(f"{n}. {answer_of(w.result)}" for n, w in enumerate(wishes, start=1))
        facts = f"There are {len(wishes)} results, and I tell them in their order."
    return Task("result", body, "I have the result.", facts, "No more calls are needed.", content)


def chain(source: Source) -> Task:
    """Find something, then use its id: two calls after each other, then the answer."""
    finder = source.pick(("find", "get", "search", "lookup"))
    noun = (
        source.thing()
        if source.chance(0.6)
        else source.pick(("user", "order", "account", "file", "contact", "event"))
    )
    verb = source.pick(("delete", "open", "print", "cancel", "share", "lock", "update", "track"))
    name, number = source.pick((source.name, source.made_up))(), source.integer(2, 9999)
    find = Wish(
        _declared(f"{finder}_{noun}", f"{capital(finder)} {_article(noun)} {noun} by name", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}),
        "", {"name": name}, {"id": number},
    )  # fmt: skip
    use = Wish(
        _declared(f"{verb}_{noun}", f"{capital(verb)} {_article(noun)} {noun}", {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}),
        "", {"id": number}, source.pick(("ok", "done")),
    )  # fmt: skip
    text = source.pick(
        (
            f"{capital(finder)} the {noun} {name} and {verb} it.",
            f"{capital(verb)} the {noun} {name}.",
            f"First {finder} the {noun} {name}, then {verb} it.",
        )
    )
    step = source.random.randrange(3)
    messages: list[dict[str, Any]] = [user(text)]
    first = _call_task("chain", {}, [find])
    effort = source.pick(("low", "high", "max"))
    if step > 0:
        messages += _history(source, [find], first.reasoning(effort))
    second = Task(
        "chain",
        {},
        f"I call {use.name}.",
        "The first result has the id that this tool needs.",
        "Then I wait for the result.",
        calls=(use.call,),
    )
    if step > 1:
        messages += _history(source, [use], second.reasoning(effort))
    last = Task(
        "chain",
        {},
        "I have the result.",
        "It came from the tool, and I tell it in a sentence.",
        "No more calls are needed.",
        "Done.",
    )
    body = {"tools": _others(source, [find, use], 0, 2), "messages": messages}
    return replace((first, second, last)[step], body=body)


def dynamic_tool(source: Source) -> Task:
    """The tool is declared by a system message, at the start or after some talk."""
    wanted = wish(source)
    dynamic = _others(source, [wanted], 0, 1)
    messages: list[dict[str, Any]] = []
    if source.chance(0.6):
        talk = source.pick((greeting, echo))(source)
        effort = source.pick(("low", "high", "max"))
        messages += talk.body["messages"]
        messages.append(
            {"role": "assistant", "reasoning_content": talk.reasoning(effort), "content": talk.content}
        )
    messages += [{"role": "system", "tools": dynamic}, user(wanted.text)]
    body: dict[str, Any] = {"messages": messages}
    if source.chance(0.3):
        taken = [tool["function"]["name"] for tool in dynamic]
        body["tools"] = [wish(source, taken, short=True).declared]
    return _call_task("dynamic", body, [wanted])


def no_call(source: Source) -> Task:
    """Tools are there, but the question needs none, or they are forbidden."""
    if source.chance(0.35):
        wanted = wish(source)
        body = {
            "tools": _others(source, [wanted], 0, 2),
            "messages": [user(wanted.text)],
            "tool_choice": "none",
        }
        return Task(
            "no_call",
            body,
            "I may not call tools.",
            "The system says that I must not call any.",
            "So I only say that.",
            "I cannot call tools now.",
        )
    task = source.pick((greeting, echo, arithmetic))(source)
    taken = [t for t in _others(source, [], 1, 3) if t["function"]["name"] not in ("add", "multiply")]
    return replace(task, skill="no_call", body={**task.body, **({"tools": taken} if taken else {})})
