"""Reads a Messages stream as a careful client does, and says what is wrong with it."""

from __future__ import annotations

import copy
import json
from typing import Any

import anthropic.types as sdk
from pydantic import BaseModel

from tests.conformance.strict import problems

_EVENTS: dict[str, type[BaseModel]] = {
    "message_start": sdk.RawMessageStartEvent,
    "message_delta": sdk.RawMessageDeltaEvent,
    "message_stop": sdk.RawMessageStopEvent,
    "content_block_start": sdk.RawContentBlockStartEvent,
    "content_block_delta": sdk.RawContentBlockDeltaEvent,
    "content_block_stop": sdk.RawContentBlockStopEvent,
}
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
_CUT = ("max_tokens", "model_context_window_exceeded")


class MessagesReader:
    """Feed it `(event, data)` frames; then look at `wrong` and `message`.

    wrong:   one sentence per fault
    seen:    event types in order, of deltas the delta's; repeats in a row, pings and signatures left out
    message: what the events add up to, as a whole reply has it; a call that was cut, which a whole reply
             leaves out, is a block of type `cut_tool_use`
    error:   the error event's `error`, None if there was none
    """

    def __init__(self, stream: list[tuple[str | None, Any]]) -> None:
        self.wrong: list[str] = []
        self.seen: list[str] = []
        self.message: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.n_pings = 0
        self._block: dict[str, Any] | None = None
        self._json = ""
        self._signed = self._ended = False
        for name, data in stream:
            self._expect(not self._ended, f"{data.get('type')} after the end")
            self._expect(
                name == data.get("type"), f"the event line says {name!r}, the data {data.get('type')!r}"
            )
            self._feed(data)
        self._expect(self._ended, "the stream has no end")

    def _feed(self, data: dict[str, Any]) -> None:
        kind = data["type"]
        if kind == "ping":
            self.n_pings += 1
            self._expect(set(data) == {"type"}, "a ping has only a type")
            return
        if kind == "error":
            self.error = data["error"]
            self._ended = True
            return
        if kind not in _EVENTS:
            self.wrong.append(f"unknown event {kind!r}")
            return
        self.wrong += [f"{kind}: {p}" for p in problems(_EVENTS[kind], data)]
        label = data["delta"]["type"] if kind == "content_block_delta" else kind
        self._expect(not self._signed or label == "content_block_stop", f"{label} after the signature")
        self._signed = label == "signature_delta"
        if not self._signed and (not self.seen or self.seen[-1] != label):
            self.seen.append(label)
        getattr(self, f"_{kind}")(data)

    def _message_start(self, data: dict[str, Any]) -> None:
        self._expect(not self.message, "message_start twice")
        self.message = copy.deepcopy(data["message"])
        self._expect(self.message["content"] == [], "message_start has content")
        self._expect(self.message["stop_reason"] is None, "message_start has a stop_reason")

    def _content_block_start(self, data: dict[str, Any]) -> None:
        self._expect(self._block is None, "a block starts while another is open")
        self._expect(data["index"] == len(self.message["content"]), f"block index {data['index']}")
        self._block, self._json = copy.deepcopy(data["content_block"]), ""
        block = self._block
        for field, empty in (("text", ""), ("thinking", ""), ("input", {})):
            self._expect(block.get(field, empty) == empty, f"a block starts with {field}")

    def _content_block_delta(self, data: dict[str, Any]) -> None:
        delta, block = data["delta"], self._block
        if block is None or delta["type"] not in _DELTAS:
            self.wrong.append(f"{delta['type']} is not expected here")
            return
        of, field = _DELTAS[delta["type"]]
        self._expect(data["index"] == len(self.message["content"]), f"delta index {data['index']}")
        self._expect(block["type"] == of, f"{delta['type']} in a {block['type']} block")
        if field == "partial_json":
            self._json += delta[field]
        else:
            block[field] = block.get(field, "") + delta[field]

    def _content_block_stop(self, data: dict[str, Any]) -> None:
        block = self._block
        if block is None:
            self.wrong.append("a block stops that did not start")
            return
        self._expect(data["index"] == len(self.message["content"]), f"stop index {data['index']}")
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(self._json or "{}")
            except ValueError:  # fine if the message turns out to be cut
                block = {"type": "cut_tool_use", "text": self._json}
        self.message["content"].append(block)
        self._block = None

    def _message_delta(self, data: dict[str, Any]) -> None:
        self._expect(self._block is None, "message_delta while a block is open")
        self.message |= {key: value for key, value in data["delta"].items() if value is not None}
        self.message["usage"] = {**self.message["usage"], **data["usage"]}

    def _message_stop(self, data: dict[str, Any]) -> None:
        del data
        reason = self.message.get("stop_reason")
        self._expect(reason is not None, "message_stop without a stop_reason")
        cut = any(block["type"] == "cut_tool_use" for block in self.message["content"])
        self._expect(not cut or reason in _CUT, f"a cut call, and stop_reason {reason}")
        self._ended = True

    def _expect(self, good: bool, fault: str) -> None:
        if not good:
            self.wrong.append(fault)
