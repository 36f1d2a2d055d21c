"""The API key that a request's headers present."""

from __future__ import annotations

from starlette.datastructures import Headers


def presented_key(headers: Headers) -> str | None:
    """The key in `Authorization: Bearer KEY`, else in `x-api-key: KEY`; None where there is neither."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key")
