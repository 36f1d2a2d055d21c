"""`k3 profiles`: the launch profiles, what each needs and costs, and the engine arguments that result."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from engine.errors import EngineStartError
from engine.profiles import COMMON_ENVIRONMENT, PROFILES, Profile, get_profile
from gateway.commands.engine_args import EngineArgOption, parse_engine_args
from gateway.settings import SettingsError


def register(app: typer.Typer) -> None:
    app.command("profiles")(profiles)


def profiles(
    name: Annotated[str | None, typer.Argument(help="One profile, to be explained; all if left out.")] = None,
    engine_arg: EngineArgOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the launch profiles, or explain one with the engine arguments that it results in."""
    try:
        overrides = parse_engine_args(engine_arg)
        chosen = list(PROFILES.values()) if name is None else [get_profile(name)]
    except (EngineStartError, SettingsError) as error:
        typer.echo(f"k3 profiles: {error}", err=True)
        raise typer.Exit(1) from None
    described = [describe(profile, overrides) for profile in chosen]
    if as_json:
        typer.echo(json.dumps(described if name is None else described[0], indent=2, ensure_ascii=False))
    elif name is None:
        width = max(map(len, PROFILES))
        for profile in chosen:
            typer.echo(f"{profile.name:{width}}  {profile.summary}")
            typer.echo(f"{'':{width}}  needs {profile.needs}")
        typer.echo("\nk3 profiles NAME explains one; k3 doctor --profile NAME checks this machine for it.")
    else:
        for line in explain(described[0], overrides):
            typer.echo(line)


def describe(profile: Profile, overrides: dict[str, Any]) -> dict[str, Any]:
    """A profile as plain JSON values; `engine_args` and `environment` are what a start would use."""
    return {
        "name": profile.name,
        "summary": profile.summary,
        "needs": profile.needs,
        "memory": profile.memory,
        "source": profile.source,
        "engine_args": profile.merged(overrides),
        "environment": {**COMMON_ENVIRONMENT, **profile.environment},
    }


def explain(described: dict[str, Any], overrides: dict[str, Any]) -> list[str]:
    """The same for people, line by line."""
    lines = [f"{described['name']}: {described['summary']}"]
    for title in ("needs", "memory", "source"):
        lines += ["", f"{title}: {described[title]}"]
    lines += ["", "engine arguments (* overridden here):"]
    for key, value in described["engine_args"].items():
        mark = "*" if key in overrides else " "
        lines.append(f"{mark} {key} = {json.dumps(value)}")
    lines += ["", "environment, where it is not set:"]
    lines += [f"  {key}={value}" for key, value in described["environment"].items()]
    return lines
