"""What a checkpoint's config.json says that decides whether a patch concerns it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL_VARIABLE = "K3_MODEL"


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """`algorithms` are ModelOpt's `quant_algo` names in upper case; empty for other quantisation tools."""

    model: str
    quantization: str | None = None
    algorithms: frozenset[str] = frozenset()
    kv_b_algorithms: frozenset[str] = frozenset()
    has_vision: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any], model: str = "") -> CheckpointFacts:
        """Facts of a parsed config.json (the legacy hf_quant_config.json's nested form is understood too)."""
        text = config.get("text_config") or {}
        quantization = config.get("quantization_config") or text.get("quantization_config") or {}
        quantization = quantization.get("quantization") or quantization
        layers = {
            name: str(layer.get("quant_algo", "")).upper()
            for name, layer in (quantization.get("quantized_layers") or {}).items()
        }
        overall = str(quantization.get("quant_algo") or "").upper()
        uniform = frozenset({overall} - {"", "MIXED_PRECISION"})
        kv_b = frozenset(algo for name, algo in layers.items() if name.endswith(".kv_b_proj"))
        return cls(
            model=model,
            quantization=(quantization.get("quant_method") or "modelopt") if quantization else None,
            algorithms=frozenset(layers.values()) | uniform,
            kv_b_algorithms=kv_b or uniform,
            has_vision=bool(config.get("vision_config")),
        )

    @classmethod
    def read(cls, model: str | Path) -> CheckpointFacts:
        """Facts of a checkpoint folder, or of a Hugging Face repository (from its cache, else downloaded).

        Raises OSError or ValueError where its config.json cannot be had or is not JSON.
        """
        folder = Path(model)
        if folder.is_dir():
            config, legacy = folder / "config.json", folder / "hf_quant_config.json"
        else:
            from huggingface_hub import hf_hub_download

            config, legacy = Path(hf_hub_download(str(model), "config.json")), None
        parsed = json.loads(config.read_text())
        if "quantization_config" not in parsed and legacy is not None and legacy.exists():
            parsed["quantization_config"] = json.loads(legacy.read_text())
        return cls.from_config(parsed, str(model))

    @classmethod
    def from_environment(cls) -> CheckpointFacts | None:
        """Facts of $K3_MODEL, which the front end sets and every engine process inherits; None where unset.

        Also None where its config cannot be read; the patches then go by the engine's code alone.
        """
        model = os.environ.get(MODEL_VARIABLE)
        if not model:
            return None
        try:
            return cls.read(model)
        except (OSError, ValueError):
            return None


def needs(*algorithms: str) -> Any:
    """An `excuse` for patches that concern checkpoints with one of these ModelOpt algorithms."""

    def excuse(facts: CheckpointFacts | None) -> str | None:
        if facts is None or facts.algorithms & set(algorithms):
            return None
        found = ", ".join(sorted(facts.algorithms)) or facts.quantization or "no quantisation"
        return f"the checkpoint has no {' or '.join(algorithms)} layers ({found})"

    return excuse
