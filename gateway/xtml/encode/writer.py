"""Writes tags, text and media placeholders as ids, segment by segment (docs/format.md#segments)."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.xtml.vocabulary import Vocab


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """A run of placeholders and the text about it, e.g. lead "", label "image 640x480", n_tokens 391.

    A picture is one span; a clip is one span per chunk with its time stamp as lead and label "video"
    (docs/format.md#clip-prompt).
    """

    lead: str
    label: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class MediaPrompt:
    """What stands in the prompt for one picture or clip. `digest` is the identity of its content."""

    spans: tuple[MediaSpan, ...]
    digest: str


class Writer:
    """Collects the ids of a section. Only the methods for tags and media write special ids.

    ids:  what was written
    pads: (index of the medium among the section's, index of the span, offset of its first pad, n_tokens)
    """

    def __init__(self, vocab: Vocab) -> None:
        self.ids: list[int] = []
        self.pads: list[tuple[int, int, int, int]] = []
        self._vocab = vocab
        self._n_media = 0

    def open(self, tag: str, *attributes: tuple[str, str]) -> None:
        """`<|open|>tag key="value"…<|sep|>`; an attribute is four segments (docs/format.md#segments)."""
        self.ids.append(self._vocab.open)
        self.text(tag)
        for key, value in attributes:
            self.text(f" {key}")
            self.text('="')
            self.text(value.replace("&", "&amp;").replace('"', "&quot;"))
            self.text('"')
        self.ids.append(self._vocab.sep)

    def close(self, tag: str) -> None:
        """`<|close|>tag<|sep|>`"""
        self.ids.append(self._vocab.close)
        self.text(tag)
        self.ids.append(self._vocab.sep)

    def end_message(self) -> None:
        """The close of a message and the mark of its end."""
        self.close("message")
        self.ids.append(self._vocab.end_of_msg)

    def text(self, text: str) -> None:
        """One text segment."""
        self.ids += self._vocab.encode(text)

    def media(self, prompt: MediaPrompt) -> None:
        """`lead<|media_begin|>label<|media_content|>pads<|media_end|>` per span."""
        vocab = self._vocab
        for index, span in enumerate(prompt.spans):
            self.text(span.lead)
            self.ids.append(vocab.media_begin)
            self.text(span.label)
            self.ids.append(vocab.media_content)
            self.pads.append((self._n_media, index, len(self.ids), span.n_tokens))
            self.ids += [vocab.media_pad] * span.n_tokens
            self.ids.append(vocab.media_end)
        self._n_media += 1
