"""What a patch is: its switch, its parts, and for each part a probe and a way to apply it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from patches.checkpoint import CheckpointFacts

Setting = Literal["auto", "1", "0"]
Verdict = Literal["defect", "fixed", "absent"]

_MARK = "k3_patches"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe saw: the defect, code that is right, or no such code in this release."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True, slots=True)
class Part:
    """One defect. `probe` and `apply` import vLLM themselves; both may run any number of times."""

    name: str
    probe: Callable[[], Finding]
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Patch:
    """`excuse(facts)` says why a checkpoint does not need the patch, or None where it may need it.

    Facts are None where the checkpoint is unknown. `fixed_since` is the first release in which upstream has
    the fix. An `opt_in` patch is off under `auto`.
    """

    name: str
    switch: str
    fixes: str
    fixed_since: str | None
    parts: tuple[Part, ...]
    excuse: Callable[[CheckpointFacts | None], str | None]
    opt_in: bool = False


def wrap(
    owner: Any, attribute: str, patch: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replace `owner.attribute` by `make(original)`, once per patch however often it is called."""
    original = getattr(owner, attribute)
    marks: frozenset[str] = getattr(original, _MARK, frozenset())
    if patch in marks:
        return
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, _MARK, marks | {patch})
    setattr(owner, attribute, wrapper)


def wrap_everywhere(
    module: Any, function: str, patch: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """`wrap`, and rebind the name in every vLLM module that imported the function by name."""
    original = getattr(module, function)
    wrap(module, function, patch, make)
    replacement = getattr(module, function)
    for name, other in list(sys.modules.items()):
        if name.startswith("vllm.") and getattr(other, "__dict__", {}).get(function) is original:
            setattr(other, function, replacement)
