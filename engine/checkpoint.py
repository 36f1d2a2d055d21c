"""Where a checkpoint's small files are: tokenizer and configs. Weights are the engine's business."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.checks import check_model
from engine.errors import EngineStartError

# What the front end reads; a few megabytes at most, also of the big model.
NEEDED = ("config.json", "tokenizer_config.json", "tiktoken.model")
ALSO_READ = ("generation_config.json", "preprocessor_config.json")


def locate(model: str | None, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with the small files of `model`: a folder, a name on the Hub, or None for the mini one.

    A name on the Hub downloads only those files, or takes them from the local cache. The mini one is built on
    first use, which `progress` is told.

    Raises:
        EngineStartError: no such folder or repository, or it is not a K3 checkpoint.
    """
    if model is None:
        from engine.mini.build import checkpoint_dir

        try:
            return checkpoint_dir(progress)
        except OSError as error:
            raise EngineStartError(
                f"the mini checkpoint cannot be written ({error.strerror}: {error.filename})",
                "Name a folder that can be written in K3_CACHE",
            ) from None
    folder = check_model(model) or _from_hub(model)
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        raise EngineStartError(
            f"the checkpoint {model} lacks {', '.join(missing)}", "Finish its download, or download it again"
        )
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[*NEEDED, *ALSO_READ]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise EngineStartError(
            f"cannot get the configuration of {name} from the Hugging Face hub ({type(error).__name__})",
            "Check the name, the network and HF_TOKEN, or give a local folder",
        ) from None
