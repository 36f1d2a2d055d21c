"""`k3 serve`: run the service until it is told to stop or the engine dies."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import uvicorn

from engine.checkpoint import locate
from engine.doctor import differences, obstacles
from engine.errors import EngineStartError
from engine.profiles import get_profile
from gateway.commands.engine_args import EngineArgOption, parse_engine_args
from gateway.settings import Settings, SettingsError, load_settings, unknown_variables

log = logging.getLogger(__name__)

# How long replies may go on after the service was told to stop.
_REPLY_SECONDS = 7


class StartError(Exception):
    """The service cannot start; the message says why and what to do."""


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    model: Annotated[
        str | None,
        typer.Option(help="Checkpoint folder or Hugging Face name. [default: the mini checkpoint]"),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Launch profile. [default: cpu-mini]")] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name clients ask for; may be given several times.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. [default: 8000]")] = None,
    root_path: Annotated[str | None, typer.Option(help="Path prefix behind a proxy.")] = None,
    engine_arg: EngineArgOption = None,
    config: Annotated[
        Path | None,
        typer.Option(envvar="K3_CONFIG", help="TOML file with settings (docs/reference/settings.md)."),
    ] = None,
) -> None:
    """Serve K3 over an OpenAI-compatible API."""
    if config is not None:
        os.environ["K3_CONFIG"] = str(config)
    try:
        settings = load_settings(
            model=model,
            profile=profile,
            served_model_name=served_model_name or None,
            host=host,
            port=port,
            root_path=root_path,
            engine_args=parse_engine_args(engine_arg) or None,
        )
        run(settings)
    except (SettingsError, StartError, EngineStartError) as error:
        typer.echo(f"k3 serve: {error}", err=True)
        raise typer.Exit(1) from None


def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        StartError: the machine or the port will not do, the engine could not start, or it died later.
        EngineStartError: there is no such profile, or no K3 checkpoint where `model` points.
    """
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").addFilter(_is_no_answered_probe)
    for line in unknown_variables():
        log.warning("%s", line)
    _check_machine(settings)
    listener = _listen(settings.host, settings.port)
    with listener:
        check_exposure(settings, listener.getsockname()[0])
        failures: list[Exception] = []
        server = _server(settings, failures)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d%s (the engine is starting)", shown, port, settings.root_path)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets=[listener]))
    if failures:
        raise StartError(str(failures[0]))


class _Server(uvicorn.Server):
    """Stops on SIGINT and SIGTERM and then returns; uvicorn's own raises the signal once more.

    Replies may go on for `_REPLY_SECONDS`; then `end_requests` is called, before uvicorn tears connections.
    A second SIGINT tears them at once.
    """

    end_requests: Callable[[], Coroutine[Any, Any, None]]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        asyncio.get_running_loop().call_later(_REPLY_SECONDS, self._end_requests)

    def _end_requests(self) -> None:
        self._ending = asyncio.ensure_future(self.end_requests())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _check_machine(settings: Settings) -> None:
    """Say at once what would end the start minutes later, in vLLM's words."""
    findings = obstacles(get_profile(settings.profile), settings.model, settings.engine_args)
    if findings:
        said = " ".join(f"{f.check}: {f.detail}; {f.reason}. {f.remedy}." for f in findings)
        raise StartError(
            f"the profile {settings.profile} cannot run here. {said} "
            f"`k3 doctor --profile {settings.profile}` says more."
        )


def check_exposure(settings: Settings, address: str) -> None:
    """Without keys only this machine is served.

    Raises:
        StartError: others could reach `address`, no key would be asked for, and `allow_anonymous` is off.
    """
    if settings.api_keys or settings.allow_anonymous or ipaddress.ip_address(address).is_loopback:
        return
    raise StartError(
        f"others can reach {address}, and no API keys are set. Set K3_API_KEYS (or the secret file "
        "k3_api_keys), listen on 127.0.0.1, or set K3_ALLOW_ANONYMOUS=true to let everybody in."
    )


def _is_no_answered_probe(record: logging.LogRecord) -> bool:
    """Of uvicorn's access log: health checks and scrapes come every few seconds and say nothing."""
    args = record.args
    if not isinstance(args, tuple) or len(args) != 5:
        return True
    return args[2] not in ("/health", "/ready", "/metrics") or args[4] != 200


def _server(settings: Settings, failures: list[Exception]) -> _Server:
    """A uvicorn server around the service; a failure of the engine makes it stop."""
    from gateway.app import build_app
    from gateway.assembly import build_service

    def fail(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    folder = locate(settings.model)
    for difference in differences(folder):
        log.warning(
            "%s is not a checkpoint that this service was checked against: %s. "
            "`k3 doctor --model %s` says what to do",
            settings.model,
            difference,
            settings.model,
        )
    service = build_service(settings, folder, fail)
    app = build_app(service)
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=settings.log_requests,
            timeout_graceful_shutdown=_REPLY_SECONDS + 3,
        )
    )
    server.end_requests = service.end_requests
    return server


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened before anything slow happens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named asyncio turns Nagle off, who would hold the first event of a stream for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror}. {_remedy(error)}") from None
    return listener


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "This machine has no such address; give one of its own with --host (0.0.0.0 is all of them)."
    if error.errno == errno.EACCES:
        return "Ports below 1024 need a privilege; choose another with --port."
    return "Another server may run there; choose another with --port (0 takes a free one)."
