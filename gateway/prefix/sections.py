"""What recent prompts were made of: digests of their sections, as a tree that branches where prompts differ.

All digests are of what is written into the prompt, not of how the client spelled it (docs/decisions.md#r30).
Only digests and token counts are kept, no text and no ids. A prompt is looked up and added in as many steps
as it has sections, and a section is looked into (for the names of its parts) only when it is new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from cachetools import LRUCache

from gateway.xtml import (
    Conversation,
    MediaPart,
    Message,
    Prompt,
    RawArguments,
    Reply,
    Section,
    read_arguments,
)

_KINDS = ("tools", "effort", "message")  # those that later prompts begin with too, in prompt order
_MESSAGEPACK = msgspec.msgpack.Encoder(enc_hook=str)

Parts = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Node:
    """A section in its place behind all sections before it.

    end:      tokens up to and with this section
    parts:    name and digest of what the section says, to name what differs
    next:     key of the section that came behind it last time
    n_prompt: tokens of the last prompt that went through here
    boundary: largest cache boundary inside this section at which a prompt left its state, 0 = none
    ranks:    bit r is set if data-parallel rank r has seen the prefix up to here
    """

    kind: str
    end: int
    parts: Parts
    next: bytes | None = None
    n_prompt: int = 0
    boundary: int = 0
    ranks: int = 0
    completion: tuple[int, bytes] | None = None  # tokens and digest of the last completion right behind


@dataclass(slots=True)
class Match:
    """How a prompt lies in the tree.

    keys:         of the prompt's lasting sections
    known:        nodes of its first sections, those that were seen before
    n_shared:     tokens in common with earlier prompts and their completions (a lower bound: the section that
                  differs counts as different from its start)
    changed:      where it differs from the last prompt that began alike, e.g. `messages[3].content`; None
                  if it only goes on
    changed_kind: tools, effort or message
    n_before:     tokens of that last prompt
    """

    keys: list[bytes]
    known: list[Node]
    n_shared: int = 0
    changed: str | None = None
    changed_kind: str | None = None
    n_before: int = 0


class Written:
    """A prompt and what it was made from.

    n_moved: messages at the end that the next prompt will not have in this place
    """

    def __init__(self, prompt: Prompt, conversation: Conversation, n_moved: int = 0) -> None:
        self.prompt = prompt
        self.conversation = conversation
        self.n_moved = n_moved
        self._lasting: tuple[int, tuple[Section, ...]] | None = None
        self._keys: tuple[str, list[bytes]] | None = None
        self._parts: dict[int, Parts] = {}

    @property
    def lasting(self) -> tuple[Section, ...]:
        """Sections that later prompts begin with too; behind them stand notes and the opener."""
        if self._lasting is None or self._lasting[0] != self.n_moved:
            n_messages = len(self.conversation.messages)
            moved = {f"messages[{i}]" for i in range(n_messages - self.n_moved, n_messages)}
            found = tuple(s for s in self.prompt.sections if s.kind in _KINDS and s.path not in moved)
            self._lasting, self._keys = (self.n_moved, found), None
        return self._lasting[1]

    def keys(self, cache: str) -> list[bytes]:
        """Of the lasting sections under `Tenant.cache`: each covers all sections before it."""
        lasting = self.lasting
        if self._keys is None or self._keys[0] != cache:
            key = _root(cache)
            self._keys = (cache, [key := _child(key, section) for section in lasting])
        return self._keys[1]

    def parts(self, index: int) -> Parts:
        """What the lasting section `index` says, by names."""
        found = self._parts.get(index)
        if found is None:
            found = self._parts[index] = section_parts(self.lasting[index], self.conversation)
        return found


class SectionTree:
    """The last `max_nodes` sections of all tenants; those not met for the longest time go first."""

    def __init__(self, max_nodes: int = 65_536) -> None:
        self.max_nodes = max_nodes
        self._nodes: LRUCache[bytes, Node] = LRUCache(max_nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def match(self, cache: str, written: Written) -> Match:
        """Compare a prompt with what was sent before under the same `Tenant.cache`."""
        keys = written.keys(cache)
        known: list[Node] = []
        last = self._nodes.get(_root(cache))
        for key in keys:
            node = self._nodes.get(key)
            if node is None:
                break
            known.append(node)
            last = node
        match = Match(keys, known, n_shared=known[-1].end if known else 0)
        if last is not None:
            match.n_before = last.n_prompt
            self._compare(match, last, written)
        return match

    def look_ahead(self, cache: str, written: Written) -> None:
        """Do the digests that `match` and `add` will need; may run in any thread."""
        for index, key in enumerate(written.keys(cache)):
            if key not in self._nodes:
                written.parts(index)

    def add(self, cache: str, written: Written, match: Match, boundary: int, rank: int) -> None:
        """Remember a prompt that `rank` works on; `boundary`: where it leaves its state, in tokens."""
        n_prompt = len(written.prompt.ids)
        root = self._nodes.setdefault(_root(cache), Node("", 0, ()))
        above, start = root, 0
        last = len(match.keys) - 1
        for index, (key, section) in enumerate(zip(match.keys, written.lasting, strict=True)):
            node = self._nodes.get(key)
            if node is None:
                node = Node(section.kind, section.end, written.parts(index))
                self._nodes[key] = node
            # Behind the last lasting section stand only notes and the opener, which belong to it here.
            if start < boundary and (boundary <= section.end or index == last):
                node.boundary = max(node.boundary, boundary)
            node.ranks |= 1 << rank
            node.n_prompt = n_prompt
            above.next, above = key, node
            start = section.end
        root.n_prompt = n_prompt
        above.next = None

    def add_reply(self, match: Match, written: Written, reply: Reply, completion: Sequence[int]) -> None:
        """What was answered: the next prompt is expected to go on with it."""
        node = self._nodes.get(match.keys[-1]) if match.keys else None
        if node is None:
            return
        calls = [(call.name, _written_arguments(call.arguments)) for call in reply.tool_calls]
        reasoning = reply.reasoning if written.conversation.thinking else None
        parts = _message_parts("assistant", [reply.content] if reply.content else [], reasoning, calls, "")
        end = len(written.prompt.ids) + len(completion)
        expected = Node("message", end, parts, n_prompt=end)
        # A key that no section has: the client's message makes a node of its own when it comes.
        key = blake2b(match.keys[-1] + b"reply", digest_size=16).digest()
        self._nodes[key] = expected
        node.next = key
        node.completion = (len(completion), _ids_digest(completion))

    def forget_rank(self, rank: int) -> None:
        """The cache of `rank` is empty."""
        for node in self._nodes.values():
            node.ranks &= ~(1 << rank)

    def _compare(self, match: Match, last: Node, written: Written) -> None:
        """Fill in what differs behind `last`, the deepest known node."""
        lasting, index = written.lasting, len(match.known)
        if index == len(lasting):
            return
        section = lasting[index]
        if last.completion is not None and section.kind == "message":
            length, digest = last.completion
            ids = written.prompt.ids[section.start : section.end]
            if len(ids) >= length and _ids_digest(ids[len(ids) - length :]) == digest:
                match.n_shared = section.end  # the model's own words, sent back as they were
        before = self._nodes.get(last.next) if last.next is not None else None
        if before is None:
            return
        parts = written.parts(index)
        if before.kind == section.kind and before.parts == parts:
            return
        kinds = [kind for kind in (before.kind, section.kind) if kind in _KINDS]
        match.changed_kind = min(kinds, key=_KINDS.index)
        match.changed = _name_change(before, section, parts, match.changed_kind)
        match.n_before = before.n_prompt


def section_parts(section: Section, conversation: Conversation) -> Parts:
    """The parts that a section is named by where it differs: `tools[2]`, `messages[3].content`, ..."""
    if section.path == "tools":
        return tuple((f"tools[{i}]", _tool_digest(tool)) for i, tool in enumerate(conversation.tools))
    if section.kind == "effort":
        return (("effort", _digest(conversation.effort)),)
    message = conversation.messages[int(section.path.removeprefix("messages[").removesuffix("]"))]
    if message.tools:
        return tuple((f"tools[{i}]", _tool_digest(tool)) for i, tool in enumerate(message.tools))
    return _parts_of(message, thinking=conversation.thinking)


def _parts_of(message: Message, thinking: bool) -> Parts:
    texts = [_media_name(part) if isinstance(part, MediaPart) else part for part in message.parts]
    calls = [(call.name, _written_arguments(call.arguments)) for call in message.tool_calls]
    reasoning = (message.reasoning or "") if thinking or message.role != "assistant" else None
    name = message.tool if message.role == "tool" else message.name
    return _message_parts(message.role, texts, reasoning, calls, name or "")


def _written_arguments(arguments: str | dict[str, Any] | None) -> Any:
    """Arguments as the prompt has them: the same for all spellings that are written alike."""
    found = read_arguments(arguments)
    if isinstance(found, RawArguments):
        return found.text
    return [(argument.key, argument.type, argument.text) for argument in found]


def _message_parts(role: str, texts: list[str], reasoning: str | None, calls: list[Any], name: str) -> Parts:
    """Reasoning None: the prompt has no thinking channels."""
    parts = [("role", _digest(role)), ("content", _digest(texts))]
    if role == "assistant":
        parts += [("reasoning_content", _digest(reasoning)), ("tool_calls", _digest(calls))]
    else:
        parts.append(("name", _digest(name)))
    return tuple(parts)


def _name_change(before: Node, section: Section, parts: Parts, kind: str) -> str:
    if kind == "effort":
        return "effort"
    if before.kind != section.kind:
        return "tools" if kind == "tools" else section.path
    old = dict(before.parts)
    for name, digest in parts:
        if old.get(name) != digest:
            break
    else:  # all that is there is as before: something is missing at the end
        name = f"tools[{len(parts)}]" if section.path == "tools" else ""
    if section.path == "tools" or not name:
        return name or section.path
    return f"{section.path}.{name}"


def _media_name(part: MediaPart) -> str:
    """A data URL may have megabytes, and hashing lets other threads on where writing them again would not."""
    return (
        f"{part.kind} {part.detail} {blake2b(part.url.encode(errors='replace'), digest_size=16).hexdigest()}"
    )


def _root(cache: str) -> bytes:
    return blake2b(cache.encode(), digest_size=16, person=b"k3-prefix").digest()


def _child(key: bytes, section: Section) -> bytes:
    return blake2b(key + section.digest.encode(), digest_size=16).digest()


def _tool_digest(tool: dict[str, Any]) -> bytes:
    try:
        data = json.dumps(tool, sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError):
        return _digest(tool)
    return blake2b(data, digest_size=8).digest()


def _digest(value: Any) -> bytes:
    try:
        data = _MESSAGEPACK.encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        data = repr(value).encode(errors="replace")
    return blake2b(data, digest_size=8).digest()


def _ids_digest(ids: Sequence[int]) -> bytes:
    return blake2b(_MESSAGEPACK.encode(list(ids)), digest_size=16).digest()
