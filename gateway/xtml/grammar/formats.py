"""The formats of JSON schema that a grammar can hold, as patterns."""

from __future__ import annotations

from typing import Any

from gateway.xtml.grammar.ranges import UnsupportedPattern

_CLOCK = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_BYTE = r"(25[0-5]|2[0-4]\d|1?\d?\d)"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_FORMATS = {
    "date": f"^{_DAY}$",
    "time": f"^{_CLOCK}$",
    "date-time": f"^{_DAY}T{_CLOCK}$",
    "email": rf"^[\w.!#$%&'*+/=?^`{{|}}~-]+@{_LABEL}(\.{_LABEL})*$",
    "hostname": rf"^{_LABEL}(\.{_LABEL})*$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "uri": r"^[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~]+$",
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}


def pattern_of_format(name: Any) -> str:
    """Raises UnsupportedPattern for a name that is not known."""
    if not isinstance(name, str) or name not in _FORMATS:
        raise UnsupportedPattern(f"{name!r} is not known")
    return _FORMATS[name]
