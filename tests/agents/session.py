"""What the scripted model does in an agent's session, turn by turn, with the tools that the agent declares.

The job is always the same: `shop.py` has steps that say "todo". The model reads the file, and for each step
edits it to "done" and runs the file. Every result is checked when it comes back in the next prompt, and so is
the thinking of every earlier turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jsonschema

from gateway.xtml import Message, ToolCall
from tests.agents.prompt import Seen

FILE = "shop.py"
TASK = f"Please finish the steps of {FILE}, one at a time, and run it after each."
ANSWER = "All steps of the shop are done."

_PATHS = ("file_path", "filePath", "path", "absolute_path")
_OLD = ("old_string", "oldString", "oldText", "old_str")
_NEW = ("new_string", "newString", "newText", "new_str")
_COMMANDS = ("command", "cmd")


@dataclass(frozen=True)
class Step:
    """One thing to do. `expected` is a part of the tool's result."""

    kind: Literal["read", "edit", "run"]
    expected: str
    number: int = 0


def steps(n_edits: int) -> list[Step]:
    """Read, then edit, run and look again for each edit, and one run at the end: 2 + 3 * n_edits turns."""
    row = [Step("read", 'step_1 = "todo"')]
    for number in range(1, n_edits + 1):
        row.append(Step("edit", "", number))
        row.append(Step("run", f"{number} of {n_edits} done"))
        row.append(Step("read", f'step_{number} = "done"'))
    return [*row, Step("run", f"{n_edits} of {n_edits} done")]


def program(n_edits: int, word: str = "todo", n_comments: int = 0) -> str:
    """The text of `shop.py`. Comments make it long."""
    names = [f"step_{number}" for number in range(1, n_edits + 1)]
    lines = [f'{name} = "{word}"' for name in names]
    lines += [f"# {n}: the shop sells apples, pears and plums by weight" for n in range(n_comments)]
    lines += [f"row = [{', '.join(names)}]", f'print(row.count("done"), "of {n_edits} done")', ""]
    return "\n".join(lines)


@dataclass
class Hands:
    """Does steps with an agent's tools, found by what their schemas are able to say."""

    tools: dict[str, dict[str, Any]]
    folder: Path

    def call(self, step: Step, number: int) -> ToolCall:
        """The call for `step`; its arguments keep the declared schema."""
        name, arguments = getattr(self, f"_{step.kind}")(step)
        for key in self.tools[name].get("required", []):
            if key not in arguments:
                arguments[key] = _filler(self.tools[name]["properties"][key])
        jsonschema.validate(arguments, self.tools[name])
        return ToolCall(f"{name}:{number}", name, arguments)

    def _read(self, step: Step) -> tuple[str, dict[str, Any]]:
        del step
        found = self._find(("read", "read_file"), _PATHS)
        if found is None:
            return self._shell(f"cat {FILE}")
        name, path = found
        return name, {path: str(self.folder / FILE)}

    def _edit(self, step: Step) -> tuple[str, dict[str, Any]]:
        old, new = f'step_{step.number} = "todo"', f'step_{step.number} = "done"'
        found = self._find(("edit", "replace", "strreplacefile"), _PATHS)
        if found is None:
            patch = f"*** Begin Patch\n*** Update File: {FILE}\n@@\n-{old}\n+{new}\n*** End Patch\n"
            if "apply_patch" in self.tools:
                return "apply_patch", {"input": patch}
            return self._shell(f"apply_patch <<'EOF'\n{patch}EOF\n")
        name, path = found
        properties = self.tools[name]["properties"]
        arguments: dict[str, Any] = {path: str(self.folder / FILE)}
        if "edits" in properties:
            inner = properties["edits"]["items"]["properties"]
            arguments["edits"] = [{_one(_OLD, inner): old, _one(_NEW, inner): new}]
        else:
            arguments |= {_one(_OLD, properties): old, _one(_NEW, properties): new}
        return name, arguments

    def _run(self, step: Step) -> tuple[str, dict[str, Any]]:
        del step
        return self._shell(f"python3 {FILE}")

    def _shell(self, command: str) -> tuple[str, dict[str, Any]]:
        found = self._find(("bash", "exec_command", "shell", "run_shell_command"), _COMMANDS)
        assert found, f"no shell among {sorted(self.tools)}"
        return found[0], {found[1]: command}

    def _find(self, names: Sequence[str], keys: Sequence[str]) -> tuple[str, str] | None:
        """The first declared tool of these names, and which of `keys` it has."""
        by_name = {name.lower(): name for name in self.tools}
        for wanted in names:
            if wanted in by_name:
                name = by_name[wanted]
                return name, _one(keys, self.tools[name]["properties"])
        return None


