"""Writes the arguments string of one call while the model is still writing the call."""

from __future__ import annotations

from collections import Counter
from json.encoder import encode_basestring
from typing import NamedTuple

from gateway.xtml.decode.events import Why
from gateway.xtml.decode.fit import fit
from gateway.xtml.decode.json_repair import read_json
from gateway.xtml.decode.toolschema import ToolSchema, Types
from gateway.xtml.values import Argument, RawArguments, read_arguments


class _Member(NamedTuple):
    """A member of a json block: `value` is JSON text, `changed` if the schema asked for it."""

    key: str
    value: str
    changed: bool


class CallWriter:
    """One call's body in, JSON text out: methods return the text to append to the arguments string.

    Once `open_argument` returned something, the pieces will be a JSON object when the call closes; before
    that it may turn out that the body is not one.

    hidden: why the call is not shown as one, None if it is
    pieces: the arguments string so far
    Repairs are counted in `repairs` by kind.
    """

    __slots__ = (
        "_accepted",
        "_bare",
        "_block",
        "_buffer",
        "_discards",
        "_into_bare",
        "_keys",
        "_repairs",
        "_schema",
        "_streams",
        "_type",
        "hidden",
        "name",
        "pieces",
    )

    def __init__(
        self, name: str, schema: ToolSchema | None, repairs: Counter[str], hidden: Why | None = None
    ) -> None:
        self.name = name
        self.hidden = hidden
        self.pieces: list[str] = []
        self._schema = schema
        self._repairs = repairs
        self._keys: set[str] = set()
        self._buffer: list[str] = []  # the value, where it cannot be streamed
        self._block: list[str] | None = None  # a json block body (docs/decisions.md#d10)
        self._bare: list[str] = []  # text of the call that no argument with a key and no block holds
        self._streams = self._discards = self._into_bare = False
        self._type: str | None = None
        self._accepted: Types = None

    def shown(self) -> str:
        """Name and arguments as far as they are known, for showing a call that cannot be run."""
        body = self._body()
        return f"{self.name} {body}".strip() if body.strip() else self.name

    def raw_arguments(self) -> str:
        """The arguments as far as they are known; of a closed call JSON text, where that could be had."""
        return self._body()

    @property
    def stray(self) -> str:
        """Text of the call that is not in what is shown of it."""
        bare = "".join(self._bare)
        return bare if bare.strip() and self._has_body else ""

    @property
    def _has_body(self) -> bool:
        return bool(self.pieces or self._block or self._buffer)

    def _body(self) -> str:
        return "".join([*self.pieces, *(self._block or ()), *self._buffer] if self._has_body else self._bare)

    def open_argument(self, key: str | None, type_: str | None) -> str:
        """An argument begins. A value whose key was there before is dropped; one without a key is bare."""
        self._buffer = []
        self._into_bare = key is None
        self._discards = key in self._keys
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
        if self._into_bare:
            self._bare.append(text)
            return ""
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
        if self._discards or self._into_bare:
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
        """The call ends: the rest of the arguments string, or None if they cannot be made a JSON object."""
        if "".join(self._bare).strip():
            if not self._keys and self._block is None:
                self._repairs["bare_json_body"] += 1
                self._block, self._bare = self._bare, []
            else:
                self._repairs["text_in_call"] += 1
        rest = self._close_body()
        for key in self._schema.required if rest is not None and self._schema else ():
            if key not in self._keys:
                self._repairs["missing_argument"] += 1
        return rest

    def _close_body(self) -> str | None:
        if self._block is None:
            return self._append("}" if self._keys else "{}")
        block = "".join(self._block)
        found = self._read_block(block)
        if found is None and not self._keys:
            return None
        self._block = None
        if found is None:  # the arguments stand on their own; what is beside them is shown
            self._repairs["text_in_call"] += 1
            self._bare.append(block)
            return self._append("}")
        text, members = found
        if self._keys:
            self._repairs["mixed_body"] += 1
        new = [member for member in members if member.key not in self._keys]
        if self._keys or any(member.changed for member in new):
            written = [f"{encode_basestring(member.key)}:{member.value}" for member in new]
            begin = "{" if not self._keys else "," if new else ""
            text = begin + ",".join(written) + "}"
        self._keys.update(member.key for member in new)
        return self._append(text)

    def _read_block(self, block: str) -> tuple[str, list[_Member]] | None:
        """The block as JSON text, and its members, each fitted to the schema."""
        literal = read_json(block if block.strip() else "{}")
        members = read_arguments(literal.text) if literal is not None else None
        if literal is None or members is None or isinstance(members, RawArguments):
            return None
        return literal.text.strip(), [self._fitted(member) for member in members]

    def _fitted(self, member: Argument) -> _Member:
        written = encode_basestring(member.text) if member.type == "string" else member.text
        accepted = self._schema.types(member.key) if self._schema else None
        value, fits = fit(written, "json", accepted)
        if not fits:
            self._repairs["type_mismatch"] += 1
        return _Member(member.key, value, value != written)

    def _append(self, text: str) -> str:
        self.pieces.append(text)
        return text
