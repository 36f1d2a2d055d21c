"""The `k3` command: one sub-command a module under `gateway.commands`."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Annotated

import typer

from gateway.shadows import exit_if_shadowed

COMMANDS = ("serve", "render", "decode", "see", "patches", "profiles", "doctor")

app = typer.Typer(
    name="k3",
    help="Serve Kimi K3, and look at what it reads and writes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def main_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version of k3-gateway and end.")
    ] = False,
) -> None:
    """Serve Kimi K3, and look at what it reads and writes."""
    if version:
        typer.echo(f"k3-gateway {importlib.metadata.version('k3-gateway')}")
        raise typer.Exit


exit_if_shadowed()  # before the commands import what may be shadowed
for name in COMMANDS:
    importlib.import_module(f"gateway.commands.{name}").register(app)


def main() -> None:
    """Entry point of the `k3` script."""
    app()


if __name__ == "__main__":
    main()
