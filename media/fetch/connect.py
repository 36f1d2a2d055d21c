"""HTTP connections that are made to checked addresses only, whatever a name resolves to the next time."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterable, AsyncIterator, Iterable

import anyio
import httpcore
import httpx

from media.fetch.addresses import AllowList, is_public, parse_address


class AddressRefused(Exception):
    """The address behind a host name is neither public nor listed."""


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a name once, checks every address, and connects to one of just these."""

    def __init__(self, allow: AllowList) -> None:
        self._allow = allow
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (httpcore's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("name resolution timed out") from error
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("the name does not resolve") from error
        numbers = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not self._allow.has_host(host, port):
            for number in numbers:
                address = parse_address(number)
                if not is_public(address) and not self._allow.has_address(address):
                    raise AddressRefused(host)
        failure: Exception = httpcore.ConnectError("the name does not resolve")
        for number in numbers:
            try:
                return await self._inner.connect_tcp(number, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: AsyncIterator[bytes], response: httpcore.Response) -> None:
        self._stream = stream
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class CheckedTransport(httpx.AsyncBaseTransport):
    """httpx over connections made by `_CheckedBackend`. Host header, SNI and certificates see the name."""

    def __init__(self, allow: AllowList, max_connections: int) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=max_connections,
            keepalive_expiry=5.0,
            network_backend=_CheckedBackend(allow),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
        assert isinstance(response.stream, AsyncIterable)
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(aiter(response.stream), response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()
