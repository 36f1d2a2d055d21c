"""Reads a completion of Kimi K3 from its token ids, as it is written (docs/format.md#completion).

A marker is a marker only as special ids; the same characters in ordinary tokens are text. What the model
wrote never raises and never shows a marker; what had to be repaired is counted (docs/concepts/decoding.md
lists the kinds). Work per token does not grow with the completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gateway.xtml.conversation import ToolChoice
from gateway.xtml.decode.call_ids import opaque_call_id
from gateway.xtml.decode.ending import Ending, FinishReason, how_it_ended
from gateway.xtml.decode.events import Event
from gateway.xtml.decode.places import Channel
from gateway.xtml.decode.reader import CompletionReader
from gateway.xtml.decode.stop import StopMatcher
from gateway.xtml.decode.thinking import Special
from gateway.xtml.decode.toolschema import tool_schemas
from gateway.xtml.decode.utf8 import TextDecoder, TokenTable
from gateway.xtml.vocabulary import Vocab


class Decoder:
    """Decodes one completion.

    vocab:       of the checkpoint that writes it
    thinking:    whether thinking is switched on, so that the prompt ends inside the thinking channel
                 (docs/format.md#prompt-end); else what the model thinks all the same is not sent
    start:       the channel that the prompt ends in, where it is not as `thinking` says
                 (docs/format.md#partial)
    tools:       all declared tools, as the request has them
    tool_choice: no call is let through that it rules out
    passes_faulty_calls: whether a call that cannot be run (undeclared tool, arguments that are not a JSON
                 object) goes to the client where the reply has nothing else (docs/decisions.md#r3)
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
        passes_faulty_calls: bool = True,
        stop: Sequence[str] = (),
        new_call_id: Callable[[str], str] = opaque_call_id,
        max_calls: int | None = None,
    ) -> None:
        self.channels: list[Channel] = []
        self._counts: dict[Channel, int] = {"reasoning": 0, "content": 0, "tool": 0, "other": 0}
        self._n_ranks = vocab.n_ranks
        self._tool_choice = tool_choice or ToolChoice()
        self._specials: dict[int, Special] = {
            vocab.open: "open",
            vocab.close: "close",
            vocab.sep: "separator",
            vocab.end_of_msg: "end",
        }
        self._text = TextDecoder(TokenTable.of(vocab))
        self._reader = CompletionReader(
            starts_in_thinking=start == "think" if start else thinking,
            shows_reasoning=thinking,
            tools=tool_schemas(tools),
            tool_choice=self._tool_choice,
            passes_faulty_calls=passes_faulty_calls,
            new_call_id=new_call_id,
            stop=StopMatcher(stop) if any(stop) else None,
            max_calls=max_calls,
        )

    @property
    def n_reasoning(self) -> int:
        return 0 if self._reader.answer.was_thinking else self._counts["reasoning"]

    @property
    def n_content(self) -> int:
        return self._counts["content"] + self._counts["reasoning"] - self.n_reasoning

    @property
    def n_tool(self) -> int:
        return self._counts["tool"]

    @property
    def n_other(self) -> int:
        return self._counts["other"]

    @property
    def repairs(self) -> Counter[str]:
        return self._reader.repairs

    @property
    def stopped(self) -> bool:
        """At a stop string or after `max_calls`: what follows is not read, the engine may stop."""
        return self._reader.stopped

    @property
    def stop_string(self) -> str | None:
        """The stop string that was found."""
        return self._reader.answer.stop_string

    def feed(self, ids: Sequence[int]) -> list[Event]:
        """What the next `ids` add. How a completion is cut into calls changes only how texts are cut."""
        reader, text, n_ranks, counts = self._reader, self._text, self._n_ranks, self._counts
        channels: list[Channel] = []
        reader.out.events = []
        self.channels = channels
        at, n_ids = 0, len(ids)
        while at < n_ids:
            token = ids[at]
            end = at + 1
            channel: Channel = "other"
            if reader.over:
                end = n_ids
                reader.repairs["after_end"] += 0 if reader.stopped else n_ids - at
            elif 0 <= token < n_ranks:
                if reader.whole_runs and end < n_ids:
                    while end < n_ids and 0 <= ids[end] < n_ranks:
                        end += 1
                    found = text.many(ids[at:end])
                else:
                    found = text.one(token)
                if found:
                    reader.text(found)
                channel = reader.channel
            else:
                if text.pending:
                    reader.text(text.flush())
                reader.special(self._specials.get(token, "other"))
            counts[channel] += end - at
            channels.extend([channel] * (end - at))
            at = end
        return reader.out.events

    def finish(self, reason: str) -> list[Event]:
        """The end of the completion, for the engine's `reason`; call it once.

        A call that is still open was cut. With `length` so was a marker, which is dropped; a marker that
        the model itself left unfinished is read as far as it goes.
        """
        self._reader.out.events = []
        if self._text.pending and not self._reader.over:
            self._reader.text(self._text.flush())
        self._reader.end(cut=reason == "length")
        return self._reader.out.events

    def ending(self, engine_reason: str, *, may_be_empty: bool = False) -> Ending:
        """How the reply ended, after `finish`; see `how_it_ended`."""
        reader = self._reader
        return how_it_ended(
            engine_reason,
            content=reader.answer.sent_content,
            reasoning=reader.answer.sent_reasoning and not reader.answer.was_thinking,
            n_calls=reader.calls.n_closed,
            call_left_open=reader.calls.left_open,
            call_withheld=reader.calls.withheld,
            stopped=reader.stopped,
            tool_choice=self._tool_choice,
            may_be_empty=may_be_empty,
        )

    def finish_reason(self, engine_reason: str) -> FinishReason:
        """OpenAI's finish reason, after `finish`."""
        return self.ending(engine_reason).finish_reason
