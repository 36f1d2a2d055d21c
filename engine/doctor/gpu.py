"""GPUs, as nvidia-smi lists them: no CUDA context is made, so a machine that serves is not disturbed."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from engine.doctor.finding import Finding, ok, problem, size, warning
from engine.profiles import Requirements

_MIB = 2**20
_FIELDS = ("index", "name", "memory.total", "memory.used", "driver_version", "compute_cap")
QUERY = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
_SECONDS = 20
_IN_USE = 2**30


class NoGpus(Exception):
    """nvidia-smi is not there or has no GPU to list; the message says which."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row. Sizes in bytes; what nvidia-smi does not know is 0 or (0, 0)."""

    index: int
    name: str
    memory: int
    memory_used: int
    driver: str
    compute_capability: tuple[int, int]


def parse_gpus(text: str) -> list[Gpu]:
    """The rows of QUERY's output. Lines that are not rows (warnings, "No devices were found") are skipped."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(_FIELDS) or not row[0].strip().isdigit():
            continue
        index, name, memory, used, driver, capability = (value.strip() for value in row)
        major, _, minor = capability.partition(".")
        gpus.append(
            Gpu(
                int(index),
                name,
                _number(memory) * _MIB,
                _number(used) * _MIB,
                driver,
                (_number(major), _number(minor)),
            )
        )
    return gpus


def _number(text: str) -> int:
    """0 for "[N/A]" and the like."""
    return int(text) if text.isdigit() else 0


def list_gpus() -> list[Gpu]:
    """Raises NoGpus."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise NoGpus("nvidia-smi is not installed") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NoGpus(f"nvidia-smi does not run ({type(error).__name__})") from None
    if not (gpus := parse_gpus(done.stdout)):
        said = (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()[0]
        raise NoGpus(f"nvidia-smi lists no GPU; it says: {said}")
    return gpus


def check_gpus(needed: Requirements) -> list[Finding]:
    """Number, memory, generation and driver of the GPUs."""
    if needed.gpus_per_node == 0:
        return [ok("gpu", "not needed by this profile")]
    try:
        gpus = list_gpus()
    except NoGpus as error:
        return [
            problem(
                "gpu",
                str(error),
                f"the profile needs {needed.gpus_per_node} GPU(s) on this machine",
                "Install NVIDIA's driver; in a container, start it with --gpus all",
            )
        ]
    return list(judge_gpus(gpus, needed))


def judge_gpus(gpus: list[Gpu], needed: Requirements) -> Iterator[Finding]:
    """`gpus` against what is needed; at least one GPU is listed."""
    names = ", ".join(sorted({gpu.name for gpu in gpus}))
    if len(gpus) < needed.gpus_per_node:
        yield problem(
            "gpu",
            f"{len(gpus)} GPU(s): {names}",
            f"the profile spreads the model over {needed.gpus_per_node} GPUs of each node",
            "Use a machine with that many, or override tensor_parallel_size if the weights fit on fewer",
        )
    else:
        yield ok("gpu", f"{len(gpus)} x {names}")
    chosen = gpus[: needed.gpus_per_node]

    least = min(gpu.memory for gpu in chosen)
    if least < needed.gpu_memory:
        yield problem(
            "gpu memory",
            f"{size(least)} on the smallest",
            f"weights and cache need {size(needed.gpu_memory)} on each",
            "Use bigger GPUs or more of them (`k3 profiles NAME` shows the arithmetic)",
        )
    else:
        yield ok("gpu memory", f"{size(least)} on each")
    busy = [gpu for gpu in chosen if gpu.memory_used > _IN_USE]
    if busy:
        yield warning(
            "gpu use",
            "in use: " + ", ".join(f"GPU {gpu.index} {size(gpu.memory_used)}" for gpu in busy),
            "the engine takes a share of the whole GPU and fails where others have it",
            "Stop what runs there (nvidia-smi lists it), or lower gpu_memory_utilization",
        )

    capability = min(gpu.compute_capability for gpu in chosen)
    wanted = needed.compute_capability
    if capability < wanted:
        yield problem(
            "gpu generation",
            f"compute capability {capability[0]}.{capability[1]}",
            f"the profile's kernels exist from {wanted[0]}.{wanted[1]} on",
            "Use a profile for these GPUs",
        )
    else:
        yield ok("gpu generation", f"compute capability {capability[0]}.{capability[1]}")
    yield judge_driver(chosen[0].driver, needed.driver)


def judge_driver(version: str, needed: int) -> Finding:
    """`needed`: the driver's branch, the number before the first dot."""
    branch = _number(version.split(".")[0])
    if branch < needed:
        return problem(
            "driver",
            f"NVIDIA driver {version}",
            f"CUDA 13, which this vLLM is built for, needs driver {needed} or newer",
            "Update the driver of the host",
        )
    return ok("driver", f"NVIDIA driver {version}")
