"""`--engine-arg NAME=VALUE`, as several commands take it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from gateway.settings import SettingsError

EngineArgOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-arg", help="Engine argument that overrides the profile's, NAME=VALUE (JSON or text)."
    ),
]


def parse_engine_args(pairs: list[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` pairs as a dict; a value that is not JSON is text.

    Raises:
        SettingsError: a pair without `=` or name.
    """
    args: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingsError(f"--engine-arg {pair!r}: write NAME=VALUE, e.g. max_model_len=8192")
        try:
            args[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            args[name.replace("-", "_")] = value
    return args
