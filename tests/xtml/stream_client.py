"""A client of a streamed reply: it knows only what comes over the wire."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.xtml import (
    CallArguments,
    CallOpened,
    Content,
    Event,
    Reasoning,
    ReasoningWasContent,
    Unparsed,
)


def deltas(events: Iterable[Event]) -> Iterable[dict[str, Any]]:
    """The deltas of a chat stream, through JSON as on the wire."""
    for event in events:
        delta: dict[str, Any]
        match event:
            case Reasoning(text):
                delta = {"reasoning_content": text}
            case Content(text) | ReasoningWasContent(text):
                delta = {"content": text}
            case CallOpened(index=index, id=id_, name=name):
                delta = {"call": {"index": index, "id": id_, "name": name, "arguments": ""}}
            case CallArguments(index, text):
                delta = {"call": {"index": index, "arguments": text}}
            case Unparsed(text, why):
                delta = {"unparsed": text, "why": why}
            case _:
                continue
        yield msgspec.json.decode(msgspec.json.encode(delta))


class Assembled:
    """What an SDK puts together from deltas: texts are joined, calls are joined by index."""

    def __init__(self, events: Iterable[Event], finish_reason: str) -> None:
        self.reasoning = self.content = ""
        self.announced: dict[int, dict[str, Any]] = {}
        self.unparsed: list[str] = []
        self.finish_reason = finish_reason
        for delta in deltas(events):
            self.reasoning += delta.get("reasoning_content", "")
            self.content += delta.get("content", "")
            if "unparsed" in delta:
                self.unparsed.append(delta["unparsed"])
            if (piece := delta.get("call")) is not None:
                call = self.announced.setdefault(piece["index"], dict.fromkeys(("id", "name"), None))
                call |= {key: piece[key] for key in ("id", "name") if key in piece}
                call["arguments"] = call.get("arguments", "") + piece["arguments"]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of the calls that a client runs.

        After `length` a call whose arguments are not JSON was cut, and is not run; after any other finish
        reason every call is.
        """
        found = [(c["id"], c["name"], c["arguments"]) for _, c in sorted(self.announced.items())]
        return [c for c in found if self.finish_reason != "length" or is_json(c[2])]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
