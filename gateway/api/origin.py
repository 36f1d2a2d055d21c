"""Who may call without a key: pages of this service, pages of allowed origins, and programs.

A browser lets any page on the web send requests to `http://localhost:8000`, and a `text/plain` body needs no
permission. So a request that no key authenticates is looked at first (docs/reference/api.md, "Browsers"):

* its `Host` must be a name of this machine, unless the operator lets everybody in (`allow_anonymous`): a page
  whose name was pointed at 127.0.0.1 would else be the service's own;
* an `Origin` must be the service's own, or one of `cors_origins`;
* a body must have the type of its route. From a program, no type and curl's form type do as well.

A valid key settles it: then `Origin` only decides the CORS headers, as webviews and extensions send odd ones.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.errors import response_of
from gateway.api.keys import presented_key
from gateway.errors import BodyNotTaken, Forbidden, RequestError, Unauthenticated
from gateway.service import Service

JSON = "application/json"
_CURL_FORM = "application/x-www-form-urlencoded"
_WITH_BODY = ("POST", "PUT", "PATCH")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def guard_origins(app: FastAPI, service: Service) -> None:
    """Install the guard; call it before the middleware of CORS, which is to see the guard's refusals."""
    settings = service.settings

    def authenticated(headers: Headers) -> bool:
        try:
            return service.keys.check(presented_key(headers)) is not None
        except Unauthenticated:
            return False

    app.add_middleware(
        OriginGuard,
        authenticated=authenticated,
        routes=app.routes,
        allowed=settings.cors_origins,
        any_host=bool(settings.api_keys) or settings.allow_anonymous,
    )


class OriginGuard:
    """ASGI middleware that refuses what `refusal` refuses.

    authenticated: whether the headers carry a valid key
    routes:        of the app; a route's own types are those of its documented request body
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticated: Callable[[Headers], bool],
        routes: Sequence[BaseRoute],
        allowed: Iterable[str] = (),
        any_host: bool = False,
    ) -> None:
        self.app = app
        self.routes = routes
        self.allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)
        self.any_host = any_host
        self._authenticated = authenticated

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A preflight changes nothing, and carries no key: CORS answers it.
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        if self._authenticated(headers):
            return await self.app(scope, receive, send)
        types = types_of(self.routes, scope) if scope["method"] in _WITH_BODY else None
        error = refusal(headers, types, allowed=self.allowed, any_host=self.any_host)
        await (self.app if error is None else response_of(error, Request(scope)))(scope, receive, send)


def refusal(
    headers: Headers, types: Sequence[str] | None, *, allowed: frozenset[str], any_host: bool
) -> RequestError | None:
    """Why a request without a valid key is refused, None if it is not.

    types:    media types that the route takes, None where it takes no body
    allowed:  origins in small letters, or `*`
    any_host: the operator lets everybody in
    """
    host = headers.get("host", "")
    if host and not any_host and not is_loopback(_split(host)[0]):
        return Forbidden(
            f"The Host {host[:100]!r} is not a name of this machine, and this service asks for no key: it "
            "only answers to localhost. Set api_keys, or allow_anonymous to let everybody in.",
            "host",
        )
    origin = headers.get("origin")
    if origin is not None and not _may_call(origin, headers, allowed):
        return Forbidden(
            f"Pages of {origin[:100]!r} may not call this service: send a valid API key, or let the operator "
            "add the origin to the setting cors_origins.",
            "origin",
        )
    if types is None:
        return None
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_page = origin is not None or headers.get("sec-fetch-site", "").strip().lower() == "cross-site"
    if given in types or (given in ("", _CURL_FORM) and not is_page and JSON in types):
        return None
    shown = repr(given[:60]) if given else "missing"
    return BodyNotTaken(
        f"The Content-Type is {shown}; this path takes {' or '.join(types)}. "
        f"Send `Content-Type: {types[0]}`.",
        "content-type",
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without port, is one of this machine's own: `localhost`, `::1`..."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def types_of(routes: Iterable[BaseRoute], scope: Scope) -> Sequence[str] | None:
    """The media types that the route of a request takes; None where there is no such route, or no body."""
    for route in routes:
        if route.matches(scope)[0] is Match.FULL:
            documented = (getattr(route, "openapi_extra", None) or {}).get("requestBody")
            if documented is not None:
                return tuple(documented["content"])
            field = getattr(route, "body_field", None)
            return None if field is None else (getattr(field.field_info, "media_type", JSON),)
    return None


def _may_call(origin: str, headers: Headers, allowed: frozenset[str]) -> bool:
    wanted = origin.strip().rstrip("/").lower()
    if "*" in allowed or wanted in allowed:
        return True
    scheme, _, authority = wanted.partition("://")
    return scheme in _DEFAULT_PORTS and _with_port(authority, scheme) in _own(headers, scheme)


def _own(headers: Headers, scheme: str) -> set[tuple[str, int]]:
    """Names and ports under which this request reached the service, by `Host` and by what a proxy adds.

    A page cannot set these headers: `Host` never, the others not without a preflight. The path under which a
    proxy serves the service (`root_path`) is not part of an origin. The scheme is the page's own, since a
    proxy that ends TLS does not always say so.
    """
    named = [headers.get("host", ""), headers.get("x-forwarded-host", "").partition(",")[0]]
    for pair in headers.get("forwarded", "").partition(",")[0].split(";"):
        key, _, value = pair.strip().partition("=")
        if key.lower() == "host":
            named.append(value.strip('"'))
    found = {_with_port(name.strip().lower(), scheme) for name in named if name.strip()}
    port = headers.get("x-forwarded-port", "").partition(",")[0].strip()
    if port.isascii() and port.isdigit() and len(port) < 6:
        found |= {(host, int(port)) for host, _ in found}
    return found


def _with_port(authority: str, scheme: str) -> tuple[str, int]:
    host, port = _split(authority)
    return host, _DEFAULT_PORTS[scheme] if port is None else port


def _split(authority: str) -> tuple[str, int | None]:
    """Host and port of `host:port` or `[::1]:port`; a wrong port belongs to no service and is -1."""
    try:
        parts = urlsplit(f"//{authority}")
        return parts.hostname or "", parts.port
    except ValueError:
        return authority, -1
