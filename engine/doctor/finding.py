"""What a check has to say."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`detail`: what is so. For all but "ok": `reason`, why that matters, and `remedy`, what to do about it.

    A problem keeps the profile from working; a warning may, or costs speed.
    """

    check: str
    level: Level
    detail: str
    reason: str = ""
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(check: str, detail: str) -> Finding:
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, reason: str, remedy: str) -> Finding:
    return Finding(check, "warning", detail, reason, remedy)


def problem(check: str, detail: str, reason: str, remedy: str) -> Finding:
    return Finding(check, "problem", detail, reason, remedy)


def size(n_bytes: float) -> str:
    """Bytes for people, in decimal units like those on the hardware's box."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.4g} {name}"
    return f"{n_bytes:.0f} B"
