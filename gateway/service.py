"""What all requests share, and the state of the engine from the first second to its death."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from engine.types import EngineClient
from gateway.admission import Admission
from gateway.auth import Keys
from gateway.errors import NotFound, Unavailable
from gateway.generation.counts import Totals
from gateway.generation.generation import Generations
from gateway.generation.rendering import Renderer
from gateway.pins.pinning import Pinning
from gateway.settings import Settings
from gateway.wire.responses.store import ResponseStore
from gateway.xtml import Reading, Vocab
from media.store import MediaLibrary

log = logging.getLogger(__name__)

Phase = Literal["starting", "ready", "stopping", "dead"]
Report = Callable[[str], None]
_PATCH_POLL_SECONDS = 5.0


class ServedEngine(EngineClient, Protocol):
    """An engine whose death can be waited for, and whose workers say how they are patched."""

    async def wait_dead(self) -> str: ...

    async def patch_overview(self) -> dict[str, Any]: ...


StartEngine = Callable[[Report], Awaitable[ServedEngine]]


@dataclass(slots=True)
class Status:
    """How far the engine is. `detail` says what is happening now, or why it died."""

    phase: Phase = "starting"
    detail: str = "waiting to start"
    since: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "status": self.phase,
            "detail": self.detail,
            "seconds": round(time.monotonic() - self.since, 1),
        }


class Service:
    """The one object behind all routes.

    `start_engine` is called once, by `run_engine`; `on_failure` is told why the engine could not start or
    that it died, after which the process should end.
    """

    def __init__(
        self,
        settings: Settings,
        model_folder: Path,
        vocab: Vocab,
        media: MediaLibrary,
        start_engine: StartEngine,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.settings = settings
        self.model_folder = model_folder
        self.renderer = Renderer(settings, vocab, media)
        self.totals = Totals()
        self.responses = ResponseStore(settings.response_store_bytes, settings.response_ttl_seconds)
        self.admission = Admission(settings.max_concurrent_requests)
        self.keys = Keys([key.get_secret_value() for key in settings.api_keys])
        self.created = int(time.time())
        self.status = Status(since=time.monotonic())
        self.ending = asyncio.Event()
        self.engine: ServedEngine | None = None
        self._start_engine = start_engine
        self._on_failure = on_failure
        self._generations: Generations | None = None
        self._pinning: Pinning | None = None
        self._keeping_pins: asyncio.Task[None] | None = None

    async def run_engine(self) -> None:
        """Start the engine and watch over it; cancelling shuts it down."""
        try:
            self.engine = await self._start_engine(self._report)
            self._generations = Generations(self.renderer, self.engine, self.totals, self.ending)
            await self._until_patches_agree()
            self.renderer.prefixes.attach(self.engine.info)
            self._pinning = Pinning(self.renderer, self.engine)
            self._keeping_pins = asyncio.create_task(self._pinning.run(), name="pinning")
            self._keeping_pins.add_done_callback(_log_failure)
            self._enter("ready", "serving")
            reason = await self.engine.wait_dead()
            raise RuntimeError(f"the engine died: {reason}; its own messages are above")
        except asyncio.CancelledError:
            self._enter("stopping", "shutting down")
            raise
        except Exception as error:
            self._enter("dead", str(error))
            self._on_failure(error)
        finally:
            if self._keeping_pins is not None:
                self._keeping_pins.cancel()
            if self.engine is not None:
                await self.engine.shutdown()

    async def engine_patches(self) -> dict[str, Any]:
        """The engine patches of the front end and of every rank (`patches.overview`).

        Raises:
            Unavailable: the engine is not up.
        """
        if self.engine is None:
            raise self._not_ready()
        return await self.engine.patch_overview()

    async def _until_patches_agree(self) -> None:
        """A rank that computes something else than its siblings, or a defect left in place, must not serve.

        A patch that fails where the operator can live with the defect is switched off by its variable.
        """
        while problems := (await self.engine_patches())["problems"]:
            self._report("engine patches: " + "; ".join(problems))
            await asyncio.sleep(_PATCH_POLL_SECONDS)

    async def end_requests(self) -> None:
        """End what is still being answered, before the server's patience at shutdown is over.

        From here on nothing new starts in the engine.
        """
        self.ending.set()
        if self._keeping_pins is not None:
            self._keeping_pins.cancel()
        if self._generations is not None:
            await self._generations.end_all()

    def generations(self) -> Generations:
        """The way to the model.

        Raises:
            Unavailable: the engine is not up, with what it is doing.
        """
        if self._generations is None or self.status.phase != "ready":
            raise self._not_ready()
        return self._generations

    def pinning(self) -> Pinning:
        """The pinned prefixes.

        Raises:
            Unavailable: the engine is not up.
        """
        if self._pinning is None or self.status.phase != "ready":
            raise self._not_ready()
        return self._pinning

    def reading(self) -> Reading:
        """How requests are to be read, for one of them."""
        return Reading(self.settings.strict_history, self.settings.hosted_tools)

    def check_model(self, name: str) -> None:
        """Raises NotFound for a name that is neither served here nor an alias."""
        names = self.settings.served_model_name
        if name not in names and self.renderer.aliases.find(name) is None:
            raise NotFound(
                f"The model {name[:100]!r} does not exist; this server has {', '.join(names)}",
                "model",
                "model_not_found",
            )

    def _not_ready(self) -> Unavailable:
        return Unavailable(
            f"The engine is not ready: {self.status.phase}, {self.status.detail}",
            code="engine_not_ready",
            retry_after=5,
        )

    def _report(self, detail: str) -> None:
        log.info("%s", detail)
        self.status.detail = detail

    def _enter(self, phase: Phase, detail: str) -> None:
        level = logging.ERROR if phase == "dead" else logging.INFO
        log.log(level, "engine %s: %s (after %.1f s)", phase, detail, time.monotonic() - self.status.since)
        self.status = Status(phase, detail, time.monotonic())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("prefixes are pinned no longer", exc_info=error)
