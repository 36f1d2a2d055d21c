"""The K3 vocabulary as data: rank file and special-token table in, ids out (docs/format.md#vocabulary).

Text is encoded inertly: spellings of special tokens in it are ordinary bytes. A special id can only be
had by asking for it by name, so nothing that a user types becomes a marker. No id is a literal here:
the table of the checkpoint says where the names stand.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import tiktoken

RANK_FILE = "tiktoken.model"
TABLE_FILE = "tokenizer_config.json"
N_SPECIAL_SLOTS = 256  # after the ranks, named or reserved (docs/format.md#special-tokens)

_SLICE_CHARS = 400_000  # (docs/format.md#segments)
# Longest run of only blanks, or without blanks, that is encoded in one piece (docs/format.md#segments)
_SHARED_AT_ONCE = 65_536
_RUN_CHARS = 25_000
_SHORT_CHARS = 48  # texts up to here are remembered: tag names, keys, tool names
_RUN = re.compile(r"\s+|\S+")

# docs/format.md#pre-tokenisation. `&&` is class intersection of Rust's regex crate, which tiktoken uses.
_PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


class VocabError(ValueError):
    """A tokenizer file is missing or is not what K3 ships; the message names the file."""


class Vocab:
    """Ranks and special tokens of one checkpoint.

    open, close, sep, end_of_msg, media_begin, media_content, media_pad, media_end: ids of the markers
    n_ranks:      number of ordinary tokens; the special slots follow
    size:         ranks and special slots together
    special_ids:  name -> id of every slot; slots without a name are `<|reserved_token_{id}|>`
                  (docs/format.md#special-tokens)
    stop_ids:     ids that end a completion (docs/format.md#stop-ids)
    fingerprint:  16 bytes that differ between vocabularies that encode differently
    """

    def __init__(self, ranks: dict[bytes, int], names: dict[int, str], eos_ids: Iterable[int] = ()) -> None:
        self.n_ranks = len(ranks)
        self.size = self.n_ranks + N_SPECIAL_SLOTS
        slots = range(self.n_ranks, self.size)
        self._names = {i: names.get(i, f"<|reserved_token_{i}|>") for i in slots}
        self.special_ids = {name: i for i, name in self._names.items()}
        if len(self.special_ids) != N_SPECIAL_SLOTS:
            raise VocabError(f"{TABLE_FILE}: two special tokens have the same name")
        self.open = self._id("<|open|>")
        self.close = self._id("<|close|>")
        self.sep = self._id("<|sep|>")
        self.end_of_msg = self._id("<|end_of_msg|>")
        self.media_begin = self._id("<|media_begin|>")
        self.media_content = self._id("<|media_content|>")
        self.media_pad = self._id("<|media_pad|>")
        self.media_end = self._id("<|media_end|>")
        self.stop_ids = frozenset(eos_ids or [self.end_of_msg]) | {self._id("[EOS]")}
        self._bytes = sorted(ranks, key=ranks.__getitem__)
        # No special token is given to the encoder: it could only ever produce ordinary ids.
        self._bpe = tiktoken.Encoding("k3", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
        digest = hashlib.blake2b(digest_size=16)
        for token in self._bytes:
            digest.update(len(token).to_bytes(4, "little") + token)
        digest.update(json.dumps(sorted(self._names.items())).encode())
        self.fingerprint = digest.digest()
        self._shared = list(range(self.size))
        self._encode_short = lru_cache(maxsize=8192)(self._encode_tuple)

    @classmethod
    def load(cls, folder: Path | str) -> Vocab:
        """Read `tiktoken.model`, the table of `tokenizer_config.json`, and the stop ids.

        Stop ids are the `eos_token_id` of generation_config.json (else config.json, else the table's
        `<|end_of_msg|>`) and the table's `[EOS]` (docs/format.md#stop-ids). Raises VocabError.
        """
        folder = Path(folder)
        ranks = _read_ranks(folder / RANK_FILE)
        names = _read_names(folder / TABLE_FILE, n_ranks=len(ranks))
        by_name = {name: i for i, name in names.items()}
        for name in ("[EOS]", "<|end_of_msg|>"):
            if name not in by_name:
                raise VocabError(
                    f"{folder / TABLE_FILE}: no `{name}` in added_tokens_decoder; not K3's table?"
                )
        ends = _read_eos_ids(folder, size=len(ranks) + N_SPECIAL_SLOTS) or [by_name["<|end_of_msg|>"]]
        return cls(ranks, names, [*ends, by_name["[EOS]"]])

    def encode(self, text: str) -> list[int]:
        """Ids of one text segment; special spellings in it are ordinary bytes (docs/format.md#segments).

        Lone surrogates, which no tokenizer can encode, become U+FFFD.
        """
        if len(text) <= _SHORT_CHARS:
            return list(self._encode_short(text))
        if len(text) <= _RUN_CHARS:
            return self._bpe.encode_ordinary(text)
        ids: list[int] = []
        for piece in _pieces(text):
            ids += self._bpe.encode_ordinary(piece)
        return ids

    def shared(self, ids: Iterable[int]) -> tuple[int, ...]:
        """The same ids as integers that exist once for all of this vocabulary's tuples.

        A long prompt put together from such tuples needs no new integer objects, which would cost more
        time and memory than all else. Raises IndexError.
        """
        found: list[int] = []
        given = ids if isinstance(ids, list | tuple) else list(ids)
        for start in range(0, len(given), _SHARED_AT_ONCE):  # other threads get on in between
            found += map(self._shared.__getitem__, given[start : start + _SHARED_AT_ONCE])
        return tuple(found)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of an ordinary token, or the name of a special one. Raises KeyError."""
        if 0 <= token_id < self.n_ranks:
            return self._bytes[token_id]
        return self._names[token_id].encode()

    def special_name(self, token_id: int) -> str | None:
        """The name of a special token, None for an ordinary one."""
        return self._names.get(token_id)

    def decode(self, ids: Iterable[int]) -> str:
        """Text with the markers spelled out, for people; typed markers look the same. Raises KeyError."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def _encode_tuple(self, text: str) -> tuple[int, ...]:
        return tuple(self._bpe.encode_ordinary(text))

    def _id(self, name: str) -> int:
        if name not in self.special_ids:
            raise VocabError(f"{TABLE_FILE}: no `{name}` in added_tokens_decoder; not K3's table?")
        return self.special_ids[name]


def _pieces(text: str) -> Iterable[str]:
    """Cut as the reference does, so that no merge crosses a cut (docs/format.md#segments)."""
    for start in range(0, len(text), _SLICE_CHARS):
        part = text[start : start + _SLICE_CHARS]
        if not _may_have_long_run(part):
            yield part
            continue
        cuts = [0]
        for run in _RUN.finditer(part):
            cuts += range(run.start() + _RUN_CHARS, run.end(), _RUN_CHARS)
        cuts.append(len(part))
        for begin, end in pairwise(cuts):
            yield part[begin:end]


def _may_have_long_run(text: str) -> bool:
    """Whether any aligned window of half a run is all blanks or has none: a long run covers such a one.

    Spares ordinary text a walk over its words.
    """
    window = _RUN_CHARS // 2
    for start in range(0, len(text) - window + 1, window):
        words = text[start : start + window].split(None, 1)
        if not words or len(words[0]) == window:
            return True
    return False


def _read_ranks(path: Path) -> dict[bytes, int]:
    """Lines of `base64(token) rank`, ranks from 0 without a gap (docs/format.md#rank-file)."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise VocabError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a K3 tokenizer"
        ) from None
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(filter(None, lines)):
        try:
            encoded, rank = line.split()
            token = base64.b64decode(encoded, validate=True)
            if int(rank) != number or not token or token in ranks:
                raise ValueError
        except (ValueError, binascii.Error):
            raise VocabError(
                f"{path}: entry {number + 1} is not `base64-token rank` with a new token and rank {number}"
            ) from None
        ranks[token] = number
    missing = [value for value in range(256) if bytes([value]) not in ranks]
    if missing:
        raise VocabError(f"{path}: {len(missing)} of the 256 single bytes have no rank; is the file whole?")
    return ranks


def _read_names(path: Path, n_ranks: int) -> dict[int, str]:
    """id -> name, from `added_tokens_decoder`; all must lie in the slots after the ranks.

    See docs/format.md#special-tokens.
    """
    table = _read_json(path).get("added_tokens_decoder")
    if not isinstance(table, dict) or not table:
        raise VocabError(f"{path}: has no added_tokens_decoder, the table of special tokens")
    names: dict[int, str] = {}
    for key, entry in table.items():
        name = entry.get("content") if isinstance(entry, dict) else None
        if not key.isdecimal() or not isinstance(name, str) or not name:
            raise VocabError(f"{path}: added_tokens_decoder[{key!r}] is not an id with a `content`")
        if not n_ranks <= int(key) < n_ranks + N_SPECIAL_SLOTS:
            raise VocabError(
                f"{path}: `{name}` has id {key}, outside the {N_SPECIAL_SLOTS} slots after the "
                f"{n_ranks} ranks of {RANK_FILE}; the two files do not belong together"
            )
        names[int(key)] = name
    return names


def _read_eos_ids(folder: Path, size: int) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.exists():
            continue
        config = _read_json(path)
        text_config = config.get("text_config")
        found = config.get("eos_token_id")
        if found is None and isinstance(text_config, dict):
            found = text_config.get("eos_token_id")
        if found is None:
            continue
        ids = found if isinstance(found, list) else [found]
        if not all(type(i) is int and 0 <= i < size for i in ids):
            raise VocabError(f"{path}: eos_token_id {found!r} is not an id (or ids) of this vocabulary")
        return ids
    return []


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise VocabError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a K3 tokenizer"
        ) from None
    except ValueError as error:
        raise VocabError(f"{path}: is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise VocabError(f"{path}: is not a JSON object")
    return value


def _unreadable(path: Path, error: OSError) -> VocabError:
    return VocabError(f"{path}: cannot be read ({error.strerror}); give the folder of a K3 tokenizer")
