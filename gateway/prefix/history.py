"""Puts back the reasoning that a client dropped from its history.

K3 is trained on histories with their reasoning (docs/format.md#kept-thinking), and a turn sent back without
it is another prompt than the one in the cache. Reasoning that this service produced is kept in memory for a
while and restored where the same tenant sends the same turn of the same conversation without it.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

from gateway.xtml import Conversation, MediaPart, Message, Reply

When = Literal["off", "tools", "always"]
_ENTRY_OVERHEAD = 300  # bytes of key and objects around a text, measured roughly


@dataclass(frozen=True, slots=True)
class Repaired:
    """n_restored: turns that got their reasoning back; n_missing: turns for which none is known"""

    conversation: Conversation
    n_restored: int = 0
    n_missing: int = 0


@dataclass(slots=True)
class _Entry:
    reasoning: str
    expires: float

    @property
    def n_bytes(self) -> int:
        return 4 * len(self.reasoning) + _ENTRY_OVERHEAD  # a character takes up to 4 bytes


class HistoryRepair:
    """Reasoning by (tenant, conversation so far, turn): bounded in bytes and in time, never on disk.

    Not one of cachetools' caches: none of them renews an entry's time when it is used.

    when: "always", or "tools": only in conversations that declare tools, where K3 reads it the most
    """

    def __init__(
        self, when: When, max_bytes: int, ttl_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.when = when
        self.max_bytes = max_bytes
        self.ttl_seconds = ttl_seconds
        self.n_bytes = 0
        self.n_restored = 0
        self.n_missing = 0
        self._clock = clock
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def applies_to(self, conversation: Conversation) -> bool:
        """Whether this conversation's turns are kept and restored."""
        if not conversation.thinking or self.when == "off":
            return False
        return self.when == "always" or bool(conversation.declared_tools)

    def repair(self, tenant: str, conversation: Conversation) -> Repaired:
        """The conversation with the reasoning that is known for its assistant turns put back."""
        if not self.applies_to(conversation):
            return Repaired(conversation)
        messages = list(conversation.messages)
        restored = missing = 0
        for index, key in self._turn_keys(tenant, messages):
            if messages[index].reasoning or messages[index].partial:
                continue
            entry = self._get(key)
            if entry is None:
                missing += 1
            elif entry.reasoning:
                messages[index] = replace(messages[index], reasoning=entry.reasoning)
                restored += 1
        self.n_restored += restored
        self.n_missing += missing
        return Repaired(replace(conversation, messages=tuple(messages)), restored, missing)

    def remember(
        self, tenant: str, conversation: Conversation, replies: Iterable[Reply], n_moved: int = 0
    ) -> None:
        """Keep the reasoning of replies; the last `n_moved` messages are not in the client's history."""
        if not self.applies_to(conversation) or conversation.partial:
            return
        before = _start(tenant)
        for message in conversation.messages[: len(conversation.messages) - n_moved]:
            before.update(_digest(message))
        for reply in replies:
            key = before.copy()
            key.update(
                _digest_of("assistant", [reply.content], [(c.name, c.arguments) for c in reply.tool_calls])
            )
            self._put(key.digest(), reply.reasoning)

    def _turn_keys(self, tenant: str, messages: list[Message]) -> Iterator[tuple[int, bytes]]:
        """Index and key of every assistant turn. Reasoning is not part of a key: it may have been dropped."""
        so_far = _start(tenant)
        for index, message in enumerate(messages):
            so_far.update(_digest(message))
            if message.role == "assistant":
                yield index, so_far.copy().digest()

    def _get(self, key: bytes) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires < self._clock():
            self._drop(key)
            return None
        entry.expires = self._clock() + self.ttl_seconds
        self._entries.move_to_end(key)
        return entry

    def _put(self, key: bytes, reasoning: str) -> None:
        self._drop(key)
        entry = _Entry(reasoning, self._clock() + self.ttl_seconds)
        if entry.n_bytes > self.max_bytes:
            return
        self._entries[key] = entry
        self.n_bytes += entry.n_bytes
        # Use renews the time to live, so the first entries are also the first to expire.
        while self._entries:
            oldest = next(iter(self._entries))
            if self.n_bytes <= self.max_bytes and self._entries[oldest].expires >= self._clock():
                break
            self._drop(oldest)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.n_bytes -= entry.n_bytes


def _start(tenant: str) -> Any:
    return blake2b(tenant.encode(), digest_size=16, person=b"k3-history")


def _digest(message: Message) -> bytes:
    parts = [_url_digest(part) if isinstance(part, MediaPart) else part for part in message.parts]
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return _digest_of(message.role, parts, calls)


def _digest_of(role: str, parts: list[str], calls: list[tuple[str, Any]]) -> bytes:
    """Same for a turn and for what clients make of it: text joined and stripped, arguments read as JSON,
    call ids and names of speakers left out."""
    data = [role, "".join(parts).strip(), [(name, _canonical(arguments)) for name, arguments in calls]]
    return blake2b(json.dumps(data).encode(), digest_size=16).digest()


def _url_digest(part: MediaPart) -> str:
    """A data: URL may have megabytes."""
    return blake2b(part.url.encode(errors="replace"), digest_size=16).hexdigest()


def _canonical(arguments: Any) -> str:
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        return json.dumps(value or {}, sort_keys=True)
    except (ValueError, RecursionError):
        return str(arguments)
