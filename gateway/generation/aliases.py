"""Other names by which clients may ask for the model (setting `model_aliases`).

Agents ask for the models they know (`gpt-*`, `claude-*`), and send small background jobs to a small model's
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from gateway.generation.options import Request
from gateway.settings import ModelAlias


class ModelAliases:
    """Patterns with `*`, `?` and `[...]`; case does not matter, and the first that matches a name counts."""

    def __init__(self, aliases: Mapping[str, ModelAlias]) -> None:
        self._aliases = [(pattern.lower(), alias) for pattern, alias in aliases.items()]

    def find(self, name: str) -> ModelAlias | None:
        """The alias that `name` is."""
        lowered = name.lower()
        return next((alias for pattern, alias in self._aliases if fnmatchcase(lowered, pattern)), None)

    def apply(self, request: Request) -> Request:
        """The request with the effort and thinking that its model's alias sets, whatever the client said."""
        alias = self.find(request.model)
        if alias is None or (alias.effort is None and alias.thinking is None):
            return request
        conversation = request.conversation
        thinking = conversation.thinking if alias.thinking is None else alias.thinking
        effort = (alias.effort or conversation.effort or "max") if thinking else None
        return replace(request, conversation=replace(conversation, thinking=thinking, effort=effort))
