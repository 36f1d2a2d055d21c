"""Token ids to text, a few ids at a time, never inside a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from gateway.xtml.vocabulary import Vocab


class TokenTable:
    """Every ordinary token of a vocabulary as bytes, and as text where it is whole characters (else None)."""

    __slots__ = ("data", "text")

    def __init__(self, vocab: Vocab) -> None:
        self.data = [vocab.token_bytes(i) for i in range(vocab.n_ranks)]
        self.text = [_text_or_none(data) for data in self.data]

    @classmethod
    def of(cls, vocab: Vocab) -> TokenTable:
        """The table of `vocab`, made once (a tenth of a second for K3's)."""
        table = _tables.get(vocab)
        if table is None:
            table = _tables[vocab] = cls(vocab)
        return table


_tables: WeakKeyDictionary[Vocab, TokenTable] = WeakKeyDictionary()


class TextDecoder:
    """Incremental UTF-8 over ordinary token ids. Bytes of an incomplete character wait for the rest.

    What can be no character becomes U+FFFD, as it would if all bytes were decoded at once.
    """

    __slots__ = ("_data", "_text", "_utf8", "pending")

    def __init__(self, table: TokenTable) -> None:
        self._data = table.data
        self._text = table.text
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.pending = False  # whether bytes wait

    def one(self, token: int) -> str:
        """Text that `token` completes."""
        if not self.pending:
            text = self._text[token]
            if text is not None:
                return text
        return self._decode(self._data[token])

    def many(self, tokens: Sequence[int]) -> str:
        """Text that `tokens` complete."""
        return self._decode(b"".join([self._data[token] for token in tokens]))

    def flush(self) -> str:
        """U+FFFD if bytes wait, now that their character will not be completed."""
        self.pending = False
        return self._utf8.decode(b"", True)

    def _decode(self, data: bytes) -> str:
        text = self._utf8.decode(data)
        self.pending = bool(self._utf8.getstate()[0])
        return text


def _text_or_none(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
