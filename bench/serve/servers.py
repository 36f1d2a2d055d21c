"""The three front ends over the scripted core: how each is started, what it answers, what CPU it takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.serve.core import EXECUTOR, write_script
from engine.mini.build import checkpoint_dir
from engine.profiles import COMMON_ENVIRONMENT, get_profile
from gateway.xtml import Vocab

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "cpu-mini"
CONTEXT = 1_100_000
MODEL = "kimi-k3"
START_SECONDS = 150
# Of the engine process; its own log level, caches and threads do not matter here.
OVERRIDES: dict[str, Any] = {
    "distributed_executor_backend": EXECUTOR,
    "load_format": "dummy",
    "max_model_len": CONTEXT,
    "max_num_seqs": 256,
    # A prompt of a million tokens in few steps: what is measured is the front end.
    "max_num_batched_tokens": 131_072,
    "prefix_cache_retention_interval": 0,
    "mm_processor_cache_gb": 1.0,
}
# vLLM's own server needs a template; what it costs is its own templating, the text is nearly the same.
TEMPLATE = (
    '{% for m in messages %}<|open|>message role="{{m.role}}"<|sep|>{{m.content}}<|close|>message<|sep|>'
    '{% endfor %}<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
)
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3", "--reasoning-parser", "kimi_k3")
# Flags of ours that vLLM's servers are not given: what they are is tried with what they bring.
LEFT_OUT = {
    "mm_processor_cache_gb",
    "worker_extension_cls",
    "enable_log_requests",
    "disable_log_stats",
    "structured_outputs_config",
}
NAMES = ("ours", "vllm-py", "vllm-rs")


@dataclass(slots=True)
class Server:
    """A running server: its port, the processes of its front end and of its engine."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    front: list[int]
    engine: list[int]

    def cpu(self) -> float:
        """Seconds of user and system time that all threads of the front end have taken."""
        return sum(map(_cpu_seconds, self.front))

    def engine_cpu(self) -> float:
        return sum(map(_cpu_seconds, self.engine))


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder that servers and measuring process share."""

    folder: Path

    @property
    def first_tokens(self) -> Path:
        return self.folder / "first-tokens"

    def pace(self, paced: bool) -> None:
        """Whether the core's steps take their time."""
        with (self.folder / "control").open("r+b") as control:
            control.write(b"p" if paced else b"u")

    @classmethod
    def create(cls, folder: Path) -> Workplace:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "control").write_bytes(b"p")
        (folder / "first-tokens").write_bytes(b"")
        _write_model(folder / "model")
        write_script(folder / "script.json", Vocab.load(folder / "model"))
        metadata = folder / "site" / "vllm-0.32.0+cpu.dist-info"
        metadata.mkdir(parents=True, exist_ok=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
        return cls(folder)


def _write_model(folder: Path) -> None:
    """The mini checkpoint's small files, with a context of a million tokens and no weights."""
    folder.mkdir(exist_ok=True)
    for file in checkpoint_dir().iterdir():
        if file.suffix == ".safetensors":
            continue
        if file.name == "config.json":
            config = json.loads(file.read_text())
            config["text_config"]["max_position_embeddings"] = CONTEXT
            (folder / file.name).write_text(json.dumps(config))
        else:
            (folder / file.name).write_bytes(file.read_bytes())


@contextmanager
def running(names: Sequence[str], place: Workplace, rust: Path | None, port: int) -> Iterator[list[Server]]:
    """Start the servers named, all at once; raises RuntimeError with the log's end when one does not."""
    with ExitStack() as stack:
        started = []
        for offset, name in enumerate(names):
            command, extra = _command(name, place, port + offset, rust)
            started.append((name, port + offset, stack.enter_context(_process(command, extra, place, name))))
        servers = []
        for name, at, process in started:
            _until_ready(name, at, process, place.folder / f"{name}.log")
            family = _family(process.pid)
            engine = [pid for pid in family if _is_engine(pid)]
            servers.append(Server(name, at, process, [pid for pid in family if pid not in engine], engine))
        yield servers


def _command(name: str, place: Workplace, port: int, rust: Path | None) -> tuple[list[str], dict[str, str]]:
    model = str(place.folder / "model")
    if name == "ours":
        command = [sys.executable, "-m", "gateway.cli", "serve", "--profile", PROFILE, "--model", model]
        command += ["--port", str(port)]
        for key, value in OVERRIDES.items():
            command += ["--engine-arg", f"{key}={json.dumps(value)}"]
        return command, {"K3_MAX_CONCURRENT_REQUESTS": "1024"}
    arguments = {k: v for k, v in get_profile(PROFILE).merged(OVERRIDES).items() if k not in LEFT_OUT}
    del arguments["tokenizer_mode"]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--served-model-name", MODEL, *_flags(arguments), *PARSERS]
    command += ["--enable-prompt-tokens-details", "--disable-log-stats"]
    if name == "vllm-rs":
        return command, {"VLLM_USE_RUST_FRONTEND": "1", "VLLM_RUST_FRONTEND_PATH": str(rust)}
    return [*command, "--chat-template", TEMPLATE], {"VLLM_USE_RUST_FRONTEND": "0"}


def _flags(arguments: dict[str, Any]) -> list[str]:
    found = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            found += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    return found


@contextmanager
def _process(
    command: list[str], extra: dict[str, str], place: Workplace, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    if name != "ours":
        paths.append(str(place.folder / "site"))
    environment = {
        **os.environ,
        **COMMON_ENVIRONMENT,
        **get_profile(PROFILE).environment,
        **extra,
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        "BENCH_SCRIPT": str(place.folder / "script.json"),
        "BENCH_CONTROL": str(place.folder / "control"),
        "BENCH_LOG": str(place.first_tokens),
    }
    with (place.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, cwd=place.folder, start_new_session=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until_ready(name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    begin = time.monotonic()
    url = f"http://127.0.0.1:{port}/{'ready' if name == 'ours' else 'health'}"
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() - begin > START_SECONDS:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise RuntimeError(f"{name} does not start:\n{end}")
        time.sleep(0.3)


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def _is_engine(pid: int) -> bool:
    """vLLM's engine process, or the helper of Python's multiprocessing that started it."""
    command = Path(f"/proc/{pid}/cmdline").read_text()
    return "VLLM::EngineCore" in command or "multiprocessing" in command


def _cpu_seconds(pid: int) -> float:
    """Of all threads that live; the scheduler counts in nanoseconds, user and system together."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9
