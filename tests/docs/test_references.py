"""The pages of docs/reference that are made from the code fit it."""

from tests.docs import command_line_reference, settings_reference


def test_the_table_of_settings_is_made_from_their_descriptions() -> None:
    text = settings_reference.DOCUMENT.read_text()
    assert settings_reference.renewed(text) == text, "run `python -m tests.docs.settings_reference`"


def test_the_commands_are_documented_by_their_own_help() -> None:
    text = command_line_reference.DOCUMENT.read_text()
    assert command_line_reference.document() == text, "run `python -m tests.docs.command_line_reference`"
