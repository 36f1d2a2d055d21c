"""Metadata that a known agent puts among its system text (docs/decisions.md#billing-line)."""

from __future__ import annotations

_BILLING = "x-anthropic-billing-header:"


def is_billing_line(text: str) -> bool:
    """Whether a system block is Claude Code's billing line, which says nothing to a model.

    Its suffix changes with the first message, so in the prompt it would end every prefix at its start.
    """
    return text.startswith(_BILLING) and "\n" not in text.strip()
