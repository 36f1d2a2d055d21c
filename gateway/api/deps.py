"""What routes depend on: the service, the caller's key, a place among the requests in progress.

All of it is settled before a body is read: who is refused need not have sent it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from gateway.admission import Place
from gateway.api.keys import presented_key
from gateway.errors import bad_request
from gateway.generation.generation import Generations
from gateway.prefix.tenants import SHARED, Tenant
from gateway.service import Service

# For the OpenAPI document; `presented_key` reads the headers, for the guard of origins needs the same.
_SCHEMES = (
    Security(HTTPBearer(auto_error=False, scheme_name="Bearer", description="An API key of this service")),
    Security(APIKeyHeader(name="x-api-key", auto_error=False, scheme_name="x-api-key")),
)


def service_of(request: Request) -> Service:
    """The service of the app that got this request."""
    service: Service = request.app.state.service
    return service


# Dependencies are coroutines though they wait for nothing: FastAPI runs plain functions in a thread.
async def _served(request: Request) -> Service:
    return service_of(request)


Served = Annotated[Service, Depends(_served)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `key` is the digest of the API key, None where no keys are used."""

    service: Service
    key: str | None
    wants_shared_cache: bool

    def tenant(self, user: str | None = None) -> Tenant:
        """Whose cache the request uses: its own, or with the header `k3-cache: shared` the shared one."""
        return self.service.renderer.prefixes.tenant(self.key, user, shared=self.wants_shared_cache)


async def _caller(
    request: Request,
    service: Served,
    _bearer: Annotated[object, _SCHEMES[0]],
    _header: Annotated[object, _SCHEMES[1]],
) -> Caller:
    """Raises Unauthenticated, and InvalidRequest for a `k3-cache` that says neither."""
    key = service.keys.check(presented_key(request.headers))
    wanted = request.headers.get("k3-cache", "own")
    if wanted not in ("own", SHARED):
        raise bad_request("The header k3-cache is `own` or `shared`", "k3-cache")
    return Caller(service, key, wanted == SHARED)


Authorised = Annotated[Caller, Depends(_caller)]


async def _place(caller: Authorised) -> AsyncIterator[Place]:
    """Held until the reply is out. Raises LimitReached."""
    place = caller.service.admission.place()
    try:
        yield place
    finally:
        place.release()


Admitted = Annotated[Place, Depends(_place)]


async def _running_engine(caller: Authorised) -> Generations:
    """Raises Unavailable while the engine is not up."""
    return caller.service.generations()


Engine = Annotated[Generations, Depends(_running_engine)]
