"""Reading what stands between `<|open|>` or `<|close|>` and `<|sep|>`, however oddly it is written."""

from __future__ import annotations

from typing import NamedTuple

# A name that a completion can open or close (spec k3.md 3.1), and the attributes that complete its opener.
ELEMENTS: dict[str, tuple[str, ...]] = {
    "think": (),
    "response": (),
    "tools": (),
    "message": ("role",),
    "call": ("tool", "index"),
    "argument": ("key", "type"),
    "json": ("type",),
}
LONGEST_NAME = 32  # characters, blanks included, in which a name must begin to show
SPELLED_SEP = "<|sep|>"


class Marker(NamedTuple):
    """`name` None: no known element. `rest`: text behind the marker, where no separator ended it.

    `odd`: it was not written the way the format has it.
    """

    name: str | None
    attributes: dict[str, str]
    rest: str
    odd: bool


def read_marker(text: str, *, separated: bool) -> Marker:
    """Read the text behind an open or close marker, up to its separator, or up to where one is missing."""
    name = element_at_start(text)
    if name is None:
        return Marker(None, {}, "" if separated else text, True)
    start = len(text) - len(text.lstrip()) + len(name)
    if separated and text[start : start + 1].isalnum():  # `thinking` for `think`: the word is the name
        start = next((i for i in range(start, len(text)) if not text[i].isalnum()), len(text))
    if not ELEMENTS[name] and not separated:
        return Marker(name, {}, _without_spelled_separator(text[start:]), True)
    raw, end = _read_attributes(text, start, () if separated else ELEMENTS[name])
    odd = not separated or text != name + "".join(f' {key}="{value}"' for key, value in raw.items())
    rest = "" if separated else _without_spelled_separator(text[end:])
    return Marker(name, {key: _unescape(value) for key, value in raw.items()}, rest, odd)


def element_at_start(text: str) -> str | None:
    """The element whose name the text begins with, behind blanks and in any case."""
    start = text[:LONGEST_NAME].lstrip().lower()
    return next((name for name in ELEMENTS if start.startswith(name)), None)


def _unescape(value: str) -> str:
    return value.replace("&quot;", '"').replace("&amp;", "&")  # this order (k3.md 3.3)


def _without_spelled_separator(text: str) -> str:
    return text.removeprefix(SPELLED_SEP)


def _read_attributes(text: str, start: int, until: tuple[str, ...]) -> tuple[dict[str, str], int]:
    """Attributes from `start` on, as written, and where they end. Stops when all of `until` are there.

    One pass: a header may be as long as the model likes.
    """
    found: dict[str, str] = {}
    end = start
    while not (until and all(name in found for name in until)):
        equals = text.find("=", end)
        if equals < 0:
            break
        words = text[end:equals].split()
        if not words or (until and len(words) > 1):
            break
        value, end = _read_value(text, equals + 1)
        found.setdefault(words[-1], value)
    return found, end


def _read_value(text: str, start: int) -> tuple[str, int]:
    while start < len(text) and text[start].isspace():
        start += 1
    quote = text[start : start + 1]
    if quote in ('"', "'"):
        end = text.find(quote, start + 1)
        return (text[start + 1 :], len(text)) if end < 0 else (text[start + 1 : end], end + 1)
    end = start
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[start:end].rstrip("\"'"), end
