"""Engine patches: what makes K3 load and compute right on the vLLM release that is installed, and says so.

`apply_all()` runs in every vLLM process before a model is built (through `engine.plugin`, or the
`sitecustomize` shim). Each patch has a probe that runs the suspect code on small tensors, so a release
that is already right is left alone. Importing this package imports neither vLLM nor torch.
"""

from patches.checkpoint import CheckpointFacts
from patches.patch import Finding, Part, Patch
from patches.registry import VERSION, apply_all, cache_key, current_report, engine_arguments
from patches.report import Outcome, PatchError, Report, agree, overview

__all__ = [
    "VERSION",
    "CheckpointFacts",
    "Finding",
    "Outcome",
    "Part",
    "Patch",
    "PatchError",
    "Report",
    "agree",
    "apply_all",
    "cache_key",
    "current_report",
    "engine_arguments",
    "overview",
]
