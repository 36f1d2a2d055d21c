"""Output items of a response, built from decoded events; each step gives the frames of a stream."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.xtml import (
    CUSTOM_ARGUMENT,
    CallArguments,
    CallClosed,
    CallOpened,
    Content,
    Event,
    Reasoning,
    ReasoningWasContent,
    ToolOrigin,
)

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Frames:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self.n = 0

    def event(self, kind: str, fields: Json) -> bytes:
        """One event."""
        data = _encode({"type": kind, "sequence_number": self.n, **fields})
        self.n += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    def delta(self, template: bytes, text: str) -> bytes:
        """One event of `template`, which has places for its number and for a JSON text."""
        frame = template % (self.n, _encode(text))
        self.n += 1
        return frame


class OutputItems:
    """The items of one response.

    origins:       what tools of the prompt are to the client, where they are not plain functions
    wants_summary: reasoning goes out as its summary
    seals:         reasoning items carry `encrypted_content`
    finished:      items that are complete, in order
    """

    def __init__(self, origins: Mapping[str, ToolOrigin], *, wants_summary: bool, seals: bool) -> None:
        self.frames = Frames()
        self.finished: list[Json] = []
        self._origins = origins
        self._wants_summary = wants_summary
        self._seals = seals
        self._item: Json | None = None
        self._texts: list[str] = []
        self._template = b""
        self._n_added = 0
        self._logprobs: list[Json] = []

    def take(self, event: Event, logprobs: list[Json] | None = None) -> bytes:
        """The frames of one event; `logprobs` are those of a text."""
        match event:
            case Reasoning(text):
                return self._reasoning(text)
            case Content(text) | ReasoningWasContent(text):
                return self._message(text, logprobs or [])
            case CallOpened(id=id_, name=name):
                return self.end() + self._open_call(id_, name)
            case CallArguments(text=text):
                self._texts.append(text)
                return self.frames.delta(self._template, text) if self._template else b""
            case CallClosed():
                return self._close_call()
        return b""

    def end(self, status: str = "completed") -> bytes:
        """Complete the open item. A call that is open was cut: it is never complete."""
        item = self._item
        if item is None:
            return b""
        if item["type"] == "reasoning":
            return self._close_reasoning(item)
        if item["type"] == "message":
            return self._close_message(item, status)
        self._item = None
        return b""

    def set_logprobs(self, logprobs: list[Json]) -> None:
        """Those of the whole message, which is still open or the last one."""
        self._logprobs = logprobs
        for item in self.finished:
            if item["type"] == "message":
                item["content"][0]["logprobs"] = logprobs

    # -- reasoning

    def _reasoning(self, text: str) -> bytes:
        begun = b""
        if self._item is None or self._item["type"] != "reasoning":
            begun = self.end() + self._open(
                {"id": _new_id("rs"), "type": "reasoning", "summary": [], **self._seal("")}
            )
            if self._wants_summary:
                begun += self._part(
                    "response.reasoning_summary_part.added", "summary_index", "summary_text", ""
                )
                self._template = self._delta("response.reasoning_summary_text.delta", b'"summary_index":0,')
            else:
                begun += self._part("response.content_part.added", "content_index", "reasoning_text", "")
                self._template = self._delta("response.reasoning_text.delta", b'"content_index":0,')
        self._texts.append(text)
        return begun + self.frames.delta(self._template, text)

    def _close_reasoning(self, item: Json) -> bytes:
        text = "".join(self._texts)
        if self._wants_summary:
            item["summary"] = [{"type": "summary_text", "text": text}]
            done = self._text_done("response.reasoning_summary_text.done", "summary_index", text)
            done += self._part("response.reasoning_summary_part.done", "summary_index", "summary_text", text)
        else:
            item["content"] = [{"type": "reasoning_text", "text": text}]
            done = self._text_done("response.reasoning_text.done", "content_index", text)
            done += self._part("response.content_part.done", "content_index", "reasoning_text", text)
        return done + self._done(item, self._seal(text))

    def _seal(self, text: str) -> Json:
        """What carries the turn through clients that keep no reasoning: nothing, until turns are sealed."""
        return {"encrypted_content": None} if self._seals else {}

    # -- messages

    def _message(self, text: str, logprobs: list[Json]) -> bytes:
        begun = b""
        if self._item is None or self._item["type"] != "message":
            opening = {
                "id": _new_id("msg"),
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            begun = self.end() + self._open(opening)
            begun += self._message_part("response.content_part.added", "", [])
            self._template = self._delta("response.output_text.delta", b'"content_index":0,"logprobs":[],')
            self._logprobs = []
        self._texts.append(text)
        if not logprobs:
            return begun + self.frames.delta(self._template, text)
        self._logprobs += logprobs
        return begun + self._event(
            "response.output_text.delta", {"content_index": 0, "delta": text, "logprobs": logprobs}
        )

    def _close_message(self, item: Json, status: str) -> bytes:
        text = "".join(self._texts)
        item["content"] = [self._output_text(text, self._logprobs)]
        done = self._event(
            "response.output_text.done", {"content_index": 0, "text": text, "logprobs": self._logprobs}
        )
        done += self._message_part("response.content_part.done", text, self._logprobs)
        return done + self._done(item, {"status": status})

    def _message_part(self, kind: str, text: str, logprobs: list[Json]) -> bytes:
        return self._event(kind, {"content_index": 0, "part": self._output_text(text, logprobs)})

    @staticmethod
    def _output_text(text: str, logprobs: list[Json]) -> Json:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    # -- calls

    def _open_call(self, call_id: str, name: str) -> bytes:
        origin = self._origins.get(name, ToolOrigin(name))
        item: Json = {"id": "", "type": "", "status": "in_progress", "call_id": call_id, "name": origin.name}
        if origin.namespace is not None:
            item["namespace"] = origin.namespace
        if origin.kind == "custom":
            item |= {"id": _new_id("ctc"), "type": "custom_tool_call", "input": ""}
            self._template = b""  # its text is known when the arguments are whole
        else:
            item |= {"id": _new_id("fc"), "type": "function_call", "arguments": ""}
        begun = self._open(item)
        if origin.kind != "custom":
            self._template = self._delta("response.function_call_arguments.delta", b"")
        return begun

    def _close_call(self) -> bytes:
        item = self._item
        assert item is not None
        arguments = "".join(self._texts)
        if item["type"] == "function_call":
            item["arguments"] = arguments
            fields = {"arguments": arguments, "name": item["name"]}
            return self._event("response.function_call_arguments.done", fields) + self._completed(item)
        text = item["input"] = _custom_input(arguments)
        kind = "response.custom_tool_call_input"
        return (
            self._event(f"{kind}.delta", {"delta": text})
            + self._event(f"{kind}.done", {"input": text})
            + self._completed(item)
        )

    def _completed(self, item: Json) -> bytes:
        return self._done(item, {"status": "completed"})

    # -- any item

    def _open(self, item: Json) -> bytes:
        self._item = item
        self._texts = []
        frame = self.frames.event(
            "response.output_item.added", {"output_index": self._n_added, "item": dict(item)}
        )
        self._n_added += 1
        return frame

    def _done(self, item: Json, fields: Json) -> bytes:
        item |= fields
        self.finished.append(item)
        self._item = None
        self._template = b""
        return self.frames.event(
            "response.output_item.done", {"output_index": self._n_added - 1, "item": item}
        )

    def _event(self, kind: str, fields: Json) -> bytes:
        assert self._item is not None
        place = {"item_id": self._item["id"], "output_index": self._n_added - 1}
        return self.frames.event(kind, {**place, **fields})

    def _part(self, kind: str, index: str, part: str, text: str) -> bytes:
        return self._event(kind, {index: 0, "part": {"type": part, "text": text}})

    def _text_done(self, kind: str, index: str, text: str) -> bytes:
        return self._event(kind, {index: 0, "text": text})

    def _delta(self, kind: str, place: bytes) -> bytes:
        """A template for `Frames.delta`."""
        assert self._item is not None
        return (
            b"event: %b\ndata: " % kind.encode()
            + b'{"type":"%b","item_id":"%b","output_index":%d,'
            % (kind.encode(), self._item["id"].encode(), self._n_added - 1)
            + place
            + b'"sequence_number":%d,"delta":%b}\n\n'
        )


def _custom_input(arguments: str) -> str:
    """The text of a custom tool's call; what is not its one argument is given as it was written."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = found.get(CUSTOM_ARGUMENT) if isinstance(found, dict) else None
    return text if isinstance(text, str) else arguments


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:24]}"
