"""Log probabilities of visible content, given out together with the text that they belong to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from engine.types import TokenLogprob
from gateway.xtml import Channel, Content, Event, ReasoningWasContent, Vocab


class ContentLogprobs:
    """Picks one choice's entries for content (docs/decisions.md#g06).

    Where there are stop strings, text is held back, and what belongs to a stop string is never shown: so an
    entry waits until the first byte of its token is out. Reasoning is kept for the case that it turns out to
    be the answer (docs/decisions.md#d4).
    """

    def __init__(self, vocab: Vocab, *, with_stop: bool) -> None:
        self._vocab = vocab
        self._with_stop = with_stop
        self._reasoning: list[TokenLogprob] = []
        self._waiting: deque[TokenLogprob] = deque()
        self._n_bytes_ahead = 0  # of the text that is out before the first waiting entry's

    def take(
        self,
        entries: Iterable[TokenLogprob],
        channels: Sequence[Channel],
        events: Iterable[Event],
        *,
        all_out: bool,
    ) -> list[TokenLogprob]:
        """Entries to give out with `events`; `entries` are a step's, `channels` their `Decoder.channels`.

        `all_out`: no text is held back any more.
        """
        for entry, channel in zip(entries, channels, strict=True):
            if channel == "reasoning":
                self._reasoning.append(entry)
            elif channel == "content":
                self._waiting.append(entry)
        for event in events:
            if isinstance(event, ReasoningWasContent):
                self._waiting.extendleft(reversed(self._reasoning))
            if isinstance(event, ReasoningWasContent | Content):
                self._n_bytes_ahead += len(event.text.encode())
        taken = []
        while self._waiting and (all_out or not self._with_stop or self._n_bytes_ahead > 0):
            entry = self._waiting.popleft()
            self._n_bytes_ahead -= len(self._vocab.token_bytes(entry.token_id))
            taken.append(entry)
        return taken
