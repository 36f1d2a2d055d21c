"""Is a checkpoint's format one that this project was checked against? By the files' content, never by a name.

What decides how prompts are written and completions read lies in a few small files: the rank file, the table
of special tokens, the media settings, and the Python and Jinja files that define the chat format. The first
three are known here and are compared value by value. Of the format files the project keeps no copy: they are
compared with those of another checkpoint that is known to work, where one is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.mini.config import MEDIA_PROC_CFG
from engine.mini.vocabulary import RANKS_FILE, SPECIAL_TOKENS

RANK_FILE_SHA256 = "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103"
"""Of the published K3's `tiktoken.model` (docs/format.md#rank-file)."""

CHECKED_REVISIONS = ("dc514c7", "9f62e4e9", "a590ce09", "f831ab66")
"""Of moonshotai/Kimi-K3: the chat format here is theirs (docs/format.md)."""

_FORMAT_SUFFIXES = (".py", ".jinja")
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a checkpoint's format.

    digest:      sha256 of its content in one spelling (first 12 digits), "" where it could not be read
    differences: from what is known, each a phrase for people; empty where it is the same
    remedy:      what to do about them
    """

    name: str
    digest: str
    differences: tuple[str, ...] = ()
    remedy: str = ""


def parts(folder: Path, baseline: Path | None = None) -> list[Part]:
    """The parts of the format of the checkpoint in `folder`; missing or unreadable files are differences.

    baseline: a checkpoint folder that is known to work; its format files are what `folder`'s are compared
    with. Without one, format files are not compared.
    """
    found = [_rank_file(folder), _special_tokens(folder), _media_settings(folder)]
    if baseline is not None:
        found.append(_format_files(folder, baseline))
    return found


def differences(folder: Path) -> list[str]:
    """A phrase for each part of the format that is not as it was checked: what a start warns of."""
    return [f"{part.name}: {_shortened(part.differences)}" for part in parts(folder) if part.differences]


def digest_of_format_files(folder: Path) -> str:
    """One digest over the format files of a checkpoint, "" where it has none."""
    digests = _format_digests(folder)
    return _digest(digests) if digests else ""


def _rank_file(folder: Path) -> Part:
    remedy = (
        "Download the file again. If the publisher replaced it, every token id may mean another text: "
        "do not serve this checkpoint before `k3 render` gives the prompts its own code gives"
    )
    try:
        digest = hashlib.sha256((folder / "tiktoken.model").read_bytes()).hexdigest()
    except OSError as error:
        return Part("rank file", "", (f"tiktoken.model cannot be read ({error.strerror})",), remedy)
    known = {RANK_FILE_SHA256, hashlib.sha256(RANKS_FILE.read_bytes()).hexdigest()}
    differing = () if digest in known else (f"tiktoken.model has sha256 {digest[:12]}..., not a known one",)
    return Part("rank file", digest[:12], differing, remedy)


def _special_tokens(folder: Path) -> Part:
    remedy = (
        "Names that are new or moved may mean a new chat format. Look for a newer k3-gateway; until then "
        "compare `k3 render` with the prompt that the checkpoint's own code writes"
    )
    name = "special tokens"
    try:
        table = json.loads((folder / "tokenizer_config.json").read_bytes())["added_tokens_decoder"]
        with (folder / "tiktoken.model").open("rb") as lines:
            n_ranks = sum(1 for line in lines if line.strip())
        found = {int(key) - n_ranks: (row["content"], bool(row["special"])) for key, row in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Part(name, "", (f"the table cannot be read ({type(error).__name__}: {error})",), remedy)
    known = {slot: (spelling, special) for slot, spelling, special in SPECIAL_TOKENS}
    return Part(name, _digest(sorted(found.items())), tuple(_moved(found, known, n_ranks)), remedy)


def _moved(
    found: Mapping[int, tuple[str, bool]], known: Mapping[int, tuple[str, bool]], n_ranks: int
) -> Iterator[str]:
    for slot in sorted(found.keys() | known.keys()):
        here, there = found.get(slot), known.get(slot)
        if here == there:
            continue
        token = f"id {n_ranks + slot} (slot {slot})"
        if here is None and there is not None:
            yield f"{token} is not named, {there[0]} in K3"
        elif there is None and here is not None:
            yield f"{token} is {here[0]}, not named in K3"
        elif here is not None and there is not None and here[0] != there[0]:
            yield f"{token} is {here[0]}, {there[0]} in K3"
        elif here is not None and there is not None:
            yield f"{token} {here[0]} has special={str(here[1]).lower()}, {str(there[1]).lower()} in K3"


def _media_settings(folder: Path) -> Part:
    remedy = (
        "Values are read from the file and followed; a key that is not known here is not. Compare the "
        "number of tokens of a picture (`k3 see`) with the publisher's count"
    )
    name = "media settings"
    try:
        found = json.loads((folder / "preprocessor_config.json").read_bytes())["media_proc_cfg"]
        spelled = _flat(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Part(name, "", (f"they cannot be read ({type(error).__name__}: {error})",), remedy)
    known = _flat(MEDIA_PROC_CFG)
    differing = []
    for key in sorted(spelled.keys() | known.keys()):
        # A key that is left out and one that is null mean the same.
        here, there = spelled.get(key), known.get(key)
        if here != there:
            differing.append(f"{key} is {json.dumps(here)}, {json.dumps(there)} in K3")
    return Part(name, _digest(sorted(spelled.items())), tuple(differing), remedy)


def _format_files(folder: Path, baseline: Path) -> Part:
    found, known = _format_digests(folder), _format_digests(baseline)
    differing = []
    for name in sorted(found.keys() | known.keys()):
        if name not in known:
            differing.append(f"{name} is new")
        elif name not in found:
            differing.append(f"{name} is gone")
        elif found[name] != known[name]:
            differing.append(f"{name} has changed (sha256 {found[name][:12]}..., was {known[name][:12]}...)")
    return Part(
        "format files",
        _digest(found),
        tuple(differing),
        f"Read what changed: diff -ru -x '*.safetensors' {baseline} {folder}. What changes the prompt or the "
        "completion needs a newer k3-gateway",
    )


def _format_digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.suffix in _FORMAT_SUFFIXES and path.is_file()
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _shortened(phrases: tuple[str, ...]) -> str:
    shown = "; ".join(phrases[:_SHOWN])
    return shown + (f"; and {len(phrases) - _SHOWN} more" if len(phrases) > _SHOWN else "")
