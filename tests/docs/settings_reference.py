"""The table in docs/reference/settings.md, made from the descriptions of `gateway.settings.Settings`.

    python -m tests.docs.settings_reference

writes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from gateway.settings import Settings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/settings.md"
_HEAD = "| setting | default | what it does |\n|---|---|---|\n"


def default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "unset"
    if value == "":
        return "empty"
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def table() -> str:
    rows = (
        f"| `{name}` | {default(field)} | {str(field.description).replace('|', '&#124;')} |\n"
        for name, field in Settings.model_fields.items()
    )
    return _HEAD + "".join(rows)


def renewed(text: str) -> str:
    """The document with the table as it should be. Raises ValueError where it has none."""
    start = text.index(_HEAD)
    rest = text[start:]
    end = len("".join(line for line in rest.splitlines(keepends=True)[: _rows(rest)]))
    return text[:start] + table() + rest[end:]


def _rows(text: str) -> int:
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
