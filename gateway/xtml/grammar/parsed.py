"""Python's own parser of regular expressions, which has no public name: its only place in this project.

A parsed expression is a sequence of nodes, each an operation and its arguments.
"""

from __future__ import annotations

from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Node = tuple[Any, Any]

__all__ = ["Node", "ops", "parse"]


def parse(pattern: str) -> list[Node]:
    """Raises `re.error`, OverflowError, RecursionError or ValueError for what is not an expression."""
    return list(_parser.parse(pattern))
