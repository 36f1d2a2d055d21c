"""docs/settings.md fits the settings."""

from tests.docs.settings_reference import DOCUMENT, renewed


def test_the_table_of_settings_is_made_from_their_descriptions() -> None:
    text = DOCUMENT.read_text()
    assert renewed(text) == text, "run `python -m tests.docs.settings_reference`"
