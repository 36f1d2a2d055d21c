"""`k3 patches`: what the installed vLLM needs, decided here and now by the patches' own probes."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

_COLOURS = {"applied": "green", "already fixed": "cyan", "failed": "bold red"}


def _show(model: str | None, rows: list[dict], engine_version: str, version: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"vLLM {engine_version}, patch set {version}, checkpoint {model or 'unknown'}",
        title_justify="left",
    )
    for column in ("patch", "state", "evidence", "what it fixes", "fixed in vLLM"):
        table.add_column(column, overflow="fold")
    for row in rows:
        colour = _COLOURS.get(row["state"], "dim")
        table.add_row(
            f"{row['patch']}\n[dim]{row['switch']}[/dim]",
            f"[{colour}]{row['state']}[/{colour}]",
            row["evidence"],
            row["fixes"],
            row["fixed_since"] or "not yet",
        )
        for name, part in row["parts"].items():
            table.add_row(f"  [dim]{name}[/dim]", part["state"], f"[dim]{part['evidence']}[/dim]")
    Console().print(table)


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
            facts = CheckpointFacts.read(model)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"no readable config.json: {error}", param_hint="--model") from error
    os.environ.pop("K3_MODEL", None)
    try:
        report = apply_all(facts)
    except PatchError as error:
        typer.echo(f"k3 patches: {error}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(report.rows(), indent=2, ensure_ascii=False))
    else:
        _show(report.model, report.rows(), report.engine_version, report.version)
    if report.failed:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(patches)
