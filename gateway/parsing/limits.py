"""How much a request body may hold, and the walk that finds out before anything is decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.errors import InvalidRequest, bad_request, field_path

_MEBIBYTE = 1024 * 1024
# In one message, tool or other field: a parser takes 0.2 microseconds for each string or bracket, and a
# quarter of that for a number (a prompt of /v1/completions may be a list of token ids).
_PIECE_VALUES = 100_000
_PIECE_NUMBERS = 1_200_000
_MAX_FIELDS = 1000
_QUOTE = 0x22
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},:]', re.DOTALL)
# Lists of the body whose items are pieces of their own.
_LISTS = ("messages", "input", "tools")
# Lists in those items that are counted.
_COUNTED = (b'"content"', b'"tool_calls"', b'"output"', b'"tools"')


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What is more is a 400 that names the limit.

    max_messages:   messages, or items of `input`
    max_parts:      parts of content and tool calls, over all messages
    max_tools:      tools, over all declarations
    max_json_bytes: the body without strings of over 64 KiB
    max_text_bytes: strings of over 64 KiB that are not data URLs, together
    max_strings:    names and strings
    """

    max_messages: int = 10_000
    max_parts: int = 10_000
    max_tools: int = 1024
    max_json_bytes: int = 16 * _MEBIBYTE
    max_text_bytes: int = 32 * _MEBIBYTE
    max_strings: int = 1_000_000


def check_counts(body: dict[str, Any], limits: BodyLimits) -> None:
    """Refuse a decoded body with too many messages, parts or tools.

    Raises:
        InvalidRequest: names the limit.
    """
    n_parts = 0
    n_tools = _length(body.get("tools"))
    for name in ("messages", "input"):
        items = body.get(name)
        if not isinstance(items, list):
            continue
        if len(items) > limits.max_messages:
            raise too_many(name, len(items), limits.max_messages, "max_messages")
        for index, item in enumerate(items):
            if isinstance(item, dict):
                n_parts += _length(item.get("content")) + _length(item.get("tool_calls"))
                n_parts += _length(item.get("output"))
                n_tools += _length(item.get("tools"))
                if n_parts > limits.max_parts:
                    raise too_many(f"{name}[{index}]", n_parts, limits.max_parts, "max_parts")
    for item in body["tools"] if isinstance(body.get("tools"), list) else ():
        if isinstance(item, dict):
            n_tools += _length(item.get("tools"))  # those of a namespace
    if n_tools > limits.max_tools:
        raise too_many("tools", n_tools, limits.max_tools, "max_tools")


def too_many(param: str, found: int, limit: int, setting: str) -> InvalidRequest:
    """`param` has `found` items or more."""
    what = {"max_messages": "messages", "max_parts": "parts and tool calls", "max_tools": "tools"}[setting]
    return bad_request(
        f"{param}: there are {found} {what} or more; at most {limit} are taken (setting {setting})",
        param,
        "request_too_large",
    )


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


class CountedBody:
    """Walks through the tokens of a JSON object, counting. Its strings are short: long ones were lifted out.

    data: must be valid JSON
    """

    def __init__(self, data: bytes, limits: BodyLimits) -> None:
        self.data = data
        self.limits = limits
        self._n_parts = 0
        self._n_tools = 0

    def pieces(self) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
        """(path, start, end) of the value of each field; of `messages`, `input` and `tools`, of each item.

        Raises:
            InvalidRequest: a limit is passed.
        """
        depth = start = n_fields = n_rich = n_commas = 0
        name = ""  # the field that the walk is in
        index: int | None = None  # the item of that field, where its items are pieces of their own
        key = b""  # the last string met outside of nested values: at a colon or bracket, the name before it
        counted = b""  # the name of the list in an item that the walk is in
        for token in _TOKEN.finditer(self.data):
            found = token.group()
            if found == b",":
                n_commas += 1
                if depth == 4 and counted:
                    self._count(counted, name, index)
                elif depth == 1:
                    if index is None:
                        yield (name,), start, token.start()
                elif depth == 2 and index is not None:
                    yield (name, index), start, token.start()
                    start, index, n_rich, n_commas = token.end(), index + 1, 0, 0
                    self._check_length(name, index + 1)
                continue
            n_rich += 1
            if n_rich > _PIECE_VALUES or n_commas > _PIECE_NUMBERS:
                raise self._too_rich(name, index)
            if found[0] == _QUOTE:
                if depth in (1, 3):
                    key = found
            elif found == b":":
                if depth == 1:
                    name, index, start = msgspec.json.decode(key, type=str), None, token.end()
                    n_rich = n_commas = 0
                    n_fields += 1
                    if n_fields > _MAX_FIELDS:
                        raise bad_request(
                            f"There are more than {_MAX_FIELDS} fields", code="request_too_large"
                        )
            elif found in (b"[", b"{"):
                depth += 1
                if found == b"[" and depth == 2 and name in _LISTS:
                    index, start = 0, token.end()
                elif found == b"[" and depth == 4 and index is not None and key in _COUNTED:
                    counted = key
                    self._count(counted, name, index)
            else:
                depth -= 1
                if depth == 3:
                    counted = b""
                elif depth == 1 and index is not None:
                    if index or self.data[start : token.start()].strip():
                        yield (name, index), start, token.start()
                    else:
                        yield (name,), start - 1, token.end()  # an empty list
                elif depth == 0 and n_fields and index is None:
                    yield (name,), start, token.start()

    def _count(self, key: bytes, name: str, index: int | None) -> None:
        """One more part, call or tool in an item of `name`."""
        if key == b'"tools"':
            self._n_tools += 1
            if self._n_tools > self.limits.max_tools:
                raise too_many("tools", self._n_tools, self.limits.max_tools, "max_tools")
        else:
            self._n_parts += 1
            if self._n_parts > self.limits.max_parts:
                raise too_many(f"{name}[{index}]", self._n_parts, self.limits.max_parts, "max_parts")

    def _check_length(self, name: str, length: int) -> None:
        setting = "max_tools" if name == "tools" else "max_messages"
        limit = self.limits.max_tools if name == "tools" else self.limits.max_messages
        if length > limit:
            raise too_many(name, length, limit, setting)

    def _too_rich(self, name: str, index: int | None) -> InvalidRequest:
        where = field_path((name, *(() if index is None else (index,))))[:200]
        return bad_request(
            f"{where}: this holds more values than the {_PIECE_VALUES} that are taken",
            where,
            "request_too_large",
        )
