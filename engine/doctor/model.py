"""Is the checkpoint whole? By its index and each shard's own header; no weights are read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from engine.checkpoint import NEEDED
from engine.checks import check_model
from engine.doctor.finding import Finding, ok, problem, size, warning
from engine.doctor.host import check_writable, free_disk
from engine.errors import EngineStartError
from engine.profiles import Profile
from engine.revision import CHECKED_REVISIONS, digest_of_format_files, parts

INDEX = "model.safetensors.index.json"
_OF = re.compile(r"-of-(\d+)\.safetensors$")
_MAX_HEADER = 2**28


def check_checkpoint(profile: Profile, model: str | None) -> list[Finding]:
    """The checkpoint that `model` names: a folder, a name on the Hub, or None for the mini one."""
    if model is None:
        if profile.requires.gpus_per_node == 0:
            from engine.mini.build import cache_folder

            return [ok("model", "the mini checkpoint, built on first use"), check_writable(cache_folder())]
        return [
            problem(
                "model",
                "none was named",
                "without one the mini checkpoint is served, which is made for CPUs",
                "Add --model with a checkpoint's folder or its name, e.g. nvidia/Kimi-K3-NVFP4",
            )
        ]
    try:
        folder = check_model(model)
    except EngineStartError as error:
        return [problem("model", error.message, "the engine would not start", error.remedy)]
    if folder is None:
        return list(_hub(profile, model))
    return list(judge_folder(folder, needs_weights=profile.arguments.get("load_format") != "dummy"))


def _hub(profile: Profile, name: str) -> Iterator[Finding]:
    from huggingface_hub import constants, get_token, try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json")
    present = 0
    if isinstance(cached, str):
        folder = Path(cached).parent
        present = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        findings = list(judge_folder(folder, needs_weights=True))
        if all(finding.level == "ok" for finding in findings):
            yield from findings
            return
    cache = Path(constants.HF_HUB_CACHE)
    yield warning(
        "model",
        f"{name}: {size(present) if present else 'nothing'} of it is in {cache}",
        "the start downloads the rest before it loads anything",
        f"Download it beforehand: hf download {name}",
    )
    missing = max(0, profile.requires.disk - present)
    free = free_disk(cache)
    if free is not None and free < missing:
        yield problem(
            "disk",
            f"{size(free)} free for {cache}",
            f"the checkpoint needs {size(missing)} more",
            "Point HF_HOME to a larger disk",
        )
    else:
        yield ok("disk", f"{size(free or 0)} free for {cache}")
    if get_token() is None:
        yield warning(
            "hub token",
            "no HF_TOKEN, no HF_TOKEN_PATH, no login",
            "downloads without a token are slow or refused",
            "Set HF_TOKEN, or HF_TOKEN_PATH to a file that holds it",
        )
    else:
        yield ok("hub token", "found")


def judge_folder(folder: Path, needs_weights: bool) -> Iterator[Finding]:
    """Small files, and whether every shard that the index names is there in full."""
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        yield problem(
            "model",
            f"{folder} lacks {', '.join(missing)}",
            "the service reads them before the engine starts",
            "Finish the download, or download it again",
        )
    if not needs_weights:
        yield ok("model files", f"{folder}; weights are made up, none are read")
        return
    try:
        shards = expected_shards(folder)
    except ValueError as error:
        yield problem(
            "model files", str(error), "without it nobody knows what is missing", "Download it again"
        )
        return
    faults = {name: fault for name in shards if (fault := shard_fault(folder / name))}
    again = "Download again; what is whole is kept: hf download NAME --local-dir FOLDER"
    if not shards:
        yield problem("model files", f"{folder} has no *.safetensors file", "there are no weights", again)
    elif faults:
        some = "; ".join(f"{name} {fault}" for name, fault in list(faults.items())[:3])
        yield problem(
            "model files",
            f"{len(faults)} of {len(shards)} shards are not whole: {some}",
            "loading would fail after minutes, or hang",
            again,
        )
    else:
        total = sum((folder / name).stat().st_size for name in shards)
        yield ok("model files", f"{folder}: {len(shards)} shards, {size(total)}, all whole")


def check_format(model: str | None, baseline: Path | None = None) -> list[Finding] | None:
    """Whether the checkpoint's chat format and media settings are those this project was checked against.

    None for the mini checkpoint, and for a name on the Hub of which nothing is here yet.
    """
    folder = local_folder(model) if model is not None else None
    if folder is None:
        return None
    found = []
    for part in parts(folder, baseline):
        if not part.differences:
            found.append(ok(part.name, f"as checked (sha256 {part.digest}...)"))
            continue
        found.append(
            warning(
                part.name,
                "; ".join(part.differences),
                "this project was checked against moonshotai/Kimi-K3 (revisions "
                f"{', '.join(CHECKED_REVISIONS)}) and follows those files",
                part.remedy,
            )
        )
    if baseline is None and (digest := digest_of_format_files(folder)):
        found.append(
            ok(
                "format files",
                f"not compared (sha256 {digest}... over all): --baseline FOLDER names a checkpoint that is "
                "known to work",
            )
        )
    return found


def local_folder(model: str) -> Path | None:
    """Where the small files of a checkpoint lie on this machine; None where they are not here."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(model, "tokenizer_config.json")
    except HFValidationError:
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def expected_shards(folder: Path) -> list[str]:
    """File names by the index; without one, by the count in their names (`-of-00096`), else what is there.

    Raises ValueError for an index that cannot be read.
    """
    index = folder / INDEX
    if index.is_file():
        try:
            return sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{index} cannot be read ({type(error).__name__})") from None
    present = sorted(path.name for path in folder.glob("*.safetensors"))
    if present and (found := _OF.search(present[0])):
        digits = found[1]
        stem = re.sub(r"-\d+" + _OF.pattern, "", present[0])
        return [f"{stem}-{n:0{len(digits)}d}-of-{digits}.safetensors" for n in range(1, int(digits) + 1)]
    return present


def shard_fault(path: Path) -> str | None:
    """What is wrong with one safetensors file; its header says how long it must be. None if nothing is."""
    try:
        actual = os.stat(path).st_size
        with path.open("rb") as file:
            n_header = int.from_bytes(file.read(8), "little")
            if actual < 8 or n_header > min(actual, _MAX_HEADER):
                return "is not a safetensors file"
            header = json.loads(file.read(n_header))
        end = max(
            (entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0
        )
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "is not a safetensors file"
    expected = 8 + n_header + end
    if actual != expected:
        return f"has {actual:,} of {expected:,} bytes"
    return None
