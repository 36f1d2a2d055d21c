"""How a request is to be read, and what was found in it that its sender should be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# Of each kind. What is said goes into a reply header, and a request may hold a million of them.
_MAX_FINDINGS = 64
_MAX_PATH_CHARS = 200


@dataclass(slots=True)
class Reading:
    """One a request, whatever its wire format.

    strict_history: a result without its call, or a call without its result, is refused
    hosted_tools:   what becomes of tools that a hosted service runs itself, such as web search
    ignored:        fields, parts and tools that were sent and change nothing, by their paths
    unknown:        fields that no API this service knows of has, by their paths
    history:        what is odd about the history's calls and results
    """

    strict_history: bool = False
    hosted_tools: Literal["ignore", "refuse"] = "ignore"
    ignored: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def leave_out(self, path: str) -> None:
        """`path` was sent, is known, and changes nothing."""
        _add(self.ignored, path)

    def say(self, what: str) -> None:
        """A line about the history."""
        _add(self.history, what)

    def look_over(
        self, item: Mapping[str, Any], param: str, used: Iterable[str], without_effect: Iterable[str] = ()
    ) -> None:
        """Name the fields of an object at `param` that are not `used`; a null says nothing."""
        for name, value in item.items():
            if name in used or value is None:
                continue
            path = f"{param}.{name}" if param else str(name)
            if name in without_effect:
                self.leave_out(path)
            else:
                _add(self.unknown, path)


def _add(found: list[str], what: str) -> None:
    if len(found) < _MAX_FINDINGS:
        found.append(what[:_MAX_PATH_CHARS])
