"""The `k3` command: one sub-command a module under `gateway.commands`."""

from __future__ import annotations

import importlib

import typer

COMMANDS = ("serve", "render", "decode", "see", "patches", "profiles", "doctor")

app = typer.Typer(
    name="k3",
    help="Serve Kimi K3, and look at what it reads and writes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for name in COMMANDS:
    importlib.import_module(f"gateway.commands.{name}").register(app)


def main() -> None:
    """Entry point of the `k3` script."""
    app()


if __name__ == "__main__":
    main()
