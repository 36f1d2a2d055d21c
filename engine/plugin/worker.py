"""Methods that every worker process offers to `Engine.collective_rpc` (vLLM's `worker_extension_cls`)."""

from __future__ import annotations

from typing import Any

from engine import plugin
from patches.worker import PatchReport


class WorkerExtension(PatchReport):
    def k3_plugin_registered(self) -> bool:
        """Whether the plugin ran in this worker."""
        return plugin.is_registered()

    def k3_n_ranks_in_step(self) -> int:
        """Data-parallel ranks that compute each step together, this one included: 1 where every rank is an
        engine by itself."""
        parallel: Any = getattr(self, "parallel_config", None)
        return int(parallel.data_parallel_size)
