"""Writes the arguments string of one call while the model is still writing the call."""

from __future__ import annotations

from collections import Counter
from json.encoder import encode_basestring

from gateway.xtml.decode.events import Why
from gateway.xtml.decode.toolschema import ToolSchema, Types, fit, read_json
from gateway.xtml.values import RawArguments, read_arguments


class CallWriter:
    """One call's body in, JSON text out: methods return the text to append to the arguments string.

    hidden: why the call is not shown as one, None if it is
    stray:  after `close`, text of the call that is in no argument
    Repairs are counted in `repairs` by kind.
    """

    __slots__ = (
        "_accepted",
        "_bare",
        "_block",
        "_buffer",
        "_discards",
        "_keys",
        "_repairs",
        "_schema",
        "_streams",
        "_type",
        "hidden",
        "name",
        "pieces",
        "stray",
    )

    def __init__(
        self, name: str, schema: ToolSchema | None, repairs: Counter[str], hidden: Why | None = None
    ) -> None:
        self.name = name
        self.hidden = hidden
        self.stray = ""
        self.pieces: list[str] = []
        self._schema = schema
        self._repairs = repairs
        self._keys: set[str] = set()
        self._buffer: list[str] = []  # the value, where it cannot be streamed
        self._block: list[str] | None = None  # a json block body (docs/decisions.md#d10)
        self._bare: list[str] = []  # text of the call that no argument or block holds
        self._streams = self._discards = False
        self._type: str | None = None
        self._accepted: Types = None

    def shown(self) -> str:
        """Name and arguments as far as they are known, for showing a call that cannot be run."""
        body = "".join([*self.pieces, *(self._block or ()), *self._buffer]) or "".join(self._bare)
        return f"{self.name} {body}".strip() if body.strip() else self.name

    def open_argument(self, key: str | None, type_: str | None) -> str:
        """An argument begins. Without a key, or with one that was there before, its value is dropped."""
        self._buffer = []
        self._discards = key is None or key in self._keys
        if key is None or self._discards:
            self._repairs["argument_without_key" if key is None else "duplicate_argument"] += 1
            return ""
        begin = ("," if self._keys else "{") + encode_basestring(key) + ":"
        self._keys.add(key)
        self._type = type_
        self._accepted = self._schema.types(key) if self._schema else None
        self._streams = type_ == "string" and (self._accepted is None or "string" in self._accepted)
        return self._append(begin + '"' if self._streams else begin)

    def value(self, text: str) -> str:
        """Text of the open argument's value."""
        if self._discards:
            return ""
        if self._streams:
            escaped = encode_basestring(text)[1:-1]
            self.pieces.append(escaped)
            return escaped
        self._buffer.append(text)
        return ""

    def close_argument(self) -> str:
        """The open argument ends."""
        if self._discards:
            return ""
        if self._streams:
            return self._append('"')
        value, fits = fit("".join(self._buffer), self._type, self._accepted)
        self._buffer = []
        if not fits:
            self._repairs["type_mismatch"] += 1
        return self._append(value)

    def block(self, text: str) -> None:
        """Text of a json block (also an empty one)."""
        if self._block is None:
            self._block = []
        self._block.append(text)

    def bare(self, text: str) -> None:
        """Text of the call outside any argument or block."""
        self._bare.append(text)

    def close(self) -> str | None:
        """The call ends: the rest of the arguments string, or None if they cannot be made valid JSON."""
        bare = "".join(self._bare)
        if not self._keys and self._block is None and bare.strip():
            self._repairs["bare_json_body"] += 1
            self._block = self._bare
        elif bare.strip():
            self._repairs["text_in_call"] += 1
            self.stray = bare
        if self._block is not None:
            rest = self._close_block("".join(self._block))
        else:
            rest = self._append("}" if self._keys else "{}")
        for key in self._schema.required if rest is not None and self._schema else ():
            if key not in self._keys:
                self._repairs["missing_argument"] += 1
        return rest

    def _close_block(self, text: str) -> str | None:
        literal = read_json(text if text.strip() else "{}")
        if literal is None or literal.type != "object":
            return None
        members = read_arguments(literal.text)
        if isinstance(members, RawArguments):
            return None
        self._block = None
        if not self._keys:
            self._keys.update(member.key for member in members)
            return self._append(literal.text)
        self._repairs["mixed_body"] += 1
        rest = ""
        for member in members:
            if member.key not in self._keys:
                self._keys.add(member.key)
                value = encode_basestring(member.text) if member.type == "string" else member.text
                rest += f",{encode_basestring(member.key)}:{value}"
        return self._append(rest + "}")

    def _append(self, text: str) -> str:
        self.pieces.append(text)
        return text
