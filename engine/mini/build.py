"""Builds the mini checkpoint once into a cache folder: `python -m engine.mini.build` prints where it is.

Trained weights that ship with the project (weights/*.safetensors) are used if they are there, else a seed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from engine.mini.checkpoint import initial_tensors, write_checkpoint
from engine.mini.config import MiniConfig

_HERE = Path(__file__).parent
WEIGHTS = _HERE / "weights"


def cache_folder() -> Path:
    """$K3_CACHE, else `.cache` of the checkout, else (in an installed package) the user's cache folder."""
    if configured := os.environ.get("K3_CACHE"):
        return Path(configured)
    checkout = _HERE.parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "k3-gateway"


def checkpoint_dir(progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of the mini checkpoint, built on first use.

    Safe when several processes ask at once: each builds aside and the first to finish puts its folder in
    place. Raises OSError when the cache folder cannot be written.
    """
    folder = cache_folder() / f"mini-k3-{_digest()[:12]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    progress(f"building the mini K3 checkpoint in {folder}")
    aside = Path(tempfile.mkdtemp(prefix=".mini-k3-", dir=folder.parent))
    try:
        config = MiniConfig()
        write_checkpoint(aside, config, _trained() or initial_tensors(config))
        aside.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    progress(f"built in {time.monotonic() - started:.1f} s")
    return folder


def _trained() -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for part in sorted(WEIGHTS.glob("*.safetensors")):
        tensors |= load_file(part)
    return tensors


def _digest() -> str:
    """Over everything that the checkpoint is made from."""
    digest = hashlib.sha256()
    sources = [_HERE / name for name in ("config.py", "vocabulary.py", "checkpoint.py", "build.py")]
    for path in [*sources, *sorted((_HERE / "data").iterdir()), *sorted(WEIGHTS.glob("*.safetensors"))]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    built = checkpoint_dir(lambda message: print(f"==> {message}", flush=True))
    print(f"==> mini K3 checkpoint: {built}")
