"""vLLM's own way from messages with pictures to engine input, without an engine: parsing and K3 processor."""

from __future__ import annotations

import os
import re
from typing import Any

from engine import plugin
from engine.mini.build import checkpoint_dir
from engine.plugin.tokenizer import K3Tokenizer
from engine.profiles import COMMON_ENVIRONMENT, PROFILES


class StockFrontEnd:
    """Message parsing, media hashing and image processor as in vLLM's server, with its default cache of 4 GB.

    The chat template is left out: ids of the texts are enough for the processor to place its pictures.
    """

    def __init__(self) -> None:
        profile = PROFILES["cpu-mini"]
        for name, value in {**COMMON_ENVIRONMENT, **profile.environment, "HF_HUB_OFFLINE": "1"}.items():
            os.environ.setdefault(name, value)
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
        plugin.register()
        from vllm.renderers.registry import renderer_from_config

        arguments = profile.engine_args(str(checkpoint_dir()), {"mm_processor_cache_gb": 4})
        self._renderer = renderer_from_config(arguments.create_engine_config())

    def process(self, messages: list[dict[str, Any]]) -> int:
        """Everything up to engine input; returns the number of prompt tokens."""
        from vllm.renderers.chat_utils import parse_chat_messages

        renderer: Any = self._renderer
        conversation, media, uuids = parse_chat_messages(
            messages,  # type: ignore[arg-type]
            renderer.model_config,
            content_format="string",
            media_io_kwargs={"image": {"image_mode": None}},  # as vLLM's K3 renderer does
        )
        tokenizer = renderer.get_tokenizer()
        ids = [i for message in conversation for i in _with_markers(tokenizer, str(message["content"]))]
        # The processor writes markers as text and needs them read as markers, which our tokenizer refuses.
        inert, K3Tokenizer.encode = K3Tokenizer.encode, _with_markers  # type: ignore[method-assign]
        try:
            return len(renderer._process_multimodal(ids, media, uuids, {})["prompt_token_ids"])
        finally:
            K3Tokenizer.encode = inert  # type: ignore[method-assign]

    def close(self) -> None:
        self._renderer.shutdown()


def _with_markers(tokenizer: K3Tokenizer, text: str, *_: Any, **__: Any) -> list[int]:
    names = tokenizer.vocab.special_ids
    ids: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, names))})", text):
        ids += [names[part]] if part in names else tokenizer.vocab.encode(part)
    return ids
