"""Asks the running service held-out questions, greedily, and prints how many answers are exactly right.

    python -m engine.mini.evaluate --url http://127.0.0.1:8000/v1

Right means: the content is the wanted text and the calls are the wanted calls with the wanted arguments.
Nothing is constrained by a grammar except where the request itself asks for it (`--free` leaves that out).
"""

from __future__ import annotations

import argparse
import json
import re
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from openai import OpenAI, OpenAIError

from engine.mini.files import with_media
from engine.mini.samples import EFFORTS, SKILLS
from engine.mini.skills.base import Source, Task

MAX_TOKENS = 600


@dataclass(frozen=True)
class Answer:
    """`problem` is empty for an answer that ended by itself."""

    reasoning: str
    content: str
    calls: list[tuple[str, Any]]
    problem: str = ""


class Service:
    """The service under test, by the OpenAI SDK."""

    def __init__(self, url: str, model: str, api_key: str) -> None:
        self.url, self.model = url, model
        client = OpenAI(base_url=url, api_key=api_key, timeout=600, max_retries=0)
        self._create: Any = client.chat.completions.create

    def ask(self, body: dict[str, Any], effort: str) -> Answer:
        """One greedy completion."""
        try:
            request: Any = {"model": self.model, "temperature": 0, "max_tokens": MAX_TOKENS, **body}
            reply = self._create(**request, reasoning_effort=effort)
        except OpenAIError as error:
            return Answer("", "", [], f"{type(error).__name__}: {error}"[:200])
        choice = reply.choices[0]
        calls = []
        for call in choice.message.tool_calls or []:
            try:
                calls.append((call.function.name, json.loads(call.function.arguments)))
            except ValueError:
                calls.append((call.function.name, call.function.arguments))
        reasoning = getattr(choice.message, "reasoning_content", None) or ""
        ended = choice.finish_reason in ("stop", "tool_calls")
        problem = "" if ended else f"finish_reason {choice.finish_reason}"
        return Answer(reasoning, choice.message.content or "", calls, problem)

    def repairs(self) -> float | None:
        """All repairs of malformed completions that the service has counted; None if it does not say."""
        try:
            with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics", timeout=10) as reply:
                lines = reply.read().decode().splitlines()
        except OSError:
            return None
        found = [line for line in lines if re.match(r"\w*repairs?(_total)?(\{| )", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found) if found else None


def is_right(task: Task, answer: Answer) -> bool:
    wanted = [(name, arguments) for name, arguments in task.calls]
    return not answer.problem and answer.content == task.content and answer.calls == wanted


def held_out_tasks(skill: str, n: int) -> list[Task]:
    """The same `n` tasks every time."""
    source = Source(f"evaluation {skill}", held_out=True)
    return [SKILLS[skill][0](source) for _ in range(n)]


def _without_constraints(body: dict[str, Any]) -> dict[str, Any]:
    """`strict: false`, so that a schema is only asked for in the prompt."""
    if (wanted := body.get("response_format", {})).get("type") != "json_schema":
        return body
    schema = {**wanted["json_schema"], "strict": False}
    return {**body, "response_format": {**wanted, "json_schema": schema}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="kimi-k3")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--cases", type=int, default=40, help="cases per skill, and triples of efforts")
    parser.add_argument("--skills", nargs="*", default=list(SKILLS))
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--free", action="store_true", help="ask for JSON schemas with strict: false")
    parser.add_argument("--wrong", action="store_true", help="print the answers that were wrong")
    given = parser.parse_args()
    service = Service(given.url, given.model, given.api_key)
    before = service.repairs()
    cases = [(task, effort) for skill in given.skills for task, effort in _cases(skill, given.cases)]

    def answer(case: tuple[Task, str]) -> Answer:
        body = with_media(case[0])
        return service.ask(_without_constraints(body) if given.free else body, case[1])

    with ThreadPoolExecutor(given.concurrency) as pool:
        answers = list(pool.map(answer, cases))
        triples = _triples(given.skills, given.cases)
        lengths = list(pool.map(lambda t: [len(answer((t, e)).reasoning) for e in EFFORTS[:3]], triples))
    _print_table(cases, answers)
    if given.wrong:
        _print_wrong(cases, answers)
    rising = sum(low < high < most for low, high, most in lengths)
    print(f"reasoning low < high < max        {rising}/{len(lengths)}")
    problems = [a.problem for a in answers if a.problem]
    print(f"did not end by themselves         {len(problems)}/{len(answers)} {sorted(set(problems))[:3]}")
    after = service.repairs()
    said = "the service does not say" if after is None else f"{after - (before or 0):.0f}"
    print(f"repairs of malformed completions  {said}")


def _cases(skill: str, n: int) -> list[tuple[Task, str]]:
    """Efforts take turns; a quarter of the cases do not think."""
    return [(task, EFFORTS[number % 4]) for number, task in enumerate(held_out_tasks(skill, n))]


def _triples(skills: list[str], n: int) -> list[Task]:
    source = Source("triples", held_out=True)
    return [SKILLS[skills[i % len(skills)]][0](source) for i in range(n)]


def _print_table(cases: list[tuple[Task, str]], answers: list[Answer]) -> None:
    rows: defaultdict[str, list[bool]] = defaultdict(list)
    details: defaultdict[str, list[bool]] = defaultdict(list)
    for (task, effort), answer in zip(cases, answers, strict=True):
        right = is_right(task, answer)
        rows[task.skill].append(right)
        details[f"effort {effort}"].append(right)
        if task.attribute:
            details[f"{task.skill}: {task.attribute}"].append(right)
    print(f"{'skill':34}right")
    for name, hits in [*rows.items(), *sorted(details.items())]:
        print(f"{name:34}{sum(hits)}/{len(hits)}  {100 * sum(hits) / len(hits):.0f} %")


def _print_wrong(cases: list[tuple[Task, str]], answers: list[Answer]) -> None:
    for (task, effort), answer in zip(cases, answers, strict=True):
        if not is_right(task, answer):
            print(
                f"\n{task.skill} {task.attribute} at {effort}: {json.dumps(task.body['messages'][-1])[:300]}"
            )
            print(f"  wanted {task.content!r} {list(task.calls)}")
            print(f"  got    {answer.content!r} {answer.calls} {answer.problem} ({answer.reasoning!r})")
    print()


if __name__ == "__main__":
    main()
