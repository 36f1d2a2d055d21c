"""Reasoning and content of one reply: what is sent of them, and whether thinking was the answer."""

from __future__ import annotations

from gateway.xtml.decode.events import Content, Outbox, Reasoning, ReasoningClosed, ReasoningWasContent
from gateway.xtml.decode.stop import StopMatcher


class Answer:
    """Adds reasoning and content to `out`.

    starts_in_thinking: whether the completion begins inside the thinking channel
    shows_reasoning:    whether thinking is switched on; else what the model thinks all the same is dropped
    stop:               finds the strings that end the reply where they appear in its content

    begun:          a response was opened, or there is an answer otherwise
    interrupted:    the response was left by another element, and not closed
    may_be_thinking: thinking ended with another element's closer; it is the answer if no response follows
    was_thinking:   it is
    stop_string:    the one that was found; nothing may be added after that
    sent_content, sent_reasoning: the client got content that is not blank, or reasoning
    """

    def __init__(
        self, out: Outbox, *, starts_in_thinking: bool, shows_reasoning: bool, stop: StopMatcher | None
    ) -> None:
        self.begun = not starts_in_thinking
        self.interrupted = self.may_be_thinking = self.was_thinking = False
        self.stop_string: str | None = None
        self.sent_content = self.sent_reasoning = False
        self._out = out
        self._shows_reasoning = shows_reasoning
        self._stop = stop
        self._in_first_thoughts = starts_in_thinking
        self._first_thoughts: list[str] = []

    def reasoning(self, text: str) -> None:
        """Text of the thinking channel."""
        if self._in_first_thoughts:
            self._first_thoughts.append(text)
        if self._shows_reasoning:
            self.sent_reasoning = True
            self._out.events.append(Reasoning(text))

    def thinking_closed(self, *, by_own_closer: bool = True) -> None:
        """The thinking channel ends. Another element's closer may mean that the answer was written in it.

        See docs/decisions.md#d4; what follows decides (docs/decisions.md#r4).
        """
        if not self._in_first_thoughts:
            return
        self._in_first_thoughts = False
        self.may_be_thinking = not by_own_closer and not self.begun
        self._out.events.append(ReasoningClosed())

    def settle(self) -> None:
        """No response follows any more."""
        if not self.may_be_thinking:
            return
        self.may_be_thinking = False
        self.begun = self.was_thinking = True
        text = "".join(self._first_thoughts)
        if self._stop:
            text = self._stop.feed(text)
            self.stop_string = self._stop.hit
            text += self._stop.flush()
        if self._first_thoughts:
            self.sent_content = not text.isspace() and text != ""
            self._out.events.append(ReasoningWasContent(text))

    def begin(self) -> None:
        """The response channel opens, or goes on."""
        self.begun = True
        self.may_be_thinking = self.interrupted = False

    def content(self, text: str) -> None:
        """Text of the response channel, where there are no stop strings."""
        if not self.sent_content:
            self.sent_content = not text.isspace()
        self._out.events.append(Content(text))

    def content_until_stop(self, text: str) -> bool:
        """Text of the response channel; whether a stop string ends it. Text that may begin one is held."""
        assert self._stop is not None
        if text := self._stop.feed(text):
            self.content(text)
        self.stop_string = self._stop.hit
        return self.stop_string is not None

    def end(self, *, interrupted: bool) -> None:
        """The response channel ends, or another element opens inside it."""
        self.interrupted = interrupted
        if self._stop and (text := self._stop.flush()):
            self.content(text)
