"""Methods that every worker process offers to `Engine.collective_rpc` (vLLM's `worker_extension_cls`)."""

from __future__ import annotations

from typing import Any

from engine import plugin


class WorkerExtension:
    def k3_plugin_report(self) -> dict[str, Any]:
        """`engine.plugin.report()` of this worker."""
        return plugin.report()
