"""Methods that every worker process offers to `Engine.collective_rpc` (vLLM's `worker_extension_cls`)."""

from __future__ import annotations

from engine import plugin
from patches.worker import PatchReport


class WorkerExtension(PatchReport):
    def k3_plugin_registered(self) -> bool:
        """Whether the plugin ran in this worker."""
        return plugin.is_registered()
