"""Where a checkpoint's small files are: tokenizer, configs. Weights are the engine's business."""

from __future__ import annotations

import json
import re
from pathlib import Path

# What the front end reads; kilobytes to a few megabytes, also of the big model.
SMALL_FILES = ("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json")
RANK_FILE = "tiktoken.model"


class CheckpointError(ValueError):
    """There is no usable K3 checkpoint at the given place; the message says what to do."""


def locate(model: str | None) -> Path:
    """The folder with the small files of `model`: a folder, a Hugging Face name, or None for the mini one.

    A Hugging Face name downloads only those files (or takes them from the local cache).

    Raises:
        CheckpointError: no such folder or repository, or it is no K3 checkpoint.
    """
    if model is None:
        from engine.mini.build import checkpoint_dir

        return checkpoint_dir()
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if folder.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", model):
            raise CheckpointError(
                f"no model folder {model}; give a checkpoint folder, a Hugging Face name such as "
                "nvidia/Kimi-K3-NVFP4, or nothing for the embedded mini checkpoint"
            )
        folder = _from_hub(model)
    missing = [
        name for name in ("config.json", "tokenizer_config.json", RANK_FILE) if not (folder / name).is_file()
    ]
    if missing:
        raise CheckpointError(f"{model} is no complete K3 checkpoint: {', '.join(missing)} missing")
    try:
        kind = json.loads((folder / "config.json").read_text()).get("model_type")
    except ValueError as error:
        raise CheckpointError(f"{model}: config.json is not valid JSON ({error})") from None
    if kind != "kimi_k3":
        raise CheckpointError(f"{model} is a checkpoint of type {kind!r}; this server serves kimi_k3")
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*SMALL_FILES, RANK_FILE]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"cannot get the configuration of {name} from the Hugging Face hub "
            f"({type(error).__name__}); check the name, the network and HF_TOKEN, or give a local folder"
        ) from None
