"""Asks the running service held-out questions, greedily, and prints how many answers are exactly right.

    python -m engine.mini.evaluate --url http://127.0.0.1:8000/v1

Right means: the content is the wanted text and the calls are the wanted calls with the wanted arguments.
Nothing is constrained by a grammar except where the request itself asks for it (`--free` leaves that out).
A skill's line is printed as soon as its answers are there. An answer may be at most about twice as long as
the wanted one, so a model that rambles does not hold up the rest.
"""

from __future__ import annotations

import argparse
import json
import re
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from openai import OpenAI, OpenAIError

from engine.mini.files import with_media
from engine.mini.samples import EFFORTS, SKILLS
from engine.mini.skills.base import Source, Task

_WELL_FORMED = ("undeclared_tool", "call_not_allowed", "missing_argument", "type_mismatch")
"""Repairs of completions whose form is right."""


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

    def ask(self, body: dict[str, Any], effort: str, max_tokens: int) -> Answer:
        """One greedy completion."""
        try:
            request: Any = {"model": self.model, "temperature": 0, "max_tokens": max_tokens, **body}
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

    def repairs(self) -> Counter[str]:
        """The repairs of deviating completions that the service has counted, by kind.

        See docs/concepts/decoding.md.
        """
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics", timeout=10) as reply:
            found = re.findall(r'k3_decoder_repairs_total{kind="(\w+)"} (\S+)', reply.read().decode())
        return Counter({kind: int(float(count)) for kind, count in found})


def is_right(task: Task, answer: Answer) -> bool:
    wanted = [(name, arguments) for name, arguments in task.calls]
    return not answer.problem and answer.content == task.content and answer.calls == wanted


def token_limit(task: Task, effort: str) -> int:
    """Enough for the right answer, whose tokens are a character long or longer, and its markup."""
    calls = sum(60 + 30 * len(arguments) + len(json.dumps(arguments)) for _, arguments in task.calls)
    return 60 + len(task.reasoning(effort)) + len(task.content) + calls


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

    def answer(case: tuple[Task, str]) -> Answer:
        task, effort = case
        body = with_media(task)
        if given.free:
            body = _without_constraints(body)
        return service.ask(body, effort, token_limit(task, effort))

    with ThreadPoolExecutor(given.concurrency) as pool:
        cases = {skill: _cases(skill, given.cases) for skill in given.skills}
        asked = {skill: [pool.submit(answer, case) for case in cases[skill]] for skill in given.skills}
        triples = [
            [pool.submit(answer, (task, effort)) for effort in ("low", "high", "max")]
            for task in _triples(given.skills, given.cases)
        ]
        details: defaultdict[str, list[bool]] = defaultdict(list)
        problems: list[str] = []
        _print_row("skill", "right")
        for skill in given.skills:
            answers = [future.result() for future in asked[skill]]
            hits = [is_right(task, got) for (task, _), got in zip(cases[skill], answers, strict=True)]
            _print_score(skill, hits)
            for (task, effort), right in zip(cases[skill], hits, strict=True):
                details[f"effort {effort}"].append(right)
                if task.attribute:
                    details[f"{skill}: {task.attribute}"].append(right)
            if given.wrong:
                _print_wrong(cases[skill], answers)
            problems += [got.problem for got in answers if got.problem]
        for name, hits in [
            ("all skills", [h for e in EFFORTS for h in details[f"effort {e}"]]),
            *sorted(details.items()),
        ]:
            _print_score(name, hits)
        lengths = [[len(future.result().reasoning) for future in triple] for triple in triples]
    rising = [low < high < most for low, high, most in lengths]
    _print_score("reasoning low < high < max", rising)
    n_cases = sum(map(len, cases.values()))
    _print_row("did not end by themselves", f"{len(problems)}/{n_cases} {sorted(set(problems))[:3]}")
    repairs = service.repairs() - before
    malformed = {kind: n for kind, n in repairs.items() if kind not in _WELL_FORMED}
    _print_row("repairs of malformed completions", f"{sum(malformed.values())} {malformed or ''}")
    unfit = {kind: n for kind, n in repairs.items() if kind in _WELL_FORMED}
    _print_row("calls that do not fit their tools", f"{sum(unfit.values())} {unfit or ''}")


def _cases(skill: str, n: int) -> list[tuple[Task, str]]:
    """Efforts take turns; a quarter of the cases do not think."""
    return [(task, EFFORTS[number % 4]) for number, task in enumerate(held_out_tasks(skill, n))]


def _triples(skills: list[str], n: int) -> list[Task]:
    source = Source("triples", held_out=True)
    return [SKILLS[skills[i % len(skills)]][0](source) for i in range(n)]


def _print_row(name: str, value: str) -> None:
    print(f"{name:34}{value}", flush=True)


def _print_score(name: str, hits: Sequence[bool]) -> None:
    share = f"  {100 * sum(hits) / len(hits):.0f} %" if hits else ""
    _print_row(name, f"{sum(hits)}/{len(hits)}{share}")


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
