"""A generation as Anthropic's messages and events (docs/reference/api.md#messages)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gateway.errors import RequestError
from gateway.generation.generation import Choice, Generation, Progress
from gateway.wire.sse import event_frame
from gateway.xtml import (
    CallArguments,
    CallClosed,
    CallOpened,
    CallResult,
    Content,
    Event,
    Reasoning,
    ReasoningWasContent,
    Reply,
)

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_PING = event_frame("ping", {"type": "ping"})
_DELTA = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)
# The one argument of a call whose arguments cannot be read (docs/decisions.md#r3).
INVALID_ARGUMENTS = "invalid_arguments"


class MessagesReplies:
    """Builds what one Messages request is answered with. One id for all its events."""

    def __init__(self, generation: Generation, *, only_prewarms: bool = False) -> None:
        self.generation = generation
        self.id = f"msg_{generation.id}"
        self.only_prewarms = only_prewarms

    def body(self) -> Json:
        """A whole message."""
        choice = self.generation.choices[0]
        return {
            **self.head(),
            "content": [] if self.only_prewarms else content_blocks(choice.reply(), self),
            "stop_reason": self.stop_reason(choice),
            "stop_sequence": choice.decoder.stop_string,
            "usage": self.usage(),
        }

    def head(self) -> Json:
        """What a message begins with."""
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.generation.request.model}

    def usage(self) -> Json:
        """Token counts; the three of the input add up to the prompt."""
        counts = self.generation.counts
        return {
            "input_tokens": counts.n_prompt - counts.n_cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counts.n_cached,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 0 if self.only_prewarms else counts.n_completion,
            "output_tokens_details": {"thinking_tokens": 0 if self.only_prewarms else counts.n_reasoning},
        }

    def stop_reason(self, choice: Choice) -> str:
        """Why the reply ended, in Anthropic's words."""
        if choice.decoder.stop_string is not None:
            return "stop_sequence"
        if choice.finish_reason == "tool_calls":
            return "tool_use"
        if choice.finish_reason != "length":
            return "end_turn"
        wanted, granted = self.generation.request.options.max_tokens, self.generation.sampling.max_tokens
        cut_by_context = wanted is not None and granted < wanted
        return "model_context_window_exceeded" if cut_by_context else "max_tokens"

    def signature(self) -> str:
        """What a thinking block is signed with: nothing, until turns are sealed."""
        return ""


def content_blocks(reply: Reply, replies: MessagesReplies) -> list[Json]:
    """The blocks of a whole reply: thinking, text, calls."""
    blocks: list[Json] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": replies.signature()})
    if reply.content:
        blocks.append({"type": "text", "text": reply.content})
    for call in reply.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)})
    return blocks


def _input(call: CallResult) -> Json:
    return json.loads(call.arguments) if call.valid_arguments else {INVALID_ARGUMENTS: call.arguments}


class MessagesStream:
    """The events of a streamed reply (`gateway.wire.stream.ReplyStream`)."""

    def __init__(self, replies: MessagesReplies) -> None:
        self.replies = replies
        self._index = -1  # of the block that is open or was last
        self._open: str | None = None  # its type
        self._calls: dict[int, bool] = {}  # call -> whether its arguments are JSON

    def opening(self) -> bytes:
        """`message_start`, with what is known of the prompt by now."""
        message = {
            **self.replies.head(),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self.replies.usage(), "output_tokens": 0},
        }
        return event_frame("message_start", {"type": "message_start", "message": message})

    def feed(self, progress: Progress) -> bytes:
        """The events of one step."""
        if self.replies.only_prewarms:
            return b""
        return b"".join(map(self._event, progress.events))

    def closing(self) -> bytes:
        """`message_delta` with all counts, final, and `message_stop`."""
        choice = self.replies.generation.choices[0]
        usage = self.replies.usage()
        del usage[
            "cache_creation"
        ]  # it is in `message_start`; Anthropic's type of this event does not have it
        delta = {
            "type": "message_delta",
            "delta": {
                "stop_reason": self.replies.stop_reason(choice),
                "stop_sequence": choice.decoder.stop_string,
            },
            "usage": usage,
        }
        if late := self.replies.generation.notes.late():
            delta["k3_notes"] = late
        return (
            self._close()
            + event_frame("message_delta", delta)
            + event_frame("message_stop", {"type": "message_stop"})
        )

    def failed(self, error: RequestError, body: Json) -> bytes:
        """An `error` event in place of the end."""
        return event_frame("error", body)

    def keep_alive(self) -> bytes:
        """A `ping`."""
        return _PING

    def _event(self, event: Event) -> bytes:
        match event:
            case Reasoning(text):
                return self._begin("thinking") + self._delta(b"thinking_delta", b"thinking", text)
            case Content(text) | ReasoningWasContent(text):
                return self._begin("text") + self._delta(b"text_delta", b"text", text)
            case CallOpened(index=index, id=id_, name=name, valid_arguments=valid):
                self._calls[index] = valid
                return self._close() + self._start(
                    "tool_use", {"type": "tool_use", "id": id_, "name": name, "input": {}}
                )
            case CallArguments(index, text):
                if not self._calls[index]:
                    text = json.dumps({INVALID_ARGUMENTS: text}, ensure_ascii=False)
                return self._delta(b"input_json_delta", b"partial_json", text)
            case CallClosed():
                return self._close()
        return b""

    def _begin(self, kind: str) -> bytes:
        """Open a block of `kind` where none is open."""
        if self._open == kind:
            return b""
        block = {"type": "thinking", "thinking": "", "signature": ""}
        if kind == "text":
            block = {"type": "text", "text": ""}
        return self._close() + self._start(kind, block)

    def _start(self, kind: str, block: Json) -> bytes:
        self._index += 1
        self._open = kind
        return event_frame(
            "content_block_start",
            {"type": "content_block_start", "index": self._index, "content_block": block},
        )

    def _delta(self, kind: bytes, field: bytes, text: str) -> bytes:
        return _DELTA % (self._index, kind, field, _encode(text))

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        seal = b""
        if self._open == "thinking" and (signature := self.replies.signature()):
            seal = self._delta(b"signature_delta", b"signature", signature)
        self._open = None
        return seal + event_frame("content_block_stop", {"type": "content_block_stop", "index": self._index})
