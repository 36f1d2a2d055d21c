"""Checks before the engine is started, so that what is wrong is said at once and in plain words."""

from __future__ import annotations

import json
import os
from pathlib import Path

from engine.errors import EngineStartError

_GIB = 2**30


def check_model(model: str) -> Path | None:
    """The folder of a local model, None for a repository name of the Hub (`owner/name`).

    Raises EngineStartError when the folder is missing or does not hold a K3 checkpoint.
    """
    folder = Path(model).expanduser()
    if not folder.exists():
        check_repository_name(model)
        return None
    config_file = folder / "config.json"
    try:
        config = json.loads(config_file.read_text())
    except OSError:
        raise EngineStartError(
            f"{folder} has no readable config.json", "Give the folder that holds config.json and the weights"
        ) from None
    except ValueError as error:
        raise EngineStartError(
            f"{config_file} is not JSON ({error})", "Download the checkpoint again"
        ) from None
    model_type = config.get("model_type") if isinstance(config, dict) else None
    if model_type != "kimi_k3":
        raise EngineStartError(
            f"{config_file} has model_type {model_type!r}, not 'kimi_k3'", "This service serves Kimi K3 only"
        )
    return folder


def check_repository_name(model: str) -> None:
    """Raises EngineStartError for what can be no repository name of the Hub, so must be a missing folder."""
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise EngineStartError(
            f"there is no model folder {model!r}",
            "Give the folder of a Kimi K3 checkpoint, or its name on the Hub such as nvidia/Kimi-K3-NVFP4",
        )


def check_weights(folder: Path) -> None:
    """Raises EngineStartError for a folder without weights."""
    if not list(folder.glob("*.safetensors")):
        raise EngineStartError(f"{folder} has no *.safetensors file", "Finish the download of the checkpoint")


def check_memory(folder: Path, kv_cache_bytes: int, overhead_bytes: int, bytes_per_weight: int) -> None:
    """Weights (stored in 2 bytes each), cache and processes must fit into free memory.

    Raises EngineStartError.
    """
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    needed = stored * bytes_per_weight // 2 + kv_cache_bytes + overhead_bytes
    free = available_memory()
    if free is not None and free < needed:
        raise EngineStartError(
            f"the engine needs about {needed / _GIB:.1f} GiB of memory and {free / _GIB:.1f} GiB are free",
            "Stop other programs, or give it a smaller cache (engine argument kv_cache_memory_bytes)",
        )


def available_memory() -> int | None:
    """Bytes that may still be taken, of the machine and of the control group; None where unknown."""
    limits = []
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        pass
    try:
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            reclaimable = int(stat.get("inactive_file", 0))
            limits.append(int(limit) - int((group / "memory.current").read_text()) + reclaimable)
    except (OSError, ValueError):
        pass
    return min(limits) if limits else None


def check_plugin_allowed(entry_point: str) -> None:
    """Raises EngineStartError when vLLM would not load our plugin."""
    from importlib.metadata import entry_points

    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and entry_point not in allowed.split(","):
        raise EngineStartError(
            f"VLLM_PLUGINS={allowed!r} keeps the plugin {entry_point!r} from loading",
            f"Add {entry_point} to VLLM_PLUGINS, or unset it",
        )
    if entry_point not in entry_points(group="vllm.general_plugins").names:
        raise EngineStartError(
            f"the plugin {entry_point!r} is not installed in this environment",
            "Install the project itself, not only its files: pip install --no-deps -e .",
        )
