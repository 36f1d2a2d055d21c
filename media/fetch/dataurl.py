"""Data URLs (RFC 2397) as people really send them.

They may have a hundred megabytes, and no other thread runs while one call of the interpreter goes over so
much. So they are read by parts of a megabyte.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from media.types import MediaError

_BLANKS = b" \t\r\n\f\v"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_BARE_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24}")
_START = re.compile(r"\s*data:", re.IGNORECASE)
_PART = 1024 * 1024  # characters; a multiple of 4


def is_data_url(url: str) -> bool:
    return _START.match(url) is not None


def looks_like_base64(text: str) -> bool:
    """Whether `text` is probably a file's base64 without the `data:` part in front."""
    return _BARE_BASE64.match(text) is not None and ":" not in text[:64]


def read_data_url(url: str, max_bytes: int) -> bytearray:
    """The bytes that a data URL holds. Raises MediaError.

    Accepts base64 padded or not, standard or URL-safe, with blanks or line breaks, percent-encoded, and
    data that is not base64 but percent-encoded. The media type is optional and not trusted.
    """
    comma = url.find(",")
    if comma < 0:
        raise MediaError("the data URL has no comma between its header and its data")
    parameters = [part.strip().lower() for part in url[:comma].partition(":")[2].split(";")]
    if "base64" not in parameters:
        data = bytearray()
        for part in _parts(url, comma + 1):
            data += unquote_to_bytes(part)
            _check_size(len(data), max_bytes)
        return data
    _check_size((len(url) - comma - 1) * 3 // 4 - 2, max_bytes)
    return _from_base64(_parts(url, comma + 1))


def _check_size(n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise MediaError(f"the data URL holds about {n_bytes:,} bytes, more than the limit of {max_bytes:,}")


def _parts(url: str, start: int) -> Iterator[str]:
    """The rest of a URL in parts that cut no `%41` in two."""
    while start < len(url):
        end = start + _PART
        escape = url.rfind("%", end - 2, end)
        if escape > 0:
            end = escape + 3
        yield url[start:end]
        start = end


def _from_base64(parts: Iterator[str]) -> bytearray:
    data = bytearray()
    rest = b""  # up to three characters that wait for the next part
    has_ended = False
    for part in parts:
        try:
            text = part.encode("ascii")
        except UnicodeEncodeError as error:
            raise MediaError("the data URL's base64 contains characters outside ASCII") from error
        if not rest and not has_ended and len(text) % 4 == 0 and not text.endswith(b"="):
            try:
                data += binascii.a2b_base64(text, strict_mode=True)  # the usual spelling, at full speed
                continue
            except binascii.Error:
                pass
        if b"%" in text:
            text = unquote_to_bytes(text)
        text = text.translate(_URL_SAFE, delete=_BLANKS)
        body = text.rstrip(b"=")
        if has_ended and body:
            raise MediaError("the data URL's base64 contains characters that are not base64")
        has_ended = has_ended or len(body) < len(text)
        body = rest + body
        whole = len(body) // 4 * 4
        data += _decoded(body[:whole])
        rest = body[whole:]
    if len(rest) == 1:
        raise MediaError("the data URL's base64 is cut off: its length is not possible")
    data += _decoded(rest + b"=" * (-len(rest) % 4))
    return data


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise MediaError("the data URL's base64 contains characters that are not base64") from error
