"""vLLM releases as Python sources only: enough for every probe and loader, and nothing compiled.

A wheel of some 300 MB is fetched by pip once, its Python files are unpacked into a cache, and the wheel goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RELEASES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.33.0")
FETCH_SECONDS = 900


def cache_folder() -> Path:
    """$K3_CACHE/vllm-wheels, else .cache/vllm-wheels in the checkout."""
    return Path(os.environ.get("K3_CACHE", REPOSITORY / ".cache")) / "vllm-wheels"


class ReleaseUnavailable(Exception):
    """The wheel could not be fetched; says what pip said."""


def _download(version: str, folder: Path) -> Path:
    platforms = [f"--platform=manylinux_2_{n}_x86_64" for n in (35, 34, 31, 28, 17)]
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"),
        *("--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=abi3"),
        *(*platforms, "--platform=manylinux1_x86_64", f"--dest={folder}", f"vllm=={version}"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ReleaseUnavailable(
            f"pip did not finish fetching vllm {version} in {FETCH_SECONDS} s"
        ) from error
    wheels = list(folder.glob("vllm-*.whl"))
    if done.returncode or not wheels:
        raise ReleaseUnavailable(f"pip cannot fetch vllm {version}: {done.stderr.strip()[-300:]}")
    return wheels[0]


def release(version: str) -> Path:
    """A folder to put on PYTHONPATH that holds vLLM `version`. Raises ReleaseUnavailable."""
    folder = cache_folder() / version
    if (folder / "vllm" / "version.py").exists():
        return folder
    unfinished = folder.with_name(f"{version}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        wheel = _download(version, unfinished)
        with zipfile.ZipFile(wheel) as archive:
            wanted = [
                name
                for name in archive.namelist()
                if name.endswith((".py", ".json")) or ".dist-info/" in name
            ]
            archive.extractall(unfinished, wanted)
        wheel.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
