"""Data URLs (RFC 2397) as people really send them."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from media.types import MediaError

_BLANKS = b" \t\r\n\f\v"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_BARE_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24}")


def is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


def looks_like_base64(text: str) -> bool:
    """Whether `text` is probably a file's base64 without the `data:` part in front."""
    return _BARE_BASE64.match(text) is not None and ":" not in text[:64]


def read_data_url(url: str, max_bytes: int) -> bytes:
    """The bytes that a data URL holds. Raises MediaError.

    Accepts base64 padded or not, standard or URL-safe, with blanks or line breaks, percent-encoded, and
    data that is not base64 but percent-encoded. The media type is optional and not trusted.
    """
    header, comma, payload = url[len("data:") :].partition(",")
    if not comma:
        raise MediaError("the data URL has no comma between its header and its data")
    parameters = [part.strip().lower() for part in header.split(";")]
    if "base64" not in parameters:
        data = unquote_to_bytes(payload)
        _check_size(len(data), max_bytes)
        return data
    _check_size(len(payload) * 3 // 4 - 2, max_bytes)
    return _from_base64(payload)


def _check_size(n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise MediaError(f"the data URL holds about {n_bytes:,} bytes, more than the limit of {max_bytes:,}")


def _from_base64(payload: str) -> bytes:
    try:
        text = payload.encode("ascii")
        return binascii.a2b_base64(text, strict_mode=True)  # the usual spelling, at full speed
    except binascii.Error:
        pass
    except UnicodeEncodeError as error:
        raise MediaError("the data URL's base64 contains characters outside ASCII") from error
    if b"%" in text:
        text = unquote_to_bytes(text)
    text = text.translate(_URL_SAFE, delete=_BLANKS).rstrip(b"=")
    if len(text) % 4 == 1:
        raise MediaError("the data URL's base64 is cut off: its length is not possible")
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise MediaError("the data URL's base64 contains characters that are not base64") from error
