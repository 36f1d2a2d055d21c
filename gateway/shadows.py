"""Whether somebody else's package stands where one of this project's belongs.

`media`, `engine` and `patches` are common names: a folder of that name that is earlier on Python's path is
imported instead, and the errors that follow say nothing of it. So the command line and vLLM's processes look
first. (`gateway` itself cannot look for itself: docs/guides/start.md.)
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

PACKAGES = ("engine", "media", "patches")
_HOME = Path(__file__).resolve().parents[1]


class ShadowedPackageError(ImportError):
    """Another package is imported in place of one of this project's."""


def check_shadows(home: Path = _HOME) -> None:
    """Look where Python would import each package from; `home` is the folder that holds `gateway`.

    Raises:
        ShadowedPackageError: names the folder, the package it stands for, and the remedy.
    """
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if spec is not None and spec.origin is not None:
            places = [str(Path(spec.origin).parent)]
        found = [Path(place).resolve() for place in places]
        if home / name in found:
            continue
        where = found[0] if found else "nowhere"
        raise ShadowedPackageError(
            f"the folder {where} shadows k3-gateway's package {name!r} ({home / name}): it comes first on "
            "Python's path. Start from another folder, rename it, or take its parent out of PYTHONPATH."
        )


def register() -> None:
    """vLLM's plugin: looks for shadows, then registers what runs in vLLM's processes."""
    check_shadows()
    from engine.plugin import register as register_in_engine

    register_in_engine()


def exit_if_shadowed(say: Callable[[str], object] = sys.stderr.write) -> None:
    """For the command line: one line and exit status 1."""
    try:
        check_shadows()
    except ShadowedPackageError as error:
        say(f"k3: {error}\n")
        raise SystemExit(1) from None
