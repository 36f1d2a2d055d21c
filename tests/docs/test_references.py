"""The pages of docs/reference that are made from the code fit it."""

import re
from pathlib import Path

from gateway.settings import Settings
from tests.docs import command_line_reference, settings_reference

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_settings_is_made_from_their_descriptions() -> None:
    text = settings_reference.DOCUMENT.read_text()
    assert settings_reference.renewed(text) == text, "run `python -m tests.docs.settings_reference`"


def test_the_commands_are_documented_by_their_own_help() -> None:
    text = command_line_reference.DOCUMENT.read_text()
    assert command_line_reference.document() == text, "run `python -m tests.docs.command_line_reference`"


def test_settings_that_documents_name_exist() -> None:
    """After the word itself: "setting `x`", "settings `x` and `y`"."""
    named = {
        (path.name, name)
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for name in re.findall(r"\bsettings?\s+`([a-z_]+)", path.read_text())
    }
    assert len(named) > 10
    assert not [where for where in named if where[1] not in Settings.model_fields]
