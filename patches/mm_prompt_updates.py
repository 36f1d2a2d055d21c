"""KIMI_K3_FIX_MM_PROMPT_UPDATES: the image placeholder must be expanded by vLLM.

See docs/concepts/patches.md#kimi_k3_fix_mm_prompt_updates.
"""

from __future__ import annotations

from types import SimpleNamespace

from patches.checkpoint import CheckpointFacts
from patches.patch import Finding, Part, Patch, wrap

SWITCH = "KIMI_K3_FIX_MM_PROMPT_UPDATES"
_HOOK = "_hf_processor_applies_updates"


def probe() -> Finding:
    from vllm.multimodal.processing import BaseMultiModalProcessor

    # Looked at first: the base class is imported anyway, K3's own processor costs seconds.
    if not hasattr(BaseMultiModalProcessor, _HOOK):
        return Finding("absent", "this release always expands placeholders itself; the hook is gone")
    from vllm.models.kimi_k3.common.mm_preprocess import KimiK3MultiModalProcessor

    stub = SimpleNamespace()
    claims = getattr(KimiK3MultiModalProcessor, _HOOK)(
        stub, prompt_text="", mm_items={}, hf_processor_mm_kwargs={}, tokenization_kwargs={}
    )
    if claims:
        return Finding("defect", "vLLM believes that K3's processor has expanded the image placeholder")
    return Finding("fixed", "vLLM knows that K3's processor leaves the image placeholder to it")


def apply() -> None:
    from vllm.models.kimi_k3.common.mm_preprocess import KimiK3MultiModalProcessor

    wrap(KimiK3MultiModalProcessor, _HOOK, SWITCH, lambda original: lambda self, *args, **kwargs: False)


def excuse(facts: CheckpointFacts | None) -> str | None:
    return "the checkpoint has no vision tower" if facts and not facts.has_vision else None


PATCH = Patch(
    name="mm-prompt-updates",
    switch=SWITCH,
    fixes="A picture's placeholder is not expanded, so the picture is lost (pre-release images only)",
    fixed_since="0.27.0",
    parts=(Part("hook", probe, apply),),
    excuse=excuse,
)
