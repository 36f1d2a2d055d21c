"""Lets the front end ask every worker what became of the patches in its process."""

from __future__ import annotations

from typing import Any


class PatchReport:
    """vLLM mixes this into its worker class (`worker_extension_cls="patches.worker.PatchReport"`)."""

    def k3_patch_report(self) -> dict[str, Any]:
        """`Report.to_json` of this worker; its `patches` are empty where the plugin never ran."""
        from patches.registry import VERSION, current_report
        from patches.report import Report

        report = current_report() or Report(VERSION, "", None, ())
        parallel = getattr(self, "parallel_config", None)
        return report.to_json(
            rank=getattr(self, "rank", None),
            data_parallel_rank=getattr(parallel, "data_parallel_index", 0),
        )
