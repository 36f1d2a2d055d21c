"""Words by kind (data/words.txt), made-up words, and the constant note texts of the K3 format.

The notes stand here only as text that the vocabulary is learned on; prompts are rendered by `gateway.xtml`.
"""

from __future__ import annotations

import random
from pathlib import Path


def _read_words() -> dict[str, tuple[str, ...]]:
    kinds: dict[str, tuple[str, ...]] = {}
    for line in (Path(__file__).parent / "data" / "words.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            kind, _, words = line.partition(":")
            kinds[kind] = tuple(dict.fromkeys(words.split()))
    return kinds


WORDS = _read_words()

NOTES = (
    "# Tools\nHere are the available tools, described in JSONSchema.",
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.",
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response "
    "channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=max`.",
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
    "The system is invoked with `response_format=json_object`.\nYour response must be raw JSON data without "
    "markdown code blocks (```json) or any additional formatting.",
    "The system is invoked with `response_format=json_schema`.\n"
    "The JSON data must match the following schema:",
)

_ONSETS = (
    *"bcdfghjklmnprstvwz",
    *["br", "cl", "dr", "fl", "gr", "kr", "pl", "pr", "qu", "sh", "sk", "sl", "st", "th", "tr"],
)
_VOWELS = ["a", "e", "i", "o", "u", "a", "e", "i", "o", "u", "ai", "ea", "oo", "ou"]
_CODAS = ["", "", "", "", "l", "m", "n", "r", "s", "t", "x", "ck", "nd", "st"]


def syllable_word(source: random.Random, least: int = 2, most: int = 3) -> str:
    """A made-up word of `least` to `most` syllables, e.g. `trovel`; every draw is likely new."""
    return "".join(
        source.choice(_ONSETS) + source.choice(_VOWELS) + source.choice(_CODAS)
        for _ in range(source.randint(least, most))
    )
