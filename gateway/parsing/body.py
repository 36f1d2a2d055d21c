"""Request bodies as JSON, checked for their sizes before they are worked on (docs/decisions.md#r31).

A million small objects take a parser a second, and all that time it keeps the interpreter to itself: no other
thread, and no other request, gets on. So nothing here does much in one step:

1. Long strings (pictures, clips, files in text) are lifted out and replaced by marks, found by their quotes.
2. What is left is decoded in one step if it is short and has few values. Else it is walked through token by
   token, which lets other threads in, until a limit is passed; then its messages, tools and other fields are
   decoded one by one.
3. The long strings are decoded a window at a time and put back.

Half a surrogate pair, as JavaScript clients cut text, is U+FFFD, as in the prompt (docs/decisions.md#r9).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.errors import InvalidRequest, bad_request, field_path
from gateway.parsing.limits import BodyLimits, CountedBody, check_counts

# Up to this many bytes a body costs less than a thread.
SMALL = 64 * 1024

_LONG_STRING = 64 * 1024
_ONE_STEP_BYTES = 1024 * 1024
_ONE_STEP_VALUES = 100_000
_WINDOW = 1024 * 1024
_MEBIBYTE = 1024 * 1024

_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_NUMBERS = re.compile(rb"\s*\[\s*-?\d")
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")

Buffer = bytes | bytearray
Path = tuple[str | int, ...]


def parse_body(data: Buffer, limits: BodyLimits) -> dict[str, Any]:
    """The JSON object in `data`. Give it a thread if `data` is longer than `SMALL`.

    Raises:
        InvalidRequest: it is not a JSON object, or too large in a way that `limits` names.
    """
    start = 3 if data[:3] == b"\xef\xbb\xbf" else 0
    if len(data) <= SMALL:
        body = _object(_decode(bytes(data[start:]), ()))
    else:
        body = _Long(data, start, limits).parse()
    check_counts(body, limits)
    return body


@dataclass(slots=True)
class _Long:
    """A body that is parsed in steps. `mark` begins what stands for a lifted string; nobody can guess it."""

    data: Buffer
    start: int
    limits: BodyLimits
    mark: str = field(default_factory=lambda: f"lifted-{os.urandom(12).hex()}-")
    lifted: list[tuple[int, int]] = field(default_factory=list)
    n_text: int = 0

    def parse(self) -> dict[str, Any]:
        rest = _with_whole_pairs(self._lift())
        if len(rest) <= _ONE_STEP_BYTES and _has_few_values(rest):
            return _object(self._value(rest, ()))
        if len(rest) > self.limits.max_json_bytes:
            raise bad_request(
                f"The body has {len(rest) // _MEBIBYTE} MiB of JSON besides its long strings; at most "
                f"{self.limits.max_json_bytes // _MEBIBYTE} MiB are taken{_suspect(rest, self.limits)}",
                code="request_too_large",
            )
        _check_json(rest)
        body: dict[Any, Any] = {}
        for path, a, b in CountedBody(rest, self.limits).pieces():
            value = self._value(rest[a:b], path)
            if len(path) == 1:
                body[path[0]] = value
            elif path[1] == 0:
                body[path[0]] = [value]
            else:
                body[path[0]].append(value)
        return body

    def _lift(self) -> bytes:
        """The body with a mark for each string longer than `_LONG_STRING`."""
        data, at, kept = self.data, self.start, self.start
        view = memoryview(data)
        pieces: list[bytes | memoryview] = []
        n_strings = 0
        while (opening := data.find(b'"', at)) >= 0:
            n_strings += 1
            if n_strings > self.limits.max_strings:
                raise bad_request(
                    f"The body has more than {self.limits.max_strings} strings{_suspect(data, self.limits)}",
                    code="request_too_large",
                )
            closing = _closing_quote(data, opening + 1)
            if closing < 0:
                break
            at = closing + 1
            if closing - opening > _LONG_STRING:
                pieces += (view[kept : opening + 1], f"{self.mark}{len(self.lifted)}".encode())
                self.lifted.append((opening + 1, closing))
                kept = closing
        pieces.append(view[kept:])
        return b"".join(pieces)

    def _value(self, piece: bytes, path: Path) -> Any:
        if len(piece) > _WINDOW // 4 and _NUMBERS.match(piece[:1000]) and not _contains(piece, b'"'):
            return _numbers(piece, path)
        value = _decode(piece, path)
        return self._restored(value, path) if self.lifted and self.mark.encode() in piece else value

    def _restored(self, value: Any, path: Path) -> Any:
        """The value with its long strings back in their places."""
        if isinstance(value, str):
            if not value.startswith(self.mark):
                return value
            return self._text(int(value.removeprefix(self.mark)), path)
        if isinstance(value, dict):
            return {
                self._restored(key, path): self._restored(item, (*path, key)) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._restored(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _text(self, index: int, path: Path) -> str:
        start, end = self.lifted[index]
        if self.data[start : start + 5].lower() != b"data:":
            self.n_text += end - start
            if self.n_text > self.limits.max_text_bytes:
                where = field_path(path)
                raise bad_request(
                    f"{where}: up to here the body has more than "
                    f"{self.limits.max_text_bytes // _MEBIBYTE} MiB of long texts, which no context holds. "
                    "Send pictures and clips as data URLs.",
                    where,
                    "request_too_large",
                )
        texts = [_decode(b'"' + self.data[a:b] + b'"', path) for a, b in _windows(self.data, start, end)]
        return texts[0] if len(texts) == 1 else "".join(texts)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad_request("The body must be a JSON object")
    return value


def _closing_quote(data: Buffer, at: int) -> int:
    """Position of the first quote from `at` on that no backslash escapes, -1 where there is none."""
    while (quote := data.find(b'"', at)) >= 0:
        if data[quote - 1] != 0x5C or _n_backslashes(data, at, quote) % 2 == 0:
            return quote
        at = quote + 1
    return -1


def _n_backslashes(data: Buffer, start: int, end: int) -> int:
    """How many stand right before `end`, from `start` on; before `start` stands none."""
    at = end
    while at > start:
        window = data[max(at - _WINDOW, start) : at]
        n = len(window) - len(window.rstrip(b"\\"))
        at -= n
        if n < len(window):
            break
    return end - at


def _windows(data: Buffer, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of the inside of a JSON string that cut neither an escape, a surrogate pair nor a character."""
    while end - start > _WINDOW:
        window = bytes(data[start : start + _WINDOW])
        at = _before_escape(window)
        if at == len(window):
            while window[at - 1] & 0xC0 == 0x80:  # the end of a character of several bytes may be missing
                at -= 1
            if at < len(window) or window[-1] >= 0xC0:
                at -= 1
            if (
                at >= 6
                and _HIGH_SURROGATE.match(window, at - 6, at)
                and _before_escape(window[: at - 5]) == at - 6
            ):
                at -= 6
        yield start, start + at
        start += at
    yield start, end


