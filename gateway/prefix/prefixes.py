"""What the service does for prompt prefixes, in the order in which a request meets it:

tenant -> stability -> history repair -> (encode) -> routing -> (engine) -> explanation
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.types import EngineInfo
from gateway.prefix.explain import Account, account
from gateway.prefix.history import HistoryRepair
from gateway.prefix.routing import Router
from gateway.prefix.sections import Match, SectionTree, Written
from gateway.prefix.stability import Stabilised, Stability
from gateway.prefix.tenants import Tenant, shared_tenant, tenant_of
from gateway.settings import Settings
from gateway.xtml import Conversation, Event, fold


@dataclass(slots=True)
class Run:
    """A prompt on its way through the engine."""

    tenant: Tenant
    written: Written
    match: Match
    account: Account
    events: list[list[Event]]
    ids: list[list[int]]

    def written_by_model(self, index: int, ids: Sequence[int], events: Iterable[Event]) -> None:
        """A step of choice `index`."""
        self.ids[index] += ids
        self.events[index] += events


class Prefixes:
    """One for all requests. `attach` tells it about the engine; until then there is one rank and no pin."""

    def __init__(self, settings: Settings) -> None:
        self.isolation = settings.cache_isolation
        self.stability = Stability(sort_tools=settings.sort_tools, volatile_lines=settings.volatile_lines)
        self.history = HistoryRepair(
            settings.history_repair, settings.history_bytes, settings.history_ttl_seconds
        )
        self.tree = SectionTree(settings.prefix_sections)
        self.router = Router()
        self.unit = 128
        self.changes: Counter[str] = Counter()  # by section kind
        self.lost: Counter[str] = Counter()  # tokens, by cause

    def attach(self, info: EngineInfo) -> None:
        """Called when the engine is up."""
        self.unit = info.prefix_unit
        self.router = Router(info.n_data_parallel_ranks, unit=self.unit)

    def tenant(self, key: str | None, user: str | None, *, shared: bool = False) -> Tenant:
        """`shared`: the request asks for the shared part of the cache, and gives its own up."""
        return shared_tenant(self.isolation) if shared else tenant_of(self.isolation, key, user)

    def prepare(self, tenant: Tenant, conversation: Conversation) -> tuple[Stabilised, dict[str, str]]:
        """The conversation as it is to be rendered, and the notes that tell what was done."""
        notes = {}
        stable = self.stability.apply(conversation)
        if stable.notes:
            notes["stability"] = " ".join(stable.notes)
        if self.history.applies_to(stable.conversation):
            repaired = self.history.repair(tenant.name, stable.conversation)
            if repaired.n_restored or repaired.n_missing:
                notes["history-repair"] = f"restored={repaired.n_restored} missing={repaired.n_missing}"
            stable = Stabilised(repaired.conversation, stable.notes, stable.n_moved)
        return stable, notes

    def explain(self, tenant: Tenant, written: Written, hint: str | None = None) -> tuple[Account, Match]:
        """What would become of a prompt; nothing is remembered."""
        match = self.tree.match(tenant.cache, written)
        rank = self.router.choose(match, hint)
        return account(match, len(written.prompt.ids), self.unit, rank), match

    @contextmanager
    def running(self, tenant: Tenant, written: Written, hint: str | None, n: int = 1) -> Iterator[Run]:
        """Choose a rank for a prompt with `n` choices, and count it there while it runs."""
        match = self.tree.match(tenant.cache, written)
        n_prompt = len(written.prompt.ids)
        rank = self.router.choose(match, hint)
        expected = account(match, n_prompt, self.unit, rank)
        self.tree.add(tenant.cache, written, match, (n_prompt - 1) // self.unit * self.unit, rank)
        if expected.changed_kind:
            self.changes[expected.changed_kind] += 1
        with self.router.load(rank):
            yield Run(tenant, written, match, expected, [[] for _ in range(n)], [[] for _ in range(n)])

    def finish(self, run: Run) -> None:
        """All choices are whole: remember what was said, and count."""
        done, written = run.account, run.written
        self.lost["eviction"] += done.lost_to_eviction or 0
        self.lost["boundary"] += done.lost_to_boundary
        self.lost["change"] += done.lost_to_change
        replies = [fold(events) for events in run.events]
        self.history.remember(run.tenant.name, written.conversation, replies, written.n_moved)
        if not written.conversation.partial and not written.n_moved:
            self.tree.add_reply(run.match, written, replies[0], run.ids[0])
