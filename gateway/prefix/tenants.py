"""Whose prompts a request may share cache entries and reasoning with."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

Isolation = Literal["none", "tenant"]
SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Tenant:
    """name: of an API key (its digest), of a `user` (its digest), or "" for everybody else
    salt: enters the engine's block hashes and media identities; None shares them with all
    """

    name: str
    salt: str | None = None

    @property
    def cache(self) -> str:
        """Names the part of the engine's cache that the tenant's prompts live in."""
        return self.salt or ""


EVERYBODY = Tenant("")


def tenant_of(isolation: Isolation, key: str | None, user: str | None) -> Tenant:
    """The tenant of a request with the API key's digest `key`, or, where no keys are used, of `user`.

    Isolation by `user` separates clients only as far as whoever sets the field can be trusted.
    """
    if key is not None:
        return _tenant(isolation, key)
    if user:
        return _tenant(isolation, "user-" + sha256(user.encode(errors="replace")).hexdigest()[:16])
    return EVERYBODY


def shared_tenant(isolation: Isolation) -> Tenant:
    """What shared pins belong to, and the requests that ask for one by name."""
    return _tenant(isolation, SHARED)


def _tenant(isolation: Isolation, name: str) -> Tenant:
    if isolation == "none":
        return Tenant(name)
    return Tenant(name, sha256(b"k3-gateway tenant\0" + name.encode()).hexdigest()[:32])