def _before_escape(window: bytes) -> int:
    """The length of `window` without an escape that is cut off at its end."""
    last = window.rfind(b"\\", max(len(window) - 6, 0))
    if last < 0:
        return len(window)
    run = len(window[: last + 1]) - len(window[: last + 1].rstrip(b"\\"))
    if run % 2 == 0:
        return len(window)  # a backslash that is escaped itself
    length = 6 if window[last + 1 : last + 2] == b"u" else 2
    return last if last + length > len(window) else len(window)


def _has_few_values(data: bytes) -> bool:
    """Whether decoding `data` makes at most `_ONE_STEP_VALUES` values: one stands behind each of these."""
    n_values = sum(_counts(data, mark) for mark in (b",", b"[", b"{"))
    return n_values <= _ONE_STEP_VALUES


def _counts(data: Buffer, what: bytes) -> int:
    """How often `what` stands in `data`, a window at a time."""
    return sum(data.count(what, at, at + _WINDOW) for at in range(0, len(data), _WINDOW))


def _contains(data: bytes, what: bytes) -> bool:
    """Whether `what` stands in `data`, a window at a time."""
    overlap = len(what) - 1
    return any(data.find(what, at, at + _WINDOW + overlap) >= 0 for at in range(0, len(data), _WINDOW))


