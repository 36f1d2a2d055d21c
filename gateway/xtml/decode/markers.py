"""Reading what stands between `<|open|>` or `<|close|>` and `<|sep|>`, however oddly it is written."""

from __future__ import annotations

from typing import Literal, NamedTuple

# A name that a completion can open or close (docs/format.md#completion), and the attributes that complete its
# opener.
ELEMENTS: dict[str, tuple[str, ...]] = {
    "think": (),
    "response": (),
    "tools": (),
    "message": ("role",),
    "call": ("tool", "index"),
    "argument": ("key", "type"),
    "json": ("type",),
}
_NAME_WITHIN = 32  # characters, blanks included, in which a marker's name must show
_SPELLED_SEPARATOR = "<|sep|>"


class Marker(NamedTuple):
    """`name` None: no known element. `rest`: text behind the marker, where no separator ended it.

    `odd`: it was not written the way the format has it. `is_blank`: there was no name at all.
    """

    name: str | None
    attributes: dict[str, str]
    rest: str
    odd: bool
    is_blank: bool = False


class MarkerReader:
    """Collects a marker's text. `kind` is None while no marker is being read."""

    __slots__ = ("_more", "_start", "kind")

    def __init__(self) -> None:
        self.kind: Literal["open", "close"] | None = None
        self._start = ""  # in which the name must show
        self._more: list[str] = []

    def begin(self, kind: Literal["open", "close"]) -> None:
        self.kind = kind
        self._start = ""
        self._more = []

    def feed(self, text: str) -> bool:
        """Add text; true if it is too long for what it is, so that its separator must be missing."""
        if len(self._start) >= _NAME_WITHIN:
            self._more.append(text)
            return False
        self._start += text
        if len(self._start) < _NAME_WITHIN:
            return False
        name = _element_at_start(self._start)
        return self.kind == "close" or name is None or not ELEMENTS[name]

    @property
    def has_text_behind(self) -> bool:
        """Whether what was read can be no marker any more, or is one without attributes and more text."""
        text = "".join([self._start, *self._more]).strip().lower()
        name = _element_at_start(text)
        if name is None:
            return bool(text) and not any(element.startswith(text) for element in ELEMENTS)
        return not ELEMENTS[name] and text != name

    def end(self, *, separated: bool) -> Marker:
        """The marker that was read; `kind` is None again."""
        self.kind = None
        return _read_marker("".join([self._start, *self._more]), separated=separated)


def _read_marker(text: str, *, separated: bool) -> Marker:
    """Read the text behind an open or close marker, up to its separator, or up to where one is missing."""
    name = _element_at_start(text)
    if name is None:
        blank = not text.strip()
        return Marker(None, {}, "" if separated or blank else text, True, blank)
    start = len(text) - len(text.lstrip()) + len(name)
    if separated and text[start : start + 1].isalnum():  # `thinking` for `think`: the word is the name
        start = next((i for i in range(start, len(text)) if not text[i].isalnum()), len(text))
    if not ELEMENTS[name] and not separated:
        return Marker(name, {}, _without_spelled_separator(text[start:]), True)
    raw, end = _read_attributes(text, start, () if separated else ELEMENTS[name])
    odd = not separated or text != name + "".join(f' {key}="{value}"' for key, value in raw.items())
    rest = "" if separated else _without_spelled_separator(text[end:])
    return Marker(name, {key: _unescape(value) for key, value in raw.items()}, rest, odd)


def _element_at_start(text: str) -> str | None:
    """The element whose name the text begins with, behind blanks and in any case."""
    start = text[:_NAME_WITHIN].lstrip().lower()
    return next((name for name in ELEMENTS if start.startswith(name)), None)


def _unescape(value: str) -> str:
    return value.replace("&quot;", '"').replace("&amp;", "&")  # this order (docs/format.md#reading)


def _without_spelled_separator(text: str) -> str:
    return text.removeprefix(_SPELLED_SEPARATOR)


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
