"""Gets a picture's or clip's bytes from where its URL says, and from nowhere else."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import stat
import time
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import httpcore
import httpx

from media.fetch.addresses import AllowList
from media.fetch.connect import AddressRefused, CheckedTransport
from media.fetch.dataurl import is_data_url, looks_like_base64, read_data_url
from media.formats import describe
from media.types import FileBytes, MediaError

Kind = Literal["image", "video"]

_MIB = 1024 * 1024
_DEFAULT_PORTS = {"http": 80, "https": 443}
_REDIRECTS = {301, 302, 303, 307, 308}
_IN_LOOP_BYTES = 64 * 1024  # data URLs up to this size are decoded in the event loop


@dataclass(frozen=True)
class FetchPolicy:
    """What may be fetched. The defaults are for a service that strangers can reach.

    allow:           exceptions from "public addresses only": host names, `host:port`, networks (CIDR)
    file_roots:      folders that `file://` URLs may read from; none: `file://` is refused
    schemes, ports:  of http(s) URLs; a listed `host:port` adds its port for that host
    max_image_bytes, max_video_bytes: of the file
    max_redirects:   each target is checked like the first URL
    connect_seconds: for name resolution and each connection attempt
    read_seconds:    the longest silence
    total_seconds:   for everything, redirects included
    min_rate:        bytes per second that must arrive on average once `rate_grace` seconds have passed
    max_concurrent:  http(s) fetches at a time; more wait, which does not count as theirs
    use_environment_proxies: honour HTTP_PROXY and the like. The proxy then resolves names and is the one
                     that has to keep requests away from private addresses.
    """

    allow: tuple[str, ...] = ()
    file_roots: tuple[Path, ...] = ()
    schemes: tuple[str, ...] = ("https", "http")
    ports: tuple[int, ...] = (80, 443, 8080, 8443)
    max_image_bytes: int = 64 * _MIB
    max_video_bytes: int = 512 * _MIB
    max_redirects: int = 5
    connect_seconds: float = 5.0
    read_seconds: float = 10.0
    total_seconds: float = 60.0
    min_rate: int = 4096
    rate_grace: float = 5.0
    max_concurrent: int = 32
    use_environment_proxies: bool = False
    user_agent: str = "k3-gateway"
    allow_list: AllowList = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Raises ValueError where `allow` has an entry that cannot be read."""
        object.__setattr__(self, "allow_list", AllowList.parse(self.allow))

    def max_bytes(self, kind: Kind) -> int:
        return self.max_image_bytes if kind == "image" else self.max_video_bytes


class _NoCookies(CookieJar):
    """Takes no cookie and sends none: a client's jar is one for everybody who has something fetched.

    See docs/decisions.md#r23.
    """

    def extract_cookies(self, response: object, request: object) -> None:
        pass

    def add_cookie_header(self, request: object) -> None:
        pass


