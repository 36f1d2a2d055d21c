"""The patches there are, and how they are decided and applied in a process."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

from patches import (
    fp8_pb,
    fp8_pb_gate_gap,
    mm_prompt_updates,
    mxfp8_kv_b_input,
    nvfp4_per_token,
    nvfp4_situ_scale,
    prefix_block_copy,
    vision_dtype,
)
from patches.checkpoint import MODEL_VARIABLE, CheckpointFacts
from patches.patch import Part, Patch, Setting
from patches.report import Outcome, PartOutcome, PatchError, Report, State

PATCHES: tuple[Patch, ...] = (
    mxfp8_kv_b_input.PATCH,
    mm_prompt_updates.PATCH,
    nvfp4_per_token.PATCH,
    nvfp4_situ_scale.PATCH,
    fp8_pb.PATCH,
    # After fp8_pb: both wrap the block-scaled linear method, and this one must see its weights first.
    fp8_pb_gate_gap.PATCH,
    vision_dtype.PATCH,
    prefix_block_copy.PATCH,
)

MODE_VARIABLE = "K3_PATCHES"
_MODES = ("report", "strict")

# Under vLLM's own logger, so that the lines appear with its format and level in every process.
_logger = logging.getLogger("vllm.k3_patches")

_applied: dict[tuple[str, str], str] = {}
_report: Report | None = None


def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:12]


VERSION = _digest()
"""Changes with any change to the patches' source."""


def setting(switch: str) -> Setting:
    """The switch's value in the environment. Raises PatchError for anything but auto, 1 and 0."""
    value = os.environ.get(switch, "auto").strip().lower() or "auto"
    if value == "auto" or value == "1" or value == "0":
        return value  # type: ignore[return-value]
    raise PatchError(f"{switch}={value!r}: must be auto, 1 or 0")


def cache_key() -> str:
    """What to put into vLLM's `additional_config`, so that its config hash tells patch sets apart.

    Without it a compiled graph of an unpatched run could serve a patched one. The switches are part of
    it: the same source with a patch off compiles something else.
    """
    switches = ",".join(f"{patch.switch}={setting(patch.switch)}" for patch in PATCHES)
    return f"{VERSION}-{hashlib.sha256(switches.encode()).hexdigest()[:8]}"


def engine_arguments() -> dict[str, Any]:
    """Engine arguments that the switches ask for where vLLM has the feature itself (imports vLLM)."""
    if setting(nvfp4_per_token.PATCH.switch) == "1" and nvfp4_per_token.is_engine_argument():
        return dict(nvfp4_per_token.ENGINE_ARGUMENT)
    return {}


def _evidence_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _settle(patch: Patch, setting: Setting) -> dict[str, PartOutcome]:
    """State and evidence of each part. All probes run before anything is applied, for parts overlap."""
    settled: dict[str, PartOutcome] = {}
    defects: list[tuple[Part, str]] = []
    for part in patch.parts:
        if evidence := _applied.get((patch.name, part.name)):
            settled[part.name] = PartOutcome("applied", evidence)
            continue
        try:
            finding = part.probe()
        except Exception as error:
            settled[part.name] = PartOutcome("failed", f"the probe did not run: {_evidence_of(error)}")
            continue
        if finding.verdict == "defect":
            defects.append((part, finding.evidence))
        elif finding.verdict == "absent" and patch.opt_in and setting == "1":
            settled[part.name] = PartOutcome("failed", f"asked for, but {finding.evidence}")
        else:
            settled[part.name] = PartOutcome(
                "already fixed" if finding.verdict == "fixed" else "not applicable",
                finding.evidence,
            )
    for part, _ in defects:
        try:
            part.apply()
        except Exception as error:
            settled[part.name] = PartOutcome("failed", f"could not be applied: {_evidence_of(error)}")
    for part, evidence in defects:
        if part.name in settled:
            continue
        try:
            finding = part.probe()
        except Exception as error:
            settled[part.name] = PartOutcome(
                "failed", f"applied, but the probe failed: {_evidence_of(error)}"
            )
            continue
        if finding.verdict == "fixed":
            _applied[patch.name, part.name] = evidence
            settled[part.name] = PartOutcome("applied", evidence)
        else:
            settled[part.name] = PartOutcome("failed", f"applied without effect: {finding.evidence}")
    return {part.name: settled[part.name] for part in patch.parts}


_GRAVITY: tuple[State, ...] = ("failed", "applied", "already fixed", "not applicable")


def _decide(patch: Patch, facts: CheckpointFacts | None) -> Outcome:
    def outcome(state: State, evidence: str, parts: dict[str, PartOutcome] | None = None) -> Outcome:
        return Outcome(patch.name, patch.switch, state, evidence, patch.fixes, patch.fixed_since, parts or {})

    value = setting(patch.switch)
    if not any((patch.name, part.name) in _applied for part in patch.parts):
        if value == "0":
            return outcome("off", f"{patch.switch}=0")
        if value == "auto" and patch.opt_in:
            return outcome("off", f"optional; {patch.switch}=1 turns it on")
        if value == "auto" and (reason := patch.excuse(facts)):
            return outcome("not applicable", reason)
    settled = _settle(patch, value)
    state = next(state for state in _GRAVITY if any(part.state == state for part in settled.values()))
    decisive = {name: part for name, part in settled.items() if part.state == state}
    name, part = next(iter(decisive.items()))
    if len(settled) == 1:
        return outcome(state, part.evidence)
    return outcome(state, f"{len(decisive)} of {len(settled)} parts; {name}: {part.evidence}", settled)


def apply_all(checkpoint: CheckpointFacts | None = None) -> Report:
    """Decide and apply every patch in this process; call it before a model is built, as often as you like.

    Without `checkpoint` its facts come from $K3_MODEL; where that is unset too, each patch goes by the
    engine's code alone. Raises PatchError on a bad switch, and under K3_PATCHES=strict when a patch failed.
    """
    global _report
    mode = os.environ.get(MODE_VARIABLE, "report").strip().lower() or "report"
    if mode not in _MODES:
        raise PatchError(f"{MODE_VARIABLE}={mode!r}: must be one of {', '.join(_MODES)}")
    facts = checkpoint or CheckpointFacts.from_environment()
    if facts is None and (model := os.environ.get(MODEL_VARIABLE)):
        _logger.warning("%s=%s has no readable config.json: patches go by the engine's code alone",
                        MODEL_VARIABLE, model)  # fmt: skip
    from vllm.version import __version__ as engine_version

    report = Report(
        version=VERSION,
        engine_version=engine_version,
        model=facts.model if facts else None,
        outcomes=tuple(_decide(patch, facts) for patch in PATCHES),
    )
    if report != _report:
        for outcome, line in zip(report.outcomes, report.lines(), strict=True):
            level = {"failed": logging.ERROR, "applied": logging.INFO}.get(outcome.state, logging.DEBUG)
            _logger.log(level, "%s", line)
    _report = report
    if mode == "strict" and report.failed:
        raise PatchError("; ".join(f"{o.switch} failed: {o.evidence}" for o in report.failed))
    return report


def current_report() -> Report | None:
    """The last report of this process; None before `apply_all` ran in it."""
    return _report
