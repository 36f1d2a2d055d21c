"""Pinned prefixes: what is to be kept warm, for whom, for how long, and within which budget."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from engine.types import BlockHash, EngineInfo, EnginePrompt
from gateway.errors import errors_of, from_validation
from gateway.prefix.sections import Written
from gateway.prefix.tenants import Tenant

log = logging.getLogger(__name__)


class PinError(ValueError):
    """A pin cannot be made; `param` names the field at fault."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


@dataclass(slots=True)
class Home:
    """A pinned prompt in the cache of one data-parallel rank.

    n_cached:   tokens that the engine said it read from the cache, the last time it was asked
    end_of:     block hash -> tokens up to the block's end, learnt from the engine's events; a prompt computed
                again has the same hashes
    touched:    blocks that the rank had stored in all when the pin was last used, and when that was
    is_stale:   an event says that it may be gone
    n_prefills: how often it had to be computed (again)
    """

    n_cached: int | None = None
    end_of: dict[BlockHash, int] = field(default_factory=dict)
    touched: int = 0
    touched_at: float = 0.0
    is_stale: bool = True
    n_prefills: int = 0
    error: str | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class PinnedPrompt:
    """A pin rendered for one effort.

    boundary: tokens that a request which begins with the prefix reads from the cache
    """

    key: str
    effort: str
    prompt: EnginePrompt
    written: Written
    boundary: int
    homes: list[Home]

    def is_warm(self, rank: int) -> bool:
        home = self.homes[rank]
        return not home.is_stale and home.n_cached is not None and home.n_cached >= self.boundary


@dataclass(slots=True)
class Pin:
    """request: `tools`, `system`, `messages` as they were sent; expires: seconds since 1970, None = never"""

    name: str
    tenant: Tenant
    request: dict[str, Any]
    efforts: tuple[str, ...]
    expires: float | None
    from_settings: bool
    prompts: list[PinnedPrompt]

    @property
    def n_tokens(self) -> int:
        """What it takes of the budget, on every rank."""
        return sum(prompt.boundary for prompt in self.prompts)


class SavedPin(BaseModel):
    """A pin made over HTTP as its file holds it."""

    model_config = ConfigDict(strict=True)

    name: str
    tenant: str
    request: dict[str, Any]
    efforts: list[str]
    expires: float | None


class PinBook:
    """All pins. With a folder, those made over HTTP are written there and found again after a restart.

    budget: tokens that all pins may take together on a rank
    """

    def __init__(
        self, budget: int, folder: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.budget = budget
        self.folder = folder
        self._clock = clock
        self._pins: dict[tuple[str, str], Pin] = {}

    def __iter__(self) -> Iterator[Pin]:
        return iter(list(self._pins.values()))

    @property
    def n_tokens(self) -> int:
        return sum(pin.n_tokens for pin in self._pins.values())

    def get(self, tenant: str, name: str) -> Pin | None:
        self.drop_expired()
        return self._pins.get((tenant, name))

    def of(self, tenant: str, *others: str) -> list[Pin]:
        """A tenant's pins, and those of `others`."""
        self.drop_expired()
        return [pin for pin in self if pin.tenant.name in (tenant, *others)]

    def add(self, pin: Pin) -> None:
        """Raises PinError: beyond the budget, or nothing to keep. A pin of the same name is replaced."""
        self.drop_expired()
        short = [p.effort for p in pin.prompts if p.boundary == 0]
        if short:
            raise PinError(
                f"the prefix is shorter than the engine's cache unit (effort {', '.join(short)}): "
                "nothing of it can be kept; pin a longer one",
                "messages",
                "pin_too_short",
            )
        before = self._pins.get((pin.tenant.name, pin.name))
        taken = self.n_tokens - (before.n_tokens if before else 0)
        if taken + pin.n_tokens > self.budget:
            raise PinError(
                f"this pin takes {pin.n_tokens} tokens of cache ({len(pin.prompts)} efforts); {taken} of "
                f"{self.budget} are taken. Delete a pin, pin fewer efforts, or raise pin_budget_tokens",
                "messages",
                "pin_budget_exceeded",
            )
        self._pins[pin.tenant.name, pin.name] = pin
        self._write(pin)

    def remove(self, pin: Pin) -> None:
        """Stop keeping it; the engine drops its blocks when it needs the room."""
        self._pins.pop((pin.tenant.name, pin.name), None)
        if path := self._path(pin):
            path.unlink(missing_ok=True)

    def drop_expired(self) -> None:
        for pin in self:
            if pin.expires is not None and pin.expires <= self._clock():
                self.remove(pin)

    def saved(self) -> list[tuple[Path, SavedPin]]:
        """What earlier runs of the service wrote, and where; expired pins and damaged files left out."""
        found = []
        for path in sorted(self.folder.glob("*.json")) if self.folder else []:
            content: object = None
            try:
                content = json.loads(path.read_text())
                saved = SavedPin.model_validate(content)
                if saved.expires is None or saved.expires > self._clock():
                    found.append((path, saved))
                else:
                    path.unlink()
            except (OSError, ValueError, RecursionError) as error:
                name = content.get("name") if isinstance(content, dict) else None
                log.warning("the pin %r saved in %s is not restored: %s", name, path, short(error))
        return found

    def _write(self, pin: Pin) -> None:
        path = self._path(pin)
        if path is None:
            return
        saved = SavedPin(
            name=pin.name,
            tenant=pin.tenant.name,
            request=pin.request,
            efforts=list(pin.efforts),
            expires=pin.expires,
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(saved.model_dump()))
            partial.chmod(0o600)
            partial.replace(path)
        except OSError as error:
            log.warning("the pin %s is not saved and ends with this process: %s", pin.name, error)

    def _path(self, pin: Pin) -> Path | None:
        if self.folder is None or pin.from_settings:
            return None
        # Tenants and names differ in letters that a file system may not tell apart.
        digest = sha256(f"{pin.tenant.name}\0{pin.name}".encode()).hexdigest()[:16]
        return self.folder / f"{digest}.json"


def short(error: Exception) -> str:
    """The error without the prompt that pydantic would quote."""
    if not isinstance(error, ValidationError):
        return str(error)
    return from_validation(errors_of(error)).message


def pinned_prompt(
    key: str, effort: str, written: Written, prompt: EnginePrompt, n_prefix: int, info: EngineInfo
) -> PinnedPrompt:
    """The prompt whose prefill leaves the state at the last boundary within its first `n_prefix` tokens.

    The engine keeps the state at floor((n - 1) / unit) * unit of a prompt of n tokens
    (docs/concepts/prefixes.md#how-k3-hits). So all of the prefix is sent, and one token more where it ends
    exactly on a boundary (docs/decisions.md#c01). Speculative decoding backs off one unit.
    """
    unit = info.prefix_unit
    boundary = n_prefix // unit * unit
    n = n_prefix + (1 if n_prefix % unit == 0 else 0)
    if info.speculative:
        boundary = max(boundary - unit, 0)
    media = tuple(placed for placed in prompt.media if placed.offset < n_prefix)
    ids = list(prompt.ids[:n])
    homes = [Home() for _ in range(info.n_data_parallel_ranks)]
    return PinnedPrompt(key, effort, EnginePrompt(ids, media, prompt.cache_salt), written, boundary, homes)
