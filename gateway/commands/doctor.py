"""`k3 doctor`: what on this machine would keep a profile from working, why, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from engine.doctor import Finding, examine
from engine.errors import EngineStartError
from engine.profiles import get_profile
from gateway.commands.engine_args import EngineArgOption, parse_engine_args
from gateway.settings import SettingsError, load_settings

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "problem": typer.colors.RED}


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    profile: Annotated[str | None, typer.Option(help="Launch profile. [default: the setting]")] = None,
    model: Annotated[
        str | None, typer.Option(help="Checkpoint folder or Hugging Face name. [default: the setting]")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address the service would listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port the service would listen on.")] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="Checkpoint folder that is known to work; its chat format is compared with the model's.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    engine_arg: EngineArgOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a finding.")] = False,
) -> None:
    """Check this machine for a profile. Exit status 0: it should work; 1: something will not."""
    try:
        settings = load_settings(
            profile=profile,
            model=model,
            host=host,
            port=port,
            engine_args=parse_engine_args(engine_arg) or None,
        )
        chosen = get_profile(settings.profile)
    except (SettingsError, EngineStartError) as error:
        typer.echo(f"k3 doctor: {error}", err=True)
        raise typer.Exit(1) from None
    findings = examine(chosen, settings.model, settings.engine_args, (settings.host, settings.port), baseline)
    problems = [finding for finding in findings if finding.level == "problem"]
    if as_json:
        document = {
            "profile": chosen.name,
            "ok": not problems,
            "findings": [finding.to_json() for finding in findings],
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _show(findings)
        typer.echo(_verdict(chosen.name, len(problems)))
    if problems:
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = typer.style(f"{finding.level:8}", fg=_COLOURS[finding.level])
        typer.echo(f"{level} {finding.check:{width}}  {finding.detail}")
        if finding.level != "ok":
            typer.echo(f"{'':{9 + width}}  why: {finding.reason}")
            typer.echo(f"{'':{9 + width}}  do:  {finding.remedy}")


def _verdict(name: str, n_problems: int) -> str:
    if not n_problems:
        return f"{name} should work here."
    return f"{name} will not work here: {n_problems} problem{'s' if n_problems > 1 else ''}."