def _suspect(data: Buffer, limits: BodyLimits) -> str:
    """Which limit it most likely is, for a body that is refused before it is parsed."""
    for name, limit, what in (
        (b'"role"', limits.max_messages, "messages"),
        (b'"function"', limits.max_tools, "tools"),
        (b'"type"', limits.max_parts, "parts"),
    ):
        if _counts(data, name) > limit:
            return f" (at most {limit} {what}, setting max_{what})"
    return ""


def _numbers(piece: bytes, path: Path) -> list[Any]:
    """A long list of numbers, such as a prompt's token ids, a window at a time."""
    inner = piece.strip()[1:-1]
    numbers: list[Any] = []
    at = 0
    while at < len(inner):
        end = inner.find(b",", at + _WINDOW // 4)
        end = len(inner) if end < 0 else end
        numbers += _decode(b"[" + inner[at:end] + b"]", path)
        at = end + 1
    return numbers


class _Object(msgspec.Struct):
    """A JSON object whose fields are only passed over."""


_PASSED_OVER = msgspec.json.Decoder(_Object)


def _check_json(data: bytes) -> None:
    """Raises InvalidRequest unless `data` is a JSON object; makes nothing of it, so it is fast."""
    try:
        _PASSED_OVER.decode(data)
    except msgspec.ValidationError:
        raise bad_request("The body must be a JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(data, (), error) from None


def _decode(data: bytes, path: Path) -> Any:
    """One JSON value. Raises InvalidRequest, which says where in the body."""
    data = _with_whole_pairs(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(data, path, error) from None


def _with_whole_pairs(data: bytes) -> bytes:
    """`data` with U+FFFD for each half of a surrogate pair, a window at a time."""
    if not (_contains(data, b"\\ud") or _contains(data, b"\\uD")):
        return data
    if len(data) <= _WINDOW:
        return _SURROGATES.sub(_or_replacement, data)
    return b"".join(_SURROGATES.sub(_or_replacement, data[a:b]) for a, b in _windows(data, 0, len(data)))


def _or_replacement(found: re.Match[bytes]) -> bytes:
    return found[0] if len(found[2]) > 6 else found[1] + b"\\ufffd"


def _malformed(data: bytes, path: Path, error: Exception) -> InvalidRequest:
    where = field_path(path)
    inside = f" in {where}" if where else ""
    if isinstance(error, RecursionError):
        return bad_request(f"The body is not taken: its JSON nests too deeply{inside}", where or None)
    if len(data) <= _ONE_STEP_BYTES:
        # The standard parser takes numbers that JSON does not have; this one finds where they are.
        try:
            found = _odd_number(json.loads(data), path)
        except (ValueError, RecursionError):
            found = None
        if found is not None:
            where = field_path(found)
            return bad_request(f"{where} is not a number that JSON has or a computer can hold", where or None)
    return bad_request(f"The body is not valid JSON: {error}{inside}", where or None)


def _odd_number(value: Any, path: Path) -> Path | None:
    """Where NaN or an infinity stands."""
    if isinstance(value, float) and not math.isfinite(value):
        return path
    if isinstance(value, dict):
        inner = ((item, (*path, key)) for key, item in value.items())
    elif isinstance(value, list):
        inner = ((item, (*path, index)) for index, item in enumerate(value))
    else:
        return None
    return next((found for item, at in inner if (found := _odd_number(item, at)) is not None), None)
