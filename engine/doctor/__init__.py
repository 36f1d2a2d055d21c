"""Does this machine have what a profile needs? One check a function; all are asked, none may raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.doctor import gpu, host, model, software
from engine.doctor.finding import Finding, Level, warning
from engine.profiles import Profile
from engine.revision import differences

__all__ = ["Finding", "Level", "differences", "examine", "obstacles"]

Check = Callable[[], "Finding | Iterable[Finding] | None"]


def examine(
    profile: Profile,
    checkpoint: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    address: tuple[str, int] = ("127.0.0.1", 8000),
    baseline: Path | None = None,
) -> list[Finding]:
    """Everything there is to say about `profile` on this machine; some ten seconds, most of it vLLM's import.

    `checkpoint`: folder, name on the Hub, or None for the mini one. `overrides`: engine arguments.
    `address`: where the service would listen. `baseline`: a checkpoint folder that is known to work, whose
    format files are compared.
    """
    profile = replace(profile, arguments={**profile.arguments, **(overrides or {})})
    needed = profile.requires
    checks: dict[str, Check] = {
        "gpu": lambda: gpu.check_gpus(needed),
        "vllm": lambda: software.check_vllm(profile),
        "libnuma": lambda: software.check_libraries(profile),
        "packages": lambda: list(software.check_packages(profile)),
        "plugin": software.check_plugin,
        "patches": lambda: software.check_patches(checkpoint),
        "model": lambda: model.check_checkpoint(profile, checkpoint),
        "format": lambda: model.check_format(checkpoint, baseline),
        "hub": lambda: software.check_hub_offline(checkpoint),
        "ray": lambda: software.check_ray(profile),
        "memory": lambda: host.check_memory(host_memory_needed(profile, checkpoint)),
        "shared memory": lambda: host.check_shared_memory(needed.shared_memory),
        "open files": lambda: host.check_open_files(needed.open_files),
        "locked memory": lambda: host.check_locked_memory(needed),
        "port": lambda: host.check_port(*address),
    }
    with ThreadPoolExecutor(max_workers=4) as pool:
        asked = [pool.submit(_ask, name, check) for name, check in checks.items()]
        return [finding for future in asked for finding in future.result()]


def obstacles(
    profile: Profile, checkpoint: str | None = None, overrides: Mapping[str, Any] | None = None
) -> list[Finding]:
    """What keeps `profile` from starting and can be seen in a second: too few GPUs, no whole checkpoint.

    Where an override sizes the engine differently, the number of GPUs is vLLM's to judge.
    """
    overrides = overrides or {}
    resized = any(name.endswith("_parallel_size") for name in overrides)
    profile = replace(profile, arguments={**profile.arguments, **overrides})
    findings = [] if resized else _ask("gpu", lambda: gpu.check_gpus(profile.requires))
    findings += _ask("model", lambda: model.check_checkpoint(profile, checkpoint))
    decisive = ("gpu", "model", "model files")
    return [finding for finding in findings if finding.level == "problem" and finding.check in decisive]


def _ask(name: str, check: Check) -> list[Finding]:
    try:
        found = check()
    except Exception as error:  # a machine stranger than its check expects is still told the rest
        return [
            warning(
                name,
                f"could not be checked ({type(error).__name__}: {error})",
                "this check met something it does not know",
                "Look yourself, and report it",
            )
        ]
    if found is None:
        return []
    return [found] if isinstance(found, Finding) else list(found)


def host_memory_needed(profile: Profile, checkpoint: str | None) -> int:
    """Bytes of main memory: processes; on a CPU also weights (stored in 2 bytes each) and cache."""
    if not profile.host_memory:
        return profile.requires.host_memory
    bytes_per_weight = 4 if profile.arguments.get("dtype") == "float32" else 2
    stored = 0
    if checkpoint is not None:
        stored = sum(path.stat().st_size for path in Path(checkpoint).expanduser().glob("*.safetensors"))
    cache = profile.arguments.get("kv_cache_memory_bytes") or 0
    return stored * bytes_per_weight // 2 + cache + profile.host_memory
