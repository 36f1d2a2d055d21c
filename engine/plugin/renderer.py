"""The renderer that goes with our tokenizer mode. Nothing is rendered with it: prompts come as ids."""

from __future__ import annotations

from vllm.renderers.kimi_k3 import KimiK3Renderer


class IdleRenderer(KimiK3Renderer):
    def warmup_mm(self) -> None:
        """The stock method compiles and runs vLLM's image processor, which `media` replaces."""
        self._mm_warmup_done = True
