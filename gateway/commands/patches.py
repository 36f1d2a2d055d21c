"""`k3 patches`: what the installed vLLM needs, decided here and now by the patches' own probes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.checks import check_repository_name
from engine.errors import EngineStartError
from gateway.commands.inputs import fail

_COLOURS = {"applied": "green", "already fixed": "cyan", "failed": "bold red"}


def _show(model: str | None, rows: list[dict[str, Any]], engine_version: str, version: str) -> None:
    """A block a patch: it fits a terminal of any width, and a pipe."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)

    def indented(text: str, columns: int, style: str = "") -> None:
        console.print(Padding(Text(text, style), (0, 0, 0, columns)))

    indented(f"vLLM {engine_version}, patch set {version}, checkpoint {model or 'unknown'}", 0, "italic")
    for row in rows:
        console.print()
        title = Text.assemble(row["patch"], "  ", (row["state"], _COLOURS.get(row["state"], "dim")))
        console.print(title.append(f"  {row['switch']}", "dim"))
        indented(f"fixes: {row['fixes']}", 2)
        indented(f"evidence: {row['evidence']}", 2)
        indented(f"fixed in vLLM: {row['fixed_since'] or 'not yet'}", 2)
        for name, part in row["parts"].items():
            indented(f"{name}: {part['state']}; {part['evidence']}", 4, "dim")


def patches(
    model: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint folder or repository; without one every probe runs.", envvar="K3_MODEL"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one object a patch.")] = False,
) -> None:
    """Show the engine patches: which are needed with this vLLM, which are not, and why."""
    # vLLM logs to stdout by default, where the table (or JSON) goes.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from patches import CheckpointFacts, PatchError, apply_all

    facts = None
    if model:
        try:
            if not Path(model).is_dir():
                check_repository_name(model)
            facts = CheckpointFacts.read(model)
        except EngineStartError as error:
            fail(f"k3 patches: {error}")
        except (OSError, ValueError) as error:
            fail(f"k3 patches: {model} has no readable config.json ({error})")
    os.environ.pop("K3_MODEL", None)
    try:
        report = apply_all(facts)
    except PatchError as error:
        fail(f"k3 patches: {error}")
    if as_json:
        typer.echo(json.dumps(report.rows(), indent=2, ensure_ascii=False))
    else:
        _show(report.model, report.rows(), report.engine_version, report.version)
    if report.failed:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(patches)
