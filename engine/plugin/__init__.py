"""The `vllm.general_plugins` entry point. vLLM calls `register` in every process: front end, engine, workers.

Importing this module must not fail and not be slow: vLLM logs and swallows an error while importing a plugin,
while one raised by the called function stops the process (docs/concepts/engine.md#plugin). So everything
happens inside.
"""

from __future__ import annotations

ENTRY_POINT = "k3_gateway"

_registered = False


def register() -> None:
    """Register the tokenizer, apply the patches, count loading, add what K3 needs on a CPU. Idempotent."""
    global _registered
    if _registered:
        return
    from vllm.platforms import current_platform

    from engine.loading import count_loaded_bytes
    from engine.plugin.lifeline import exit_with_parent
    from engine.plugin.tokenizer import register_tokenizer
    from patches import apply_all

    exit_with_parent()
    register_tokenizer()
    apply_all()
    count_loaded_bytes()
    if current_platform.is_cpu():
        from engine.plugin.cpu.register import register as register_cpu

        register_cpu()
    _registered = True


def is_registered() -> bool:
    """Whether `register` has run in this process."""
    return _registered
