"""The `vllm.general_plugins` entry point. vLLM calls `register` in every process: front end, engine, workers.

Importing this module must not fail and not be slow: vLLM logs and swallows an error while importing a plugin,
while one raised by the called function stops the process (patches-and-engine.md 1b). So everything happens inside.
"""

from __future__ import annotations

from typing import Any

ENTRY_POINT = "k3_gateway"

_state: dict[str, Any] = {"registered": False, "patches": None}


def register() -> None:
    """Register the tokenizer, apply the engine patches, and on a CPU add what K3 needs there. Idempotent."""
    if _state["registered"]:
        return
    from vllm.platforms import current_platform

    from engine.tokenizer import register_tokenizer

    register_tokenizer()
    if current_platform.is_cpu():
        from engine.cpu.register import register as register_cpu

        register_cpu()
    _state["patches"] = _apply_patches()
    _state["registered"] = True


def is_registered() -> bool:
    """Whether the plugin ran in this process."""
    return _state["registered"]


def report() -> dict[str, Any]:
    """What happened in this process: {"registered": bool, "patches": report of the patches package or None}."""
    return dict(_state)


def _apply_patches() -> Any:
    import patches

    apply_all = getattr(patches, "apply_all", None)
    return apply_all() if apply_all else None
