"""API keys. The tenant of a request is its key's digest, never the key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from gateway.errors import Unauthenticated


class Keys:
    """The keys that are accepted; none configured means everybody is let in."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = [key.encode() for key in keys]

    def check(self, key: str | None) -> str | None:
        """The tenant (hex digest of the key), or None where no keys are configured.

        Raises:
            Unauthenticated: no key or a wrong one.
        """
        if not self.keys:
            return None
        given = (key or "").encode()
        # Every key is compared, so that the time taken says nothing about which one was close.
        matches = [hmac.compare_digest(given, known) for known in self.keys]
        if not any(matches):
            raise Unauthenticated(
                "No valid API key: send `Authorization: Bearer KEY` (or `x-api-key: KEY`)",
                code="invalid_api_key",
            )
        return hashlib.sha256(given).hexdigest()[:16]
