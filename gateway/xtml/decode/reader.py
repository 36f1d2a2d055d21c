"""The state of one completion: text and markers in, events out (docs/format.md#reading).

What a completion should look like is a few nested elements; this follows them and repairs what is
missing, repeated, misspelled or out of place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from gateway.xtml.decode.calls import Calls
from gateway.xtml.decode.events import (
    Content,
    Event,
    Reasoning,
    ReasoningClosed,
    ReasoningWasContent,
    Unparsed,
    Why,
)
from gateway.xtml.decode.markers import Marker, MarkerReader
from gateway.xtml.decode.places import CHANNELS, IN_CALL, IN_TOOLS, IN_VALUE, NAMES, At, Channel
from gateway.xtml.decode.stop import StopMatcher
from gateway.xtml.decode.thinking import Special, ThinkingText
from gateway.xtml.decode.toolschema import ToolSchema


class CompletionReader:
    """Reads one completion.

    thinking:    whether it begins inside the thinking channel, else in the response channel
    tools, calls_allowed, new_call_id: see `Calls`
    stop:        finds the strings that end the reply where they appear in its content
    max_calls:   how many calls there may be

    text:        takes ordinary text; changes with the element that the text is in
    events:      where events are added
    channel:     what text is part of at present
    whole_runs:  whether a run of text may be given at once; else token by token, since text may then
                 change the channel, and tokens are counted by channel
    over:        nothing more is read; `stopped` if because of `stop` or `max_calls`
    thinking_was_answer: `ReasoningWasContent` was found
    repairs:     counts by kind
    """

    def __init__(
        self,
        *,
        thinking: bool,
        tools: Mapping[str, ToolSchema],
        calls_allowed: bool,
        new_call_id: Callable[[str], str],
        stop: StopMatcher | None,
        max_calls: int | None,
    ) -> None:
        self.repairs: Counter[str] = Counter()
        self.events: list[Event] = []
        self.text: Callable[[str], None]
        self.channel: Channel
        self.over = False
        self.stopped = False
        self.stop_string: str | None = None
        self.thinking_was_answer = False

        self._stop = stop
        self._max_calls = max_calls
        self._marker = MarkerReader()
        self._thinking = ThinkingText(self.repairs)
        self._blank = ""  # blanks between channels, of no meaning unless an answer without opener begins
        self._outside: list[str] = []
        self._reasoning: list[str] = []  # all of it, for the case that it was the answer
        self._think_open = thinking  # the channel that the completion begins in
        self._answered = not thinking  # a response or a call was begun
        self._tools_seen = self._tools_closed = False
        self._calls = Calls(
            tools,
            allowed=calls_allowed,
            new_call_id=new_call_id,
            repairs=self.repairs,
            emit=lambda event: self.events.append(event),
        )
        self._sinks: dict[At, Callable[[str], None]] = {
            At.THINK: self._think_text,
            At.RESPONSE: self._response_text,
            At.BETWEEN: self._between_text,
            At.TOOLS: self._outside_text,
            At.CALL: self._calls.bare,
            At.ARGUMENT: self._calls.value,
            At.BLOCK: self._calls.block,
            At.ENDED: self._outside_text,
        }
        self._go(At.THINK if thinking else At.RESPONSE)

    @property
    def n_calls(self) -> int:
        """Complete calls so far."""
        return self._calls.n_closed

    def special(self, kind: Special) -> None:
        """A special token."""
        if self._at is At.THINK and self._thinking.holding and self._settle_thinking(kind):
            return
        if kind == "other":
            self.repairs["special_token"] += 1
        elif self._marker.kind:
            self._end_marker(separated=kind == "separator")
        elif kind == "separator":
            self.repairs["stray_separator"] += 1
        if self.over:
            return
        if kind == "open" or kind == "close":
            self._marker.begin(kind)
            self.text = self._marker_text
            self.channel = "other"
            self.whole_runs = False
        elif kind == "end":
            self._end_of_message()

    def end(self, *, cut: bool) -> None:
        """Nothing more follows. `cut`: by the length limit, not by the model."""
        if not self.over:
            if self._at is At.THINK and self._thinking.holding:
                self._settle_thinking("end")
            if self._marker.kind and cut:
                self._drop_cut_marker()
            elif self._marker.kind:
                self._end_marker(separated=False)
            self._cut_call()
            if self._at is At.RESPONSE:
                self._flush_stop()
        self._flush_outside()
        self.over = True

    def _go(self, at: At) -> None:
        self._at = at
        self.text = self._sinks[at]
        self.channel = CHANNELS.get(at, "other")
        self.whole_runs = (
            at in IN_VALUE
            or (at is At.THINK and not self._thinking.at_start)
            or (at is At.RESPONSE and self._stop is None)
        )

    # -- markers

    def _marker_text(self, text: str) -> None:
        if self._marker.feed(text):
            self._end_marker(separated=False)

    def _end_marker(self, *, separated: bool) -> None:
        kind = self._marker.kind
        marker = self._marker.end(separated=separated)
        self._go(self._at)
        if marker.odd and marker.name:
            self.repairs["odd_marker" if separated else "missing_separator"] += 1
        if marker.name is None and kind == "close" and marker.is_blank:
            self.repairs["marker_without_name"] += 1
            self._close(NAMES[self._at])
        elif marker.name is None:
            self.repairs["unknown_marker" if separated else "stray_marker"] += 1
        elif kind == "open":
            self._open(marker)
        else:
            self._close(marker.name)
        if marker.rest and not self.over:
            self.text(marker.rest)

    def _drop_cut_marker(self) -> None:
        """At the end: half a marker is dropped; the header of a call is shown."""
        kind = self._marker.kind
        marker = self._marker.end(separated=False)
        self._go(self._at)
        self.repairs["cut_marker"] += 1
        if kind == "open" and marker.name == "call" and self._at in (At.TOOLS, At.BETWEEN):
            self._unparsed(marker.attributes.get("tool", ""), "cut_call")

    def _open(self, marker: Marker) -> None:
        at = self._at
        match marker.name:
            case "think" if at is At.THINK:
                self.repairs["think_opener_repeated"] += 1
            case "think" | "response" | "tools" if at is At.ENDED:
                self.repairs["after_message"] += 1
            case "think":
                self.repairs["think_reopened"] += 1
                self._leave_channel()
                self._go(At.THINK)
            case "response":
                if at is At.RESPONSE:
                    self.repairs["response_opener_repeated"] += 1
                self._leave_channel()
                self._begin_response()
            case "tools" if at in IN_TOOLS and at not in IN_VALUE:
                self.repairs["tools_opener_repeated"] += 1
            case "tools":
                self._leave_channel()
                self._begin_tools()
            case "call" if at is not At.ENDED:
                self._begin_call(marker.attributes)
            case "argument" if at in IN_CALL:
                self._begin_argument(marker.attributes)
            case "json" if at is At.CALL:
                self._calls.block("")
                self._go(At.BLOCK)
            case "message":
                self.repairs["message_opener"] += 1
            case _:
                self.repairs["misplaced_marker"] += 1

    def _close(self, name: str) -> None:
        at = self._at
        match name:
            case "think" if at is At.THINK:
                self._end_think()
            case "think":
                self.repairs["think_close_repeated"] += 1
            case "response" if at is At.RESPONSE:
                self._end_response()
            case "response" if at is At.THINK:
                self._end_think_by_closer("response_close_in_think")
            case "tools" if at in IN_TOOLS:
                self._end_call_by_closer("tools")
                self._end_tools()
            case "call" if at in IN_CALL:
                self._end_call_by_closer("call")
            case "argument" | "json" if at in IN_VALUE:
                self._end_value()
            case "message" if at is not At.ENDED:
                self._end_message()
            case _:
                self.repairs["misplaced_marker"] += 1

    # -- channels

    def _leave_channel(self) -> None:
        """Another channel opens: whatever is open ends here. A value that is cut so makes no call."""
        match self._at:
            case At.THINK:
                self.repairs["think_close_missing"] += 1
                self._end_think()
            case At.RESPONSE:
                self.repairs["response_close_missing"] += 1
                self._end_response()
            case At.ARGUMENT | At.BLOCK:
                self.repairs["channel_in_value"] += 1
                self._cut_call()
                self._end_tools()
            case At.TOOLS | At.CALL:
                self.repairs["tools_close_missing"] += 1
                self._end_call_by_closer("tools")
                self._end_tools()
        self._blank = ""
        self._flush_outside()

    def _end_think(self) -> None:
        if self._think_open:
            self._think_open = False
            self.events.append(ReasoningClosed())
        self._go(At.BETWEEN)

    def _end_think_by_closer(self, repair: str) -> None:
        """A closer that is not thinking's own: if nothing else was said, it was the answer.

        See docs/decisions.md#d4.
        """
        was_answer = self._think_open and not self._answered
        self.repairs[repair] += 1
        self._end_think()
        if not was_answer:
            return
        self._answered = True
        self.thinking_was_answer = True
        text = "".join(self._reasoning)
        if self._stop:
            text = self._stop.feed(text)
            self._take_stop()
            text += self._stop.flush()
        if self._reasoning:
            self.events.append(ReasoningWasContent(text))

    def _begin_response(self) -> None:
        self._answered = True
        self._go(At.RESPONSE)

    def _end_response(self) -> None:
        self._flush_stop()
        self._go(At.BETWEEN)

    def _begin_tools(self) -> None:
        self._answered = True
        self._tools_closed = self._tools_seen
        self._tools_seen = True
        self._go(At.TOOLS)

    def _end_tools(self) -> None:
        self._flush_outside()
        self._go(At.BETWEEN)

    def _end_message(self) -> None:
        match self._at:
            case At.THINK:
                self._end_think_by_closer("message_close_in_think")
            case At.RESPONSE:
                self.repairs["response_close_missing"] += 1
                self._end_response()
            case at if at in IN_TOOLS:
                self.repairs["tools_close_missing"] += 1
                self._end_call_by_closer("message")
        self._flush_outside()
        self._go(At.ENDED)

    def _end_of_message(self) -> None:
        if self._at is not At.ENDED:
            self.repairs["message_close_missing"] += 1
            self._cut_call()  # nothing says that it was complete
            self._end_message()
        self.over = True

    # -- calls

    def _begin_call(self, attributes: dict[str, str]) -> None:
        if self._at in IN_CALL:
            self._end_call_by_closer("next call")
            if self.over:
                return
        elif self._at is not At.TOOLS:
            self.repairs["tools_opener_missing"] += 1
            self._leave_channel()
            self._begin_tools()
        self._flush_outside()
        self._calls.begin(attributes, ignored=self._tools_closed)
        self._go(At.CALL)

    def _begin_argument(self, attributes: dict[str, str]) -> None:
        if self._at in IN_VALUE:
            self.repairs["argument_close_missing"] += 1
            self._end_value()
        self._calls.begin_argument(attributes)
        self._go(At.ARGUMENT)

    def _end_value(self) -> None:
        if self._at is At.ARGUMENT:
            self._calls.end_argument()
        self._go(At.CALL)

    def _end_call_by_closer(self, closer: str) -> None:
        """Close the open call, if there is one; `closer` may be that of an element around it."""
        if not self._calls.is_open:
            return
        if closer != "call":
            self.repairs["call_close_missing"] += 1
        if self._at in IN_VALUE:
            self.repairs["argument_close_missing"] += 1
            self._end_value()
        self._calls.close()
        self._go(At.TOOLS)
        if self._calls.n_closed == self._max_calls:
            self.stopped = self.over = True

    def _cut_call(self) -> None:
        """The completion ends, or another channel begins, inside a call."""
        if self._calls.is_open:
            self._calls.cut()
            self._go(At.TOOLS)

    # -- text, by the element that it is in

    def _think_text(self, text: str) -> None:
        if self._thinking.holding or "<" in text:
            text = self._thinking.feed(text)
            self.whole_runs = not self._thinking.at_start
        if text:
            self._emit_reasoning(text)

    def _settle_thinking(self, follower: Special) -> bool:
        """Something other than text follows; true if it was the separator of a spelled marker."""
        verdict, text = self._thinking.settle(follower)
        self.whole_runs = True
        if text:
            self._emit_reasoning(text)
        if verdict == "close":
            self._end_think()
        return verdict != "text" and follower == "separator"

    def _emit_reasoning(self, text: str) -> None:
        if self._think_open:
            self._reasoning.append(text)
        self.events.append(Reasoning(text))

    def _response_text(self, text: str) -> None:
        if self._stop:
            text = self._stop.feed(text)
            if text:
                self.events.append(Content(text))
            self._take_stop()
        else:
            self.events.append(Content(text))

    def _take_stop(self) -> None:
        """Note a stop string that was found; what follows it is not read."""
        if self._stop and self._stop.hit is not None:
            self.stop_string = self._stop.hit
            self.stopped = self.over = True

    def _flush_stop(self) -> None:
        if self._stop and (text := self._stop.flush()):
            self.events.append(Content(text))

    def _between_text(self, text: str) -> None:
        if self._answered:
            self._outside_text(text)
            return
        self._blank += text
        if self._blank.isspace():
            return
        # An answer without its opener (docs/decisions.md#d12).
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

    def _unparsed(self, text: str, why: Why) -> None:
        if text:
            self.events.append(Unparsed(text, why))
