"""`k3 profiles`: the launch profiles, what each needs and costs, and the engine arguments that result.

One name explains a profile; several are laid side by side, argument by argument.
"""

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
    names: Annotated[
        list[str] | None,
        typer.Argument(help="One profile, to be explained; several, to be compared; all if left out."),
    ] = None,
    engine_arg: EngineArgOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the launch profiles, explain one with its engine arguments, or compare several."""
    try:
        overrides = parse_engine_args(engine_arg)
        chosen = [get_profile(name) for name in names] if names else list(PROFILES.values())
    except (EngineStartError, SettingsError) as error:
        typer.echo(f"k3 profiles: {error}", err=True)
        raise typer.Exit(1) from None
    described = [describe(profile, overrides) for profile in chosen]
    if as_json:
        typer.echo(
            json.dumps(described[0] if names and len(names) == 1 else described, indent=2, ensure_ascii=False)
        )
    elif not names:
        width = max(map(len, PROFILES))
        for profile in chosen:
            typer.echo(f"{profile.name:{width}}  {profile.summary}")
            typer.echo(f"{'':{width}}  needs {profile.needs}")
        typer.echo(
            "\nk3 profiles NAME explains one, NAME NAME compares them; "
            "k3 doctor --profile NAME checks this machine for it."
        )
    elif len(names) > 1:
        for line in compare(described):
            typer.echo(line)
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
        "reasons": dict(profile.reasons),
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
        if key in described["reasons"] and key not in overrides:
            lines.append(f"      {described['reasons'][key]}")
    if left_out := [key for key in described["reasons"] if key not in described["engine_args"]]:
        lines += ["", "not set:"]
        for key in left_out:
            lines += [f"  {key}", f"      {described['reasons'][key]}"]
    lines += ["", "environment, where it is not set:"]
    lines += [f"  {key}={value}" for key, value in described["environment"].items()]
    return lines


def compare(described: list[dict[str, Any]]) -> list[str]:
    """What differs between profiles: an argument a block, a profile a line, with the reason if given."""
    lines = [f"{profile['name']}: {profile['summary']}" for profile in described]
    width = max(len(profile["name"]) for profile in described)
    every = dict.fromkeys(key for profile in described for key in profile["engine_args"])
    for key in every:
        values = [json.dumps(p["engine_args"][key]) if key in p["engine_args"] else "-" for p in described]
        if len(set(values)) == 1:
            continue
        lines += ["", key]
        for profile, value in zip(described, values, strict=True):
            reason = profile["reasons"].get(key)
            lines.append(f"  {profile['name']:{width}}  {value}" + (f"  ({reason})" if reason else ""))
    return [*lines, "", "- means: not set, vLLM decides. What is the same in all is not shown."]
