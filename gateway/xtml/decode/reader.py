"""The state of one completion: text and markers in, events out (docs/format.md#reading).

What a completion should look like is a few nested elements; this follows them and repairs what is
missing, repeated, misspelled or out of place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from gateway.xtml.conversation import ToolChoice
from gateway.xtml.decode.answer import Answer
from gateway.xtml.decode.calls import Calls
from gateway.xtml.decode.events import Outbox, Unparsed, Why
from gateway.xtml.decode.markers import Marker, MarkerReader
from gateway.xtml.decode.places import CHANNELS, IN_CALL, IN_TOOLS, IN_VALUE, NAMES, At, Channel
from gateway.xtml.decode.stop import StopMatcher
from gateway.xtml.decode.thinking import Special, ThinkingText
from gateway.xtml.decode.toolschema import ToolSchema


class CompletionReader:
    """Reads one completion.

    starts_in_thinking: whether it begins inside the thinking channel, else in the response channel
    shows_reasoning, stop: see `Answer`
    tools, tool_choice, new_call_id: see `Calls`
    passes_faulty_calls: whether calls that cannot be run are passed where nothing else was said
    max_calls:   how many calls there may be

    text:        takes ordinary text; changes with the element that the text is in
    out:         where events are added
    channel:     what text is part of at present
    whole_runs:  whether a run of text may be given at once; else token by token, since text may then
                 change the channel, and tokens are counted by channel
    over:        nothing more is read; `stopped` if because of `stop` or `max_calls`
    answer, calls: what became of them
    repairs:     counts by kind
    """

    def __init__(
        self,
        *,
        starts_in_thinking: bool,
        shows_reasoning: bool,
        tools: Mapping[str, ToolSchema],
        tool_choice: ToolChoice,
        passes_faulty_calls: bool,
        new_call_id: Callable[[str], str],
        stop: StopMatcher | None,
        max_calls: int | None,
    ) -> None:
        self.repairs: Counter[str] = Counter()
        self.out = Outbox()
        self.text: Callable[[str], None]
        self.channel: Channel
        self.over = False
        self.stopped = False
        self.answer = Answer(
            self.out, starts_in_thinking=starts_in_thinking, shows_reasoning=shows_reasoning, stop=stop
        )
        self.calls = Calls(
            tools, choice=tool_choice, new_call_id=new_call_id, repairs=self.repairs, out=self.out
        )

        self._has_stop = stop is not None
        self._max_calls = max_calls
        self._passes_faulty_calls = passes_faulty_calls
        self._marker = MarkerReader()
        self._thinking = ThinkingText(self.repairs)
        self._blanks: list[str] = []  # between channels; they count only if an answer begins or goes on
        self._outside: list[str] = []
        self._tools_seen = self._tools_closed = False
        self._closed_in_thinking = False  # the message, and nothing has followed
        self._in_block = False  # a json block is open that an argument interrupted
        self._json_in_value = False  # a json block was opened inside a value
        self._sinks: dict[At, Callable[[str], None]] = {
            At.THINK: self._think_text,
            At.RESPONSE: self._response_text if stop else self.answer.content,
            At.BETWEEN: self._between_text,
            At.TOOLS: self._outside.append,
            At.CALL: self.calls.bare,
            At.ARGUMENT: self.calls.value,
            At.BLOCK: self.calls.block,
            At.ENDED: self._outside.append,
        }
        self._go(At.THINK if starts_in_thinking else At.RESPONSE)

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
                self.answer.end(interrupted=False)
        self._settle_answer()
        self._flush_outside()
        said = self.answer.sent_content or self.calls.n_closed or self.calls.left_open
        if self._passes_faulty_calls and not cut and not said:
            self.calls.pass_faulty(self._max_calls)
        else:
            self.calls.show_faulty()
        self.over = True

    def _go(self, at: At) -> None:
        self._at = at
        self.text = self._sinks[at]
        self.channel = CHANNELS.get(at, "other")
        self.whole_runs = (
            at in IN_VALUE
            or (at is At.THINK and not self._thinking.at_start)
            or (at is At.RESPONSE and not self._has_stop)
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
        """At the end: half a marker is dropped; the header of a call is shown, and text behind is text."""
        if self._marker.has_text_behind:
            self._end_marker(separated=False)
            return
        kind = self._marker.kind
        marker = self._marker.end(separated=False)
        self._go(self._at)
        self.repairs["cut_marker"] += 1
        if kind == "open" and marker.name == "response":
            self.answer.begin()
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
                self.calls.block("")
                self._in_block = False
                self._go(At.BLOCK)
            case "message" if at is not At.ENDED and _is_of_another_role(marker):
                self.repairs["other_message_opener"] += 1
                self._cut_call()  # nothing says that it was complete
                self._end_message(for_good=True)
            case "message":
                self.repairs["message_opener"] += 1
            case _:
                self._json_in_value = marker.name == "json" and at is At.ARGUMENT
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
                self.repairs["response_close_in_think"] += 1
                self._end_think(by_own_closer=False)
            case "response" if at is At.BETWEEN and self.answer.interrupted:
                self.answer.interrupted = False
            case "tools" if at in IN_TOOLS:
                self._end_call_by_closer("tools")
                self._end_tools()
            case "call" if at in IN_CALL:
                self._end_call_by_closer("call")
            case "json" if self._json_in_value:
                self._json_in_value = False
                self.repairs["misplaced_marker"] += 1
            case "argument" | "json" if at in IN_VALUE:
                self._end_value()
                if self._in_block:
                    self._in_block = False
                    self._go(At.BLOCK)
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
                self._end_response(interrupted=True)
            case At.ARGUMENT | At.BLOCK:
                self.repairs["channel_in_value"] += 1
                self._cut_call()
                self._end_tools()
            case At.TOOLS | At.CALL:
                self.repairs["tools_close_missing"] += 1
                self._end_call_by_closer("tools")
                self._end_tools()
        self._closed_in_thinking = False
        self._blanks.clear()
        self._flush_outside()

    def _end_think(self, *, by_own_closer: bool = True) -> None:
        self.answer.thinking_closed(by_own_closer=by_own_closer)
        self._go(At.BETWEEN)

    def _settle_answer(self) -> None:
        """No response follows."""
        self.answer.settle()
        if self.answer.stop_string is not None:
            self.stopped = self.over = True

    def _begin_response(self) -> None:
        self.answer.begin()
        self._go(At.RESPONSE)

    def _end_response(self, *, interrupted: bool = False) -> None:
        self.answer.end(interrupted=interrupted)
        self._go(At.BETWEEN)

    def _begin_tools(self) -> None:
        self.answer.begun = True
        self._tools_closed = self._tools_seen
        self._tools_seen = True
        self._go(At.TOOLS)

    def _end_tools(self) -> None:
        self._flush_outside()
        self._go(At.BETWEEN)

    def _end_message(self, *, for_good: bool = False) -> None:
        """The message ends. Where its close stands in thinking a response may follow, if not `for_good`."""
        match self._at:
            case At.THINK:
                self.repairs["message_close_in_think"] += 1
                self._end_think(by_own_closer=False)
                if self.answer.may_be_thinking and not for_good:
                    self._closed_in_thinking = True
                    return
            case At.RESPONSE:
                self.repairs["response_close_missing"] += 1
                self._end_response()
            case at if at in IN_TOOLS:
                self.repairs["tools_close_missing"] += 1
                self._end_call_by_closer("message")
        self._settle_answer()
        self._flush_outside()
        self._go(At.ENDED)

    def _end_of_message(self) -> None:
        if self._at is not At.ENDED:
            if not self._closed_in_thinking:
                self.repairs["message_close_missing"] += 1
            self._cut_call()  # nothing says that it was complete
            self._end_message(for_good=True)
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
        self.calls.begin(attributes, ignored=self._tools_closed)
        self._in_block = False
        self._go(At.CALL)

    def _begin_argument(self, attributes: dict[str, str]) -> None:
        if self._at in IN_VALUE:
            self.repairs["argument_close_missing"] += 1
            self._in_block = self._at is At.BLOCK
            self._end_value()
        self.calls.begin_argument(attributes)
        self._go(At.ARGUMENT)

    def _end_value(self) -> None:
        if self._at is At.ARGUMENT:
            self.calls.end_argument()
        self._json_in_value = False
        self._go(At.CALL)

    def _end_call_by_closer(self, closer: str) -> None:
        """Close the open call, if there is one; `closer` may be that of an element around it."""
        if not self.calls.is_open:
            return
        if closer != "call":
            self.repairs["call_close_missing"] += 1
        if self._at in IN_VALUE:
            self.repairs["argument_close_missing"] += 1
            self._end_value()
        self.calls.close()
        self._go(At.TOOLS)
        if self.calls.n_closed == self._max_calls:
            self.stopped = self.over = True

    def _cut_call(self) -> None:
        """The completion ends, or another channel begins, inside a call."""
        if self.calls.is_open:
            self.calls.cut()
            self._go(At.TOOLS)

    # -- text, by the element that it is in

    def _think_text(self, text: str) -> None:
        if self._thinking.holding or "<" in text:
            text = self._thinking.feed(text)
            self.whole_runs = not self._thinking.at_start
        if text:
            self.answer.reasoning(text)

    def _settle_thinking(self, follower: Special) -> bool:
        """Something other than text follows; true if it was the separator of a spelled marker."""
        verdict, text = self._thinking.settle(follower)
        self.whole_runs = True
        if text:
            self.answer.reasoning(text)
        if verdict == "close":
            self._end_think()
        return verdict != "text" and follower == "separator"

    def _response_text(self, text: str) -> None:
        """Where there are stop strings: what follows one is not read."""
        if self.answer.content_until_stop(text):
            self.stopped = self.over = True

    def _between_text(self, text: str) -> None:
        goes_on = self.answer.interrupted
        if not goes_on and (self.answer.begun or self.answer.may_be_thinking):
            self._outside.append(text)
            return
        self._blanks.append(text)
        if text.isspace():
            return
        # An answer without its opener (docs/decisions.md#d12), or one that an element interrupted (#r6).
        text = "".join(self._blanks)
        self._blanks.clear()
        if not goes_on:
            self.repairs["response_opener_missing"] += 1
        self._begin_response()
        self.text(text)

    def _flush_outside(self) -> None:
        text = "".join(self._outside)
        self._outside.clear()
        if text.strip():
            self.repairs["text_outside_channels"] += 1
            self._unparsed(text, "outside_channels")

    def _unparsed(self, text: str, why: Why) -> None:
        if text:
            self.out.events.append(Unparsed(text, why))


def _is_of_another_role(opener: Marker) -> bool:
    return opener.attributes.get("role", "").strip() not in ("", "assistant")