def _one(keys: Sequence[str], properties: dict[str, Any]) -> str:
    found = [key for key in keys if key in properties]
    assert found, f"none of {keys} in {sorted(properties)}"
    return found[0]


def _filler(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    return {"boolean": False, "number": 1, "integer": 1, "array": [], "object": {}}.get(
        schema.get("type", ""), "x"
    )


@dataclass
class Session:
    """The script of one agent's session.

    turns:    (prompt length, cached tokens) of each main request, filled in by the engine
    problems: what was missing in a prompt: a result, or an earlier turn's thinking
    n_compacted: how often the agent asked for a summary of the session
    """

    row: list[Step]
    folder: Path
    turns: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    n_compacted: int = 0
    reached: int = 0

    def answer(self, messages: Sequence[Seen], tools: dict[str, dict[str, Any]]) -> tuple[Message, bool]:
        """What the model says to a prompt with these messages, and whether it is one of the session's turns.

        Agents also ask for a title, and for a summary when the context is full. The summary says how far
        the session was, and the script goes on from there.
        """
        spoken = [m for m in messages if m.role in ("user", "tool")]
        last = spoken[-1] if spoken else Seen("user", {})
        if last.role == "user" and "summar" in last.text and not _PROGRESS.search(last.text):
            self.n_compacted += 1
            summary = f"<summary>{TASK} Progress: {self.reached} turns.</summary>"
            return Message("assistant", (summary,), reasoning="A summary is wanted."), False
        about = [m.text for m in messages if m.role in ("user", "system")]
        if not tools or not any(TASK in text for text in about):
            return Message("assistant", ("Shop steps",), reasoning="A short title will do."), False
        progress = [int(found[1]) for text in about for found in _PROGRESS.finditer(text)]
        number = self._check(messages, max(progress, default=0))
        self.reached = max(self.reached, number)
        if number >= len(self.row) or self.problems:
            return Message("assistant", (ANSWER,), reasoning="Nothing is left to do."), True
        call = Hands(tools, self.folder).call(self.row[number], number)
        return Message("assistant", (), reasoning=_thought(number), tool_calls=(call,)), True

    def _check(self, messages: Sequence[Seen], number: int) -> int:
        """Which turn is next, where `number` were summed up; notes what the prompt lacks."""
        done = [message for message in messages if message.role == "assistant" and message.calls]
        results = [message for message in messages if message.role == "tool"]
        if done:
            number = max(number, self._turn(done[-1]) + 1)
        for index, message in enumerate(reversed(done), start=1):
            if message.thinking != _thought(number - index):
                self.problems.append(
                    f"turn {number}: thinking of turn {number - index} came back as {message.thinking!r}"
                )
        if len(results) != len(done):
            self.problems.append(f"turn {number}: {len(done)} calls, {len(results)} results")
        elif results and self.row[number - 1].expected not in results[-1].text:
            self.problems.append(f"turn {number}: {self.row[number - 1]} gave {results[-1].text[:500]!r}")
        return number

    def _turn(self, message: Seen) -> int:
        found = re.match(r"This is turn (\d+)\.", message.thinking or "")
        if found is None:
            self.problems.append(f"a turn came back with the thinking {message.thinking!r}")
            return 0
        return int(found[1])


_PROGRESS = re.compile(r"Progress: (\d+) turns\.")


def _thought(number: int) -> str:
    return f"This is turn {number}. The file has more steps, so I go on with the next one."
