"""Memory, shared memory, limits, disk and port of this machine."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
from pathlib import Path

from engine.checks import available_memory
from engine.doctor.finding import Finding, ok, problem, size, warning
from engine.profiles import Requirements


def check_memory(needed: int) -> Finding:
    """Main memory that is free, of the machine and of its control group, against bytes `needed`."""
    free = available_memory()
    if free is None:
        return warning(
            "memory",
            "this system does not say how much is free",
            f"the engine needs about {size(needed)}",
            "See to it yourself",
        )
    if free < needed:
        return problem(
            "memory",
            f"{size(free)} free",
            f"the engine needs about {size(needed)}",
            "Stop other programs, raise the container's limit, or give the profile a smaller cache",
        )
    return ok("memory", f"{size(free)} free, {size(needed)} needed")


def check_shared_memory(needed: int, folder: Path = Path("/dev/shm")) -> Finding:
    """vLLM's processes pass tensors to each other through it."""
    remedy = "Start the container with --ipc=host or a larger --shm-size (docker-compose.yml: shm_size)"
    reason = f"the engine's processes need {size(needed)} of it between them"
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return problem("shared memory", f"{folder} is not there", reason, remedy)
    if usage.free < needed:
        return problem("shared memory", f"{size(usage.free)} free in {folder}", reason, remedy)
    return ok("shared memory", f"{size(usage.free)} free in {folder}")


def check_open_files(needed: int) -> Finding:
    """Each connection, shard and channel between processes is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        shown = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} per process"
        return ok("open files", shown)
    return warning(
        "open files",
        f"{soft} per process (hard limit {hard})",
        f"many connections at once need more; {needed} is comfortable",
        f"ulimit -n {needed}; in a container --ulimit nofile={needed}",
    )


def check_locked_memory(needed: Requirements) -> Finding | None:
    """NCCL pins memory for transfers between GPUs and nodes; None with fewer than two GPUs."""
    if needed.gpus_per_node < 2:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return ok("locked memory", "no limit")
    return warning(
        "locked memory",
        f"{size(soft)} per process",
        "NCCL pins memory for transfers; InfiniBand fails without",
        "ulimit -l unlimited; in a container --ulimit memlock=-1",
    )


def check_port(host: str, port: int) -> Finding:
    """Whether the service could listen where its settings say."""
    if port == 0:
        return ok("port", "any free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return problem(
                "port",
                f"{host}:{port} is taken",
                "another server (perhaps this one) listens there",
                "Stop it, or choose another with --port",
            )
        return problem(
            "port",
            f"cannot listen on {host}:{port}: {error.strerror}",
            "the service listens there",
            "Correct host and port",
        )
    return ok("port", f"{host}:{port} is free")


def free_disk(folder: Path) -> int | None:
    """Bytes free where `folder` is or would be; None where that cannot be told."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def check_writable(folder: Path) -> Finding:
    """The cache folder, in which the mini checkpoint and downloads are kept."""
    for place in (folder, *folder.parents):
        if place.exists():
            if os.access(place, os.W_OK):
                return ok("cache folder", str(folder))
            break
    return problem(
        "cache folder",
        f"{folder} cannot be written",
        "the mini checkpoint is built there on first use",
        "Set K3_CACHE to a folder of yours; in a container, mount a volume there",
    )
