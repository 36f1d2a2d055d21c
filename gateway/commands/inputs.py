"""What the commands read, and how they end when it cannot be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

from engine.checkpoint import locate
from engine.errors import EngineStartError


def fail(message: str) -> NoReturn:
    """One line on stderr, exit status 1."""
    typer.echo(message, err=True)
    raise typer.Exit(1)


def name_of(file: str) -> str:
    """What messages call `file`; - is standard input."""
    return "standard input" if file == "-" else file


def read_json(file: str) -> Any:
    """The JSON value in `file`; ends the command if there is none."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        fail(f"{name_of(file)}: cannot be read ({error.strerror})")
    except (ValueError, RecursionError) as error:
        fail(f"{name_of(file)}: is not JSON ({error})")


def mini_checkpoint() -> Path:
    """The folder of the mini checkpoint, built on first use."""
    try:
        return locate(None, lambda line: typer.echo(line, err=True))
    except EngineStartError as error:
        fail(str(error))
