"""docs/reference/command-line.md, made from the commands' own help.

    python -m tests.docs.command_line_reference

writes it anew.
"""

from __future__ import annotations

from pathlib import Path

import typer

from gateway.cli import app

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/command-line.md"
_HEAD = """# Command line

What `k3 COMMAND --help` says. `k3` is installed with the project; `python -m gateway.cli` is the same.
Commands that look at files need no server and no GPU.
"""


def document() -> str:
    sections = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        command.rich_markup_mode = None  # plain text
        context = command.make_context(f"k3 {name}", [], resilient_parsing=True, terminal_width=100)
        lines = [line.rstrip() for line in command.get_help(context).splitlines()]
        sections.append(f"\n## k3 {name}\n\n```text\n" + "\n".join(lines).strip() + "\n```\n")
    return _HEAD + "".join(sections)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
