"""Reads a completion of Kimi K3 from its token ids, as it is written (spec k3.md part 3).

A marker is a marker only as special ids; the same characters in ordinary tokens are text. What the model
wrote never raises and never shows a marker; what had to be repaired is counted (docs/decoding.md lists
the kinds). Work per token does not grow with the completion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Literal

from gateway.xtml.call_writer import CallWriter
from gateway.xtml.conversation import ToolChoice
from gateway.xtml.events import (
    CallArguments,
    CallClosed,
    CallOpened,
    Content,
    Event,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    Unparsed,
    Why,
)
from gateway.xtml.ids import opaque_call_id
from gateway.xtml.markers import ELEMENTS, LONGEST_NAME, Marker, element_at_start, read_marker
from gateway.xtml.stop import StopMatcher
from gateway.xtml.toolschema import tool_schemas
from gateway.xtml.utf8 import TextDecoder, TokenTable
from gateway.xtml.vocab import Vocab

Channel = Literal["reasoning", "content", "tool", "other"]
FinishReason = Literal["stop", "length", "tool_calls"]

# Thinking may begin with its own opener again, spelled in ordinary pieces (field report A11) ...
_SPELLED_OPENER = re.compile(r"<\|open\|> *think *<\|sep\|>")
_OPENER = "<|open|>think<|sep|>"
_LONGEST_OPENER = 32  # characters, with blanks
# ... and may end with its close spelled so, if nothing but a real marker follows.
_SPELLED_CLOSE = "<|close|>think<|sep|>"
_CLOSE_BEFORE_SEP = "<|close|>think"


class _At(Enum):
    """The element whose body is being read."""

    START = auto()  # of the thinking channel, while a spelled opener may still come
    THINK = auto()
    RESPONSE = auto()
    BETWEEN = auto()  # channels of the message
    TOOLS = auto()
    CALL = auto()
    ARGUMENT = auto()
    BLOCK = auto()  # a json body of a call
    ENDED = auto()  # behind the close of the message


_CHANNELS: dict[_At, Channel] = {
    _At.START: "reasoning",
    _At.THINK: "reasoning",
    _At.RESPONSE: "content",
    _At.ARGUMENT: "tool",
    _At.BLOCK: "tool",
}
_IN_CALL = (_At.CALL, _At.ARGUMENT, _At.BLOCK)
_IN_VALUE = (_At.ARGUMENT, _At.BLOCK)
_IN_TOOLS = (_At.TOOLS, *_IN_CALL)


class Decoder:
    """Decodes one completion.

    vocab:       of the checkpoint that writes it
    thinking:    whether the prompt ends inside the thinking channel (k3.md 2.12)
    start:       the channel that the prompt ends in, where it is not as `thinking` says (partial, 2.15)
    tools:       all declared tools, as the request has them
    tool_choice: with mode `none` no call is let through
    stop:        strings that end the reply where they appear in its content
    new_call_id: makes the id of a call of the tool it is given
    max_calls:   how many calls there may be; the decoder has `stopped` when the last one is complete

    After `feed`, `channels` says for each id fed which channel it is text of ("other": markers, and what
    is outside channels). `n_reasoning`, `n_content`, `n_tool` and `n_other` count all ids in the same way
    (after `ReasoningWasContent` the reasoning counts as content).
    `repairs` counts deviations from the well-formed completion by kind.
    """

    def __init__(
        self,
        vocab: Vocab,
        *,
        thinking: bool = True,
        start: Literal["think", "response"] | None = None,
        tools: Sequence[Any] = (),
        tool_choice: ToolChoice | None = None,
        stop: Sequence[str] = (),
        new_call_id: Callable[[str], str] = opaque_call_id,
        max_calls: int | None = None,
    ) -> None:
        self.repairs: Counter[str] = Counter()
        self.stopped = False  # at a stop string or after max_calls: what follows is not read
        self.stop_string: str | None = None
        self.channels: list[Channel] = []
        self._counts: dict[Channel, int] = {"reasoning": 0, "content": 0, "tool": 0, "other": 0}

        self._vocab = vocab
        self._n_ranks = vocab.n_ranks
        self._text = TextDecoder(TokenTable.of(vocab))
        self._tools = tool_schemas(tools)
        self._calls_allowed = bool(self._tools) and (tool_choice is None or tool_choice.mode != "none")
        self._stop = StopMatcher(stop) if any(stop) else None
        self._new_call_id = new_call_id
        self._max_calls = max_calls

        self._events: list[Event] = []
        self._marker: Literal["open", "close"] | None = None  # of a marker that is being read
        self._header = ""  # its text so far, where the name may still be unknown
        self._header_pieces: list[str] = []  # and what follows
        self._held = ""  # reasoning that may turn out to be a spelled marker
        self._blank = ""  # blanks between channels, of no meaning unless an answer without opener begins
        self._outside: list[str] = []
        self._reasoning: list[str] = []  # all of it, for the case that it was the answer
        self._think_open = start == "think" if start else thinking  # the channel it began in
        self._answered = not self._think_open  # a response or a call was begun
        self._tools_seen = self._tools_closed = False
        self._call: CallWriter | None = None
        self._n_opened = self._n_closed = 0
        self._over = False
        self._channel: Channel = "other"

        self._sinks: dict[_At, Callable[[str], None]] = {
            _At.START: self._start_text,
            _At.THINK: self._think_text,
            _At.RESPONSE: self._response_text,
            _At.BETWEEN: self._between_text,
            _At.TOOLS: self._outside_text,
            _At.CALL: self._call_text,
            _At.ARGUMENT: self._value_text,
            _At.BLOCK: self._block_text,
            _At.ENDED: self._outside_text,
        }
        self._go(_At.START if self._think_open else _At.RESPONSE)

    @property
    def n_reasoning(self) -> int:
        return self._counts["reasoning"]

    @property
    def n_content(self) -> int:
        return self._counts["content"]

    @property
    def n_tool(self) -> int:
        return self._counts["tool"]

    @property
    def n_other(self) -> int:
        return self._counts["other"]

    def feed(self, ids: Sequence[int]) -> list[Event]:
        """What the next `ids` add. How a completion is cut into calls changes only how texts are cut."""
        events: list[Event] = []
        channels: list[Channel] = []
        self._events, self.channels = events, channels
        text, n_ranks, counts = self._text, self._n_ranks, self._counts
        at, n_ids = 0, len(ids)
        while at < n_ids:
            token = ids[at]
            end = at + 1
            if self._over:
                end = n_ids
                self._channel = "other"
                if not self.stopped:
                    self.repairs["after_end"] += n_ids - at
            elif 0 <= token < n_ranks:
                if self._whole_runs and end < n_ids:
                    while end < n_ids and 0 <= ids[end] < n_ranks:
                        end += 1
                    found = text.many(ids[at:end])
                else:
                    found = text.one(token)
                if found:
                    self._sink(found)
            else:
                if text.pending:
                    self._sink(text.flush())
                self._special(token)
            channel = self._channel if 0 <= token < n_ranks else "other"
            counts[channel] += end - at
            channels.extend([channel] * (end - at))
            at = end
        return events

    def finish(self, reason: str) -> list[Event]:
        """The end of the completion, for the engine's `reason`; call it once. A call still open was cut."""
        self._events = []
        if not self._over:
            if self._text.pending:
                self._sink(self._text.flush())
            self._finish_held()
            self._drop_cut_marker()
            self._cut_call()
            if self._at is _At.RESPONSE:
                self._flush_stop()
        self._flush_outside()
        self._over = True
        return self._events

    def finish_reason(self, engine_reason: str) -> FinishReason:
        """OpenAI's finish reason, after `finish`. `tool_calls` only if a call is complete; `length` stays."""
        if engine_reason == "length" and not self.stopped:
            return "length"
        return "tool_calls" if self._n_closed else "stop"

    # -- where we are

    def _go(self, at: _At) -> None:
        self._at = at
        self._sink = self._sinks[at]
        self._channel = _CHANNELS.get(at, "other")
        # Elsewhere ids are taken one by one: a run may change the element, and ids are counted by element.
        self._whole_runs = at in (_At.THINK, *_IN_VALUE) or (at is _At.RESPONSE and self._stop is None)

    def _special(self, token: int) -> None:
        vocab = self._vocab
        if self._held and self._settle_held(token):
            return
        if token == vocab.open or token == vocab.close:
            if self._marker:
                self._end_marker(separated=False)
            self._marker = "open" if token == vocab.open else "close"
            self._header = ""
            self._header_pieces = []
            self._sink = self._marker_text
            self._channel = "other"
            self._whole_runs = False
        elif token == vocab.sep:
            if self._marker:
                self._end_marker(separated=True)
            else:
                self.repairs["stray_separator"] += 1
        elif token == vocab.end_of_msg:
            if self._marker:
                self._end_marker(separated=False)
            self._end_of_message()
        else:
            self.repairs["special_token"] += 1

    # -- markers

    def _marker_text(self, text: str) -> None:
        if len(self._header) >= LONGEST_NAME:
            self._header_pieces.append(text)
            return
        self._header += text
        if len(self._header) >= LONGEST_NAME:
            name = element_at_start(self._header)
            if self._marker == "close" or name is None or not ELEMENTS[name]:
                self._end_marker(separated=False)  # too long for what it is: its separator is missing

    def _end_marker(self, *, separated: bool) -> None:
        kind, text = self._marker, "".join([self._header, *self._header_pieces])
        self._marker = None
        self._go(self._at)
        marker = read_marker(text, separated=separated)
        if marker.odd and marker.name:
            self.repairs["odd_marker" if separated else "missing_separator"] += 1
        if marker.name is None and kind == "close" and not text.strip():
            self.repairs["marker_without_name"] += 1
            self._close_current()
        elif marker.name is None:
            self.repairs["unknown_marker" if separated else "stray_marker"] += 1
        elif kind == "open":
            self._open(marker)
        else:
            self._close(marker.name)
        if marker.rest and not self._over:
            self._sink(marker.rest)

    def _drop_cut_marker(self) -> None:
        """At the end: half a marker is dropped; the header of a call is shown."""
        if self._marker is None:
            return
        kind, text = self._marker, "".join([self._header, *self._header_pieces])
        self._marker = None
        self._go(self._at)
        self.repairs["cut_marker"] += 1
        marker = read_marker(text, separated=False)
        if kind == "open" and marker.name == "call" and self._at in (_At.TOOLS, _At.BETWEEN):
            self._unparsed(marker.attributes.get("tool", ""), "cut_call")

    def _open(self, marker: Marker) -> None:
        at = self._at
        match marker.name:
            case "think" if at in (_At.START, _At.THINK):
                self.repairs["think_opener_repeated"] += 1
            case "think" | "response" | "tools" if at is _At.ENDED:
                self.repairs["after_message"] += 1
            case "think":
                self.repairs["think_reopened"] += 1
                self._leave_channel()
                self._go(_At.THINK)
            case "response":
                if at is _At.RESPONSE:
                    self.repairs["response_opener_repeated"] += 1
                self._leave_channel()
                self._begin_response()
            case "tools" if at in _IN_TOOLS and at not in _IN_VALUE:
                self.repairs["tools_opener_repeated"] += 1
            case "tools":
                self._leave_channel()
                self._begin_tools()
            case "call" if at is not _At.ENDED:
                self._begin_call(marker.attributes)
            case "argument" if at in _IN_CALL:
                self._begin_argument(marker.attributes)
            case "json" if at is _At.CALL:
                assert self._call is not None
                self._call.block("")
                self._go(_At.BLOCK)
            case "message":
                self.repairs["message_opener"] += 1
            case _:
                self.repairs["misplaced_marker"] += 1

    def _close(self, name: str) -> None:
        at = self._at
        match name:
            case "think" if at in (_At.START, _At.THINK):
                self._end_think()
            case "think":
                self.repairs["think_close_repeated"] += 1
            case "response" if at is _At.RESPONSE:
                self._end_response()
            case "response" if at in (_At.START, _At.THINK):
                self._end_think_by_closer("response_close_in_think")
            case "tools" if at in _IN_TOOLS:
                self._end_call_by_closer("tools")
                self._end_tools()
            case "call" if at in _IN_CALL:
                self._end_call_by_closer("call")
            case "argument" | "json" if at in _IN_VALUE:
                self._end_value()
            case "message" if at is not _At.ENDED:
                self._end_message()
            case _:
                self.repairs["misplaced_marker"] += 1

    def _close_current(self) -> None:
        """A close marker without a name closes what is open."""
        names = {
            _At.START: "think",
            _At.THINK: "think",
            _At.RESPONSE: "response",
            _At.TOOLS: "tools",
            _At.CALL: "call",
            _At.ARGUMENT: "argument",
            _At.BLOCK: "json",
            _At.BETWEEN: "message",
        }
        if self._at in names:
            self._close(names[self._at])

    # -- channels

    def _leave_channel(self) -> None:
        """Another channel opens: whatever is open ends here. A value that is cut so makes no call."""
        match self._at:
            case _At.START | _At.THINK:
                self.repairs["think_close_missing"] += 1
                self._end_think()
            case _At.RESPONSE:
                self.repairs["response_close_missing"] += 1
                self._end_response()
            case _At.ARGUMENT | _At.BLOCK:
                self.repairs["channel_in_value"] += 1
                self._cut_call()
                self._end_tools()
            case _At.TOOLS | _At.CALL:
                self.repairs["tools_close_missing"] += 1
                self._end_call_by_closer("tools")
                self._end_tools()
        self._blank = ""
        self._flush_outside()

    def _end_think(self) -> None:
        if self._held:
            self._emit_reasoning(self._held)
            self._held = ""
        if self._think_open:
            self._think_open = False
            self._events.append(ReasoningClosed())
        self._go(_At.BETWEEN)

    def _end_think_by_closer(self, repair: str) -> None:
        """A closer that is not thinking's own: if nothing else was said, it was the answer (3.2, D4)."""
        was_answer = self._think_open and not self._answered
        self.repairs[repair] += 1
        self._end_think()
        if not was_answer:
            return
        self._answered = True
        self._counts["content"] += self._counts["reasoning"]
        self._counts["reasoning"] = 0
        text = "".join(self._reasoning)
        if self._stop:
            text = self._stop.feed(text)
            self._take_stop()
            text += self._stop.flush()
        if self._reasoning:
            self._events.append(ReasoningWasContent(text))

    def _begin_response(self) -> None:
        self._answered = True
        self._go(_At.RESPONSE)

    def _end_response(self) -> None:
        self._flush_stop()
        self._go(_At.BETWEEN)

    def _begin_tools(self) -> None:
        self._answered = True
        self._tools_closed = self._tools_seen
        self._tools_seen = True
        self._go(_At.TOOLS)

    def _end_tools(self) -> None:
        self._flush_outside()
        self._go(_At.BETWEEN)

    def _end_message(self) -> None:
        match self._at:
            case _At.START | _At.THINK:
                self._end_think_by_closer("message_close_in_think")
            case _At.RESPONSE:
                self.repairs["response_close_missing"] += 1
                self._end_response()
            case at if at in _IN_TOOLS:
                self.repairs["tools_close_missing"] += 1
                self._end_call_by_closer("message")
        self._flush_outside()
        self._go(_At.ENDED)

    def _end_of_message(self) -> None:
        if self._at is not _At.ENDED:
            self.repairs["message_close_missing"] += 1
            self._cut_call()  # nothing says that it was complete
            self._end_message()
        self._over = True

    # -- calls

    def _begin_call(self, attributes: dict[str, str]) -> None:
        if self._at in _IN_CALL:
            self._end_call_by_closer("next call")
            if self._over:
                return
        elif self._at is not _At.TOOLS:
            self.repairs["tools_opener_missing"] += 1
            self._leave_channel()
            self._begin_tools()
        self._flush_outside()
        name = attributes.get("tool", attributes.get("name", ""))
        if name not in self._tools and name.strip() in self._tools:
            name = name.strip()
        why: Why | None = None
        if self._tools_closed:
            why = "outside_channels"
            self.repairs["call_after_tools"] += 1
        elif not self._calls_allowed:
            why = "call_not_allowed"
            self.repairs[why] += 1
        elif name not in self._tools:
            why = "undeclared_tool"
            self.repairs[why] += 1
        self._call = CallWriter(name, self._tools.get(name), self.repairs, hidden=why)
        if why is None:
            self._events.append(CallOpened(self._n_opened, self._new_call_id(name), name))
            self._index = self._n_opened
            self._n_opened += 1
        self._go(_At.CALL)

    def _begin_argument(self, attributes: dict[str, str]) -> None:
        assert self._call is not None
        if self._at in _IN_VALUE:
            self.repairs["argument_close_missing"] += 1
            self._end_value()
        self._arguments(self._call.open_argument(attributes.get("key"), attributes.get("type")))
        self._go(_At.ARGUMENT)

    def _end_value(self) -> None:
        assert self._call is not None
        if self._at is _At.ARGUMENT:
            self._arguments(self._call.close_argument())
        self._go(_At.CALL)

    def _end_call_by_closer(self, closer: str) -> None:
        """Close the open call, if there is one; `closer` may be that of an element around it."""
        call = self._call
        if call is None:
            return
        if closer != "call":
            self.repairs["call_close_missing"] += 1
        if self._at in _IN_VALUE:
            self.repairs["argument_close_missing"] += 1
            self._end_value()
        self._call = None
        self._go(_At.TOOLS)
        rest = call.close()
        if call.stray.strip():
            self._unparsed(call.stray, "outside_channels")
        if call.hidden:
            self._unparsed(call.shown(), call.hidden)
        elif rest is None:
            self.repairs["invalid_arguments"] += 1
            self._unparsed(call.shown(), "invalid_arguments")
        else:
            self._events.append(CallArguments(self._index, rest))
            self._events.append(CallClosed(self._index))
            self._n_closed += 1
            if self._n_closed == self._max_calls:
                self.stopped = self._over = True

    def _cut_call(self) -> None:
        """The completion ends, or another channel begins, inside a call: it must not be run."""
        if self._call is not None:
            self.repairs["cut_call"] += 1
            self._unparsed(self._call.shown(), self._call.hidden or "cut_call")
            self._call = None
            self._go(_At.TOOLS)

    def _arguments(self, text: str) -> None:
        if text and self._call is not None and not self._call.hidden:
            self._events.append(CallArguments(self._index, text))

    # -- text, by the element that it is in

    def _start_text(self, text: str) -> None:
        self._held += text
        spelled = _SPELLED_OPENER.match(self._held)
        if spelled:
            self.repairs["think_opener_respelled"] += 1
            text, self._held = self._held[spelled.end() :], ""
        elif _OPENER.startswith(self._held.replace(" ", "")) and len(self._held) <= _LONGEST_OPENER:
            return
        else:
            text, self._held = self._held, ""
        self._go(_At.THINK)
        self._think_text(text)

    def _think_text(self, text: str) -> None:
        if self._held or "<" in text:
            text = self._held + text
            n_held = _overlap(text, _SPELLED_CLOSE)
            self._held = text[len(text) - n_held :]
            text = text[: len(text) - n_held]
        if text:
            self._emit_reasoning(text)

    def _settle_held(self, token: int) -> bool:
        """A special token follows held text, which is a spelled marker or was only text.

        True if the token was the marker's separator.
        """
        held, self._held = self._held, ""
        vocab = self._vocab
        if token == vocab.sep and self._at is _At.START and held.replace(" ", "") == "<|open|>think":
            self.repairs["think_opener_respelled"] += 1
            self._go(_At.THINK)
            return True
        if token == vocab.sep and held == _CLOSE_BEFORE_SEP:
            self.repairs["think_close_respelled"] += 1
            self._end_think()
            return True
        if held == _SPELLED_CLOSE and token in (vocab.open, vocab.close, vocab.end_of_msg):
            self.repairs["think_close_respelled"] += 1
            self._end_think()
            return False
        self._emit_reasoning(held)
        return False

    def _finish_held(self) -> None:
        if self._held and self._held != _SPELLED_CLOSE:
            self._emit_reasoning(self._held)
        elif self._held:
            self.repairs["think_close_respelled"] += 1
        self._held = ""

    def _emit_reasoning(self, text: str) -> None:
        if self._think_open:
            self._reasoning.append(text)
        self._events.append(Reasoning(text))

    def _response_text(self, text: str) -> None:
        if self._stop:
            text = self._stop.feed(text)
            if text:
                self._events.append(Content(text))
            self._take_stop()
        else:
            self._events.append(Content(text))

    def _take_stop(self) -> None:
        """Note a stop string that was found; what follows it is not read."""
        if self._stop and self._stop.hit is not None:
            self.stop_string = self._stop.hit
            self.stopped = self._over = True

    def _flush_stop(self) -> None:
        if self._stop and (text := self._stop.flush()):
            self._events.append(Content(text))

    def _between_text(self, text: str) -> None:
        if self._answered:
            self._outside_text(text)
            return
        self._blank += text
        if self._blank.isspace():
            return
        # An answer without its opener (3.2, D12).
        text, self._blank = self._blank, ""
        self.repairs["response_opener_missing"] += 1
        self._begin_response()
        self._response_text(text)

    def _outside_text(self, text: str) -> None:
        self._outside.append(text)

    def _flush_outside(self) -> None:
        text = "".join(self._outside)
        self._outside = []
        if text.strip():
            self.repairs["text_outside_channels"] += 1
            self._unparsed(text, "outside_channels")

    def _call_text(self, text: str) -> None:
        assert self._call is not None
        self._call.bare(text)

    def _value_text(self, text: str) -> None:
        assert self._call is not None
        self._arguments(self._call.value(text))

    def _block_text(self, text: str) -> None:
        assert self._call is not None
        self._call.block(text)

    def _unparsed(self, text: str, why: Why) -> None:
        if text:
            self._events.append(Unparsed(text, why))


def _overlap(text: str, pattern: str) -> int:
    """Length of the longest suffix of `text` that is a prefix of `pattern`."""
    longest = min(len(text), len(pattern))
    return next((n for n in range(longest, 0, -1) if text.endswith(pattern[:n])), 0)
