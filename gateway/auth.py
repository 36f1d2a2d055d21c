"""Bearer keys. The tenant of a request is its key's digest, never the key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from fastapi import Request

from gateway.errors import ApiError


class Keys:
    """The keys that are accepted; none configured means everybody is let in."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = [key.encode() for key in keys]

    def check(self, request: Request) -> str | None:
        """The tenant (hex digest of the key), or None where no keys are configured.

        Raises:
            ApiError: 401, no key or a wrong one.
        """
        if not self.keys:
            return None
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = key.strip().encode()
        # Every key is compared, so that the time taken says nothing about which one was close.
        matches = [hmac.compare_digest(given, known) for known in self.keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise ApiError(
                401,
                "No valid API key: send `Authorization: Bearer KEY`",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return hashlib.sha256(given).hexdigest()[:16]