class Fetcher:
    """Reads http(s), data and file URLs within the limits of a FetchPolicy. For use in one event loop.

    Nothing but open connections outlives a fetch, and nothing but the URL goes from one redirect to the next:
    no cookies, no credentials, no `.netrc`, no headers but those that every fetch sends.
    """

    def __init__(self, policy: FetchPolicy | None = None) -> None:
        self.policy = policy or FetchPolicy()
        # Fetches wait here, not in the client's pool, so that waiting is not taken for a slow server.
        self._places = asyncio.Semaphore(self.policy.max_concurrent)
        # One thread at a time: others would only wait for the interpreter, and keep the event loop waiting.
        self._decoding = asyncio.Semaphore(1)
        proxied = self.policy.use_environment_proxies
        self._client = httpx.AsyncClient(
            transport=None
            if proxied
            else CheckedTransport(self.policy.allow_list, self.policy.max_concurrent),
            trust_env=proxied,
            cookies=_NoCookies(),
            follow_redirects=False,
            timeout=httpx.Timeout(
                self.policy.read_seconds, connect=self.policy.connect_seconds, pool=self.policy.total_seconds
            ),
            # Compressed answers would have to be unpacked within limits; pictures are compressed already.
            headers={"user-agent": self.policy.user_agent, "accept": "*/*", "accept-encoding": "identity"},
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def fetch(self, url: str, kind: Kind) -> FileBytes:
        """The bytes of the picture ("image") or clip ("video") behind `url`. Raises MediaError.

        Blanks around the URL do not count, as in browsers.
        """
        url = url.strip()
        max_bytes = self.policy.max_bytes(kind)
        if is_data_url(url):
            if len(url) <= _IN_LOOP_BYTES:
                return read_data_url(url, max_bytes)
            async with self._decoding:
                return await asyncio.to_thread(read_data_url, url, max_bytes)
        scheme, colon, _ = url[:32].partition(":")
        scheme = scheme.lower()
        if colon and scheme == "file":
            return await asyncio.to_thread(_read_file, url, self.policy.file_roots, max_bytes)
        if colon and scheme in self.policy.schemes:
            async with self._places:
                return await self._get(url, max_bytes)
        if looks_like_base64(url):
            raise MediaError(
                "the URL is bare base64; put 'data:image/png;base64,' (or its own type) before it"
            )
        accepted = ", ".join((*self.policy.schemes, "data"))
        raise MediaError(f"URLs of this kind ({shown_url(url)}) are not accepted; use {accepted}")

    async def _get(self, url: str, max_bytes: int) -> FileBytes:
        current = url
        try:
            async with asyncio.timeout(self.policy.total_seconds):
                for _ in range(self.policy.max_redirects + 1):
                    target = self._checked(current)
                    async with self._client.stream("GET", target) as response:
                        location = response.headers.get("location")
                        if response.status_code in _REDIRECTS and location:
                            current = str(target.join(location))
                            continue
                        return await self._read(response, target, max_bytes)
                raise MediaError(f"{shown_url(url)} redirects more than {self.policy.max_redirects} times")
        except AddressRefused as error:
            raise MediaError(
                f"{shown_url(current)} is not at a public address, and this server fetches from no other"
            ) from error
        except TimeoutError as error:
            raise MediaError(
                f"{shown_url(current)} did not deliver within {self.policy.total_seconds:g} seconds"
            ) from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise MediaError(f"{shown_url(current)} is not a valid URL") from error
        except (httpx.HTTPError, httpcore.NetworkError, httpcore.TimeoutException) as error:
            raise MediaError(f"{shown_url(current)} cannot be fetched: {_reason(error)}") from error
        except (httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            raise MediaError(f"{shown_url(current)} did not answer in valid HTTP") from error

    def _checked(self, url: str) -> httpx.URL:
        """The parsed URL if its scheme, port and form are allowed. Raises MediaError, httpx.InvalidURL."""
        parsed = httpx.URL(url)
        if parsed.scheme not in self.policy.schemes:
            raise MediaError(f"{shown_url(url)}: only {' and '.join(self.policy.schemes)} are fetched")
        if parsed.userinfo:
            raise MediaError(f"{shown_url(url)}: URLs with a user name or password are not fetched")
        if re.search(r"\s|%20", parsed.host):
            raise MediaError(f"{shown_url(url)}: there is a blank in the host's name")
        if not parsed.host:
            raise MediaError(f"{shown_url(url)} names no host")
        port = _DEFAULT_PORTS[parsed.scheme] if parsed.port is None else parsed.port
        if port not in self.policy.ports and not self.policy.allow_list.has_port(parsed.host, port):
            raise MediaError(f"{shown_url(url)}: port {port} is not one that this server fetches from")
        return parsed

    async def _read(self, response: httpx.Response, url: httpx.URL, max_bytes: int) -> FileBytes:
        where = shown_url(str(url))
        if response.status_code != 200:
            raise MediaError(
                f"{where} answered {response.status_code} {response.reason_phrase[:40]}".rstrip()
            )
        if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise MediaError(f"{where} sends compressed content although it was asked not to")
        too_large = MediaError(f"{where} is larger than the limit of {max_bytes:,} bytes")
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > max_bytes:
            raise too_large
        data = bytearray()
        started = time.monotonic()
        try:
            async for part in response.aiter_raw():
                data += part
                if len(data) > max_bytes:
                    raise too_large
                elapsed = time.monotonic() - started
                if elapsed > self.policy.rate_grace and len(data) < self.policy.min_rate * elapsed:
                    raise MediaError(f"{where} delivers less than {self.policy.min_rate:,} bytes a second")
        except (httpcore.RemoteProtocolError, httpx.RemoteProtocolError) as error:
            raise MediaError(f"{where} broke off after {len(data):,} bytes") from error
        if response.headers.get("content-type", "").lower().startswith("text/html"):
            words = describe(bytes(data[:4096]))
            if words in ("an HTML page", "blank text", "plain text"):
                raise MediaError(f"{where} is an HTML page, not a picture or video")
        return data


def shown_url(url: str) -> str:
    """A URL for messages and logs: scheme, host and the start of the path; no query, user or data."""
    if is_data_url(url):
        return "data URL"
    scheme, separator, rest = url[:2000].partition("://")
    if not separator:
        return repr(url[:12] + ("..." if len(url) > 12 else ""))
    authority, slash, path = rest.split("?")[0].split("#")[0].partition("/")
    path = path if len(path) <= 60 else path[:57] + "..."
    text = f"{scheme[:12]}://{authority.rpartition('@')[2][:100]}{slash}{path}"
    return "".join(c if c.isprintable() else "?" for c in text)


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException | httpcore.TimeoutException):
        return "it took too long to connect or to answer"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not valid ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return "the TLS handshake failed"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    if "resolve" in str(error):
        return "its name does not resolve"
    if isinstance(error, httpx.ConnectError | httpcore.ConnectError):
        return "no connection could be made"
    return "the connection broke"


def _read_file(url: str, roots: tuple[Path, ...], max_bytes: int) -> bytes:
    """A regular file under one of `roots`, symbolic links resolved first. Raises MediaError."""
    if not roots:
        raise MediaError("file:// URLs are switched off on this server; send a data URL")
    refused = MediaError("the file:// URL names no readable file in a folder that this server may read from")
    rest = url[len("file:") :]
    if not rest.startswith("///"):
        raise MediaError("file:// URLs must have no host: file:///folder/name")
    try:
        path = Path(unquote(rest[2:], errors="strict").partition("?")[0]).resolve(strict=True)
        is_inside = any(path.is_relative_to(root.resolve()) for root in roots)
        # The path was resolved: a link at its end now means that somebody swapped it meanwhile.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(path, flags) if is_inside else None
    except (OSError, ValueError, RuntimeError) as error:
        raise refused from error
    if handle is None:
        raise refused
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise refused
        if status.st_size > max_bytes:
            raise MediaError(f"the file is larger than the limit of {max_bytes:,} bytes")
        with open(handle, "rb", closefd=False) as file:
            return file.read(max_bytes)
    except OSError as error:
        raise refused from error
    finally:
        os.close(handle)
