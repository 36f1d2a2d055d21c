"""Completions written as text, for tests of the decoder (short names as in tests/xtml/test_decode.py)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.xtml import Decoder, Event, Reply, Vocab, fold

TO = "<|open|>think<|sep|>"
TC = "<|close|>think<|sep|>"
RO = "<|open|>response<|sep|>"
RC = "<|close|>response<|sep|>"
XO = "<|open|>tools<|sep|>"
XC = "<|close|>tools<|sep|>"
MC = "<|close|>message<|sep|>"
END = MC + "<|end_of_msg|>"
CC = "<|close|>call<|sep|>"
AC = "<|close|>argument<|sep|>"

_MARKERS = re.compile(r"(<\|(?:open|close|sep|end_of_msg|media_pad)\|>|\[EOS\])")


def call_opener(name: str, index: int = 1) -> str:
    return f'<|open|>call tool="{name}" index="{index}"<|sep|>'


def argument(key: str, value: str, type_: str = "string") -> str:
    return f'<|open|>argument key="{key}" type="{type_}"<|sep|>{value}{AC}'


def call(name: str, *arguments: str, index: int = 1) -> str:
    return call_opener(name, index) + "".join(arguments) + CC


CALL = call("get_weather", argument("city", "Oslo"))
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


class Spelled(str):
    """Text whose markers are spelled in ordinary tokens."""


def to_ids(vocab: Vocab, *parts: str) -> list[int]:
    """Ids of text in which marker spellings are markers, but in `Spelled` parts."""
    ids: list[int] = []
    for part in parts:
        for piece in [part] if isinstance(part, Spelled) else _MARKERS.split(part):
            if piece in vocab.special_ids and not isinstance(part, Spelled):
                ids.append(vocab.special_ids[piece])
            else:
                ids += vocab.encode(piece)
    return ids


def steps(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


class Decoded:
    """A completion decoded `size` ids at a time (0: all at once)."""

    def __init__(
        self,
        vocab: Vocab,
        ids: Sequence[int],
        reason: str = "stop",
        size: int = 0,
        *,
        may_be_empty: bool = False,
        **options: Any,
    ) -> None:
        options.setdefault("tools", [WEATHER])
        options.setdefault("new_call_id", _NumberedIds())
        self.decoder = Decoder(vocab, **options)
        self.events: list[Event] = []
        for step in steps(ids, size or len(ids) or 1):
            self.events += self.decoder.feed(step)
            assert len(self.decoder.channels) == len(step)
        self.events += self.decoder.finish(reason)
        self.reply: Reply = fold(self.events)
        self.finish_reason, self.failure = self.decoder.ending(reason, may_be_empty=may_be_empty)
        self.calls = [(c.name, c.arguments) for c in self.reply.tool_calls]
        self.unparsed = [(u.text, u.why) for u in self.reply.unparsed]
        self.repairs = {kind: n for kind, n in self.decoder.repairs.items() if n}

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that must not depend on how the ids were cut."""
        decoder = self.decoder
        kinds = [type(e).__name__ for e in self.events]
        merged = [kind for before, kind in zip([None, *kinds], kinds, strict=False) if kind != before]
        counts = (decoder.n_reasoning, decoder.n_content, decoder.n_tool, decoder.n_other)
        stop = (decoder.stopped, decoder.stop_string, self.finish_reason, self.failure)
        return (self.reply, merged, self.repairs, counts, stop)


class _NumberedIds:
    def __init__(self) -> None:
        self.n = 0

    def __call__(self, name: str) -> str:
        self.n += 1
        return f"id{self.n}"


def decode(vocab: Vocab, *parts: str, reason: str = "stop", **options: Any) -> Decoded:
    """Decode text all at once, one id a step and several a step; all must agree."""
    ids = to_ids(vocab, *parts)
    whole = Decoded(vocab, ids, reason, **options)
    for size in (1, 2, 3, 7):
        assert Decoded(vocab, ids, reason, size, **options).outcome == whole.outcome
    return whole
