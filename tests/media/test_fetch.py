"""Fetching against real servers on this machine, and names that `getaddrinfo` is made to resolve."""

import asyncio
import base64
import datetime
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from media.fetch import Fetcher, FetchPolicy, shown_url
from media.types import MediaError
from tests.media.files import SAMPLES

Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
PICTURE = SAMPLES["PNG"]()


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def server(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[str]]]:
    """A server on 127.0.0.1: its port, and the heads of the requests that it got."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            heads.append(head)
            await answer(head.split()[1], writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield listening.sockets[0].getsockname()[1], heads


def fixed(answer: bytes) -> Answer:
    async def write(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    return write


async def fetched(url: str, **policy: Any) -> bytes:
    fetcher = Fetcher(FetchPolicy(**policy))
    try:
        return await fetcher.fetch(url, "image")
    finally:
        await fetcher.aclose()


async def refused(url: str, **policy: Any) -> str:
    with pytest.raises(MediaError) as caught:
        await fetched(url, **policy)
    return str(caught.value)


async def test_a_listed_host_is_fetched_from_with_its_name_as_host_header() -> None:
    async with server(fixed(response("200 OK", PICTURE))) as (port, heads):
        assert await fetched(f"http://localhost:{port}/a.png?k=v", allow=(f"localhost:{port}",)) == PICTURE
    assert heads[0].startswith("GET /a.png?k=v HTTP/1.1")
    assert (
        f"host: localhost:{port}" in heads[0].lower() and "accept-encoding: identity\r\n" in heads[0].lower()
    )


async def test_a_listed_network_is_fetched_from() -> None:
    async with server(fixed(response("200 OK", PICTURE))) as (port, _):
        assert await fetched(f"http://127.0.0.1:{port}/", allow=("127.0.0.0/8",), ports=(port,)) == PICTURE


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "LOCALHOST.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0",
        "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]",
        "127.0.0.1.", "１２７.0.0.1", "①②⑦.⓪.⓪.①", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254",
    ],
)  # fmt: skip
async def test_no_spelling_of_a_private_address_is_connected_to(host: str) -> None:
    async with server(fixed(response("200 OK", PICTURE))) as (port, heads):
        message = await refused(f"http://{host}:{port}/x.png", ports=(port,))
    assert not heads
    assert "not at a public address" in message or "not a valid URL" in message or "resolve" in message


def resolve_to(monkeypatch: pytest.MonkeyPatch, *numbers: str) -> list[str]:
    """Make every name resolve to `numbers`; returns the names that were asked for."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *rest: Any, **more: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name.replace(".", "").isdigit() or ":" in name:
            return real(host, port, *rest, **more)
        asked.append(name)
        return [entry for number in numbers for entry in real(number, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


async def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve_to(monkeypatch, "8.8.8.8", "127.0.0.1")
    async with server(fixed(response("200 OK", PICTURE))) as (port, heads):
        message = await refused(f"http://pictures.example:{port}/", ports=(port,))
    assert "not at a public address" in message and "127.0.0.1" not in message
    assert asked == ["pictures.example"] and not heads


async def test_a_name_is_resolved_once_and_the_checked_address_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = resolve_to(monkeypatch, "127.0.0.1")
    async with server(fixed(response("200 OK", PICTURE))) as (port, heads):
        url = f"http://pictures.example:{port}/"
        assert await fetched(url, allow=(f"pictures.example:{port}",)) == PICTURE
    assert asked == ["pictures.example"] and "host: pictures.example" in heads[0].lower()


async def test_every_redirect_is_checked() -> None:
    async with (
        server(fixed(response("200 OK", PICTURE))) as (secret, secret_heads),
        server(fixed(response("302 Found", location=f"http://127.0.0.1:{secret}/"))) as (port, heads),
    ):
        policy: dict[str, Any] = {"allow": (f"localhost:{port}",), "ports": (port, secret)}
        message = await refused(f"http://localhost:{port}/", **policy)
        assert "not at a public address" in message and heads and not secret_heads


@pytest.mark.parametrize(
    "location, words",
    [
        ("file:///etc/passwd", "only https and http are fetched"),
        ("data:image/png;base64,AAAA", "not a valid URL"),
        ("//user:pw@localhost/", "user name or password"),
        ("http://localhost:22/", "port 22"),
        ("http://localhost:0/", "port 0"),
        ("/", "redirects more than 5 times"),
    ],
)
async def test_redirects_to_what_is_not_fetched_are_refused(location: str, words: str) -> None:
    async with server(fixed(response("307 Temporary Redirect", location=location))) as (port, _):
        assert words in await refused(f"http://localhost:{port}/", allow=("localhost",), ports=(port,))


async def test_a_relative_redirect_is_followed() -> None:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(
            response("200 OK", PICTURE) if path == "/b" else response("301 Moved Permanently", location="b")
        )

    async with server(answer) as (port, heads):
        assert await fetched(f"http://localhost:{port}/a", allow=(f"localhost:{port}",)) == PICTURE
    assert len(heads) == 2


@pytest.mark.parametrize("n_redirects", [5, 6])
async def test_as_many_redirects_as_the_policy_says_are_followed(n_redirects: int) -> None:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        left = int(path[1:])
        writer.write(response("302 Found", location=f"/{left - 1}") if left else response("200 OK", PICTURE))

    async with server(answer) as (port, heads):
        url, policy = f"http://localhost:{port}/{n_redirects}", {"allow": (f"localhost:{port}",)}
        if n_redirects == 5:
            assert await fetched(url, **policy) == PICTURE
        else:
            assert "redirects more than 5 times" in await refused(url, **policy)
    assert len(heads) == 6


async def test_waiting_for_a_place_is_not_taken_for_a_slow_server() -> None:
    """One place, three fetches that together take longer than one may."""

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(response("200 OK", PICTURE))

    async with server(answer) as (port, _):
        policy = FetchPolicy(allow=(f"localhost:{port}",), max_concurrent=1, total_seconds=0.8)
        fetcher = Fetcher(policy)
        try:
            got = await asyncio.gather(
                *(fetcher.fetch(f"http://localhost:{port}/{i}", "image") for i in range(4))
            )
        finally:
            await fetcher.aclose()
    assert got == [PICTURE] * 4


@pytest.mark.parametrize(
    "answer, words",
    [
        (response("404 Not Found", b"gone"), "answered 404 Not Found"),
        (response("500 Oops"), "answered 500 Oops"),
        (response("204 No Content"), "answered 204"),
        (response("302 Found"), "answered 302"),
        (response("200 OK", b"<!DOCTYPE html><p>Log in", content_type="text/html"), "is an HTML page"),
        (response("200 OK", b"x" * 200), "larger than the limit of 100 bytes"),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 200, "larger than the limit of 100 bytes"),
        (response("200 OK", b"\x1f\x8b", content_encoding="gzip"), "compressed content"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", "broke off after 5 bytes"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "did not answer in valid HTTP"),
        (b"", "did not answer in valid HTTP"),
    ],
)
async def test_bad_answers_are_errors_with_the_reason(answer: bytes, words: str) -> None:
    async with server(fixed(answer)) as (port, _):
        message = await refused(
            f"http://localhost:{port}/p?token=secret", allow=(f"localhost:{port}",), max_image_bytes=100
        )
    assert words in message and "secret" not in message and message.startswith(f"http://localhost:{port}/p")


async def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    """By its declared length, by what arrives, from a folder, and from a data URL."""
    body = b"x" * 100
    (tmp_path / "a.png").write_bytes(body)
    file_url, in_folder = f"file://{tmp_path}/a.png", {"file_roots": (tmp_path,)}
    undeclared = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body
    for answer in (response("200 OK", body), undeclared):
        async with server(fixed(answer)) as (port, _):
            url, policy = f"http://localhost:{port}/", {"allow": (f"localhost:{port}",)}
            assert await fetched(url, max_image_bytes=100, **policy) == body
            assert "larger than the limit of 99 bytes" in await refused(url, max_image_bytes=99, **policy)
    assert await fetched(file_url, max_image_bytes=100, **in_folder) == body
    assert "larger than the limit of 99 bytes" in await refused(file_url, max_image_bytes=99, **in_folder)
    encoded = "data:;base64," + base64.b64encode(body).decode()
    assert await fetched(encoded, max_image_bytes=100) == body
    assert "more than the limit of 99" in await refused("data:," + "x" * 100, max_image_bytes=99)


@pytest.mark.parametrize("status", ["301 A", "302 B", "303 C", "307 D", "308 E"])
async def test_every_kind_of_redirect_is_followed(status: str) -> None:
    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(response("200 OK", PICTURE) if path == "/b" else response(status, location="/b"))

    async with server(answer) as (port, heads):
        assert await fetched(f"http://localhost:{port}/a", allow=(f"localhost:{port}",)) == PICTURE
    assert [head.split()[:2] for head in heads] == [["GET", "/a"], ["GET", "/b"]]


async def test_no_more_fetches_than_allowed_run_at_a_time() -> None:
    running, most = 0, 0

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        writer.write(response("200 OK", PICTURE))

    async with server(answer) as (port, heads):
        fetcher = Fetcher(FetchPolicy(allow=(f"localhost:{port}",), max_concurrent=3))
        try:
            urls = [f"http://localhost:{port}/{i}" for i in range(12)]
            await asyncio.gather(*(fetcher.fetch(url, "image") for url in urls))
        finally:
            await fetcher.aclose()
    assert most == 3 and len(heads) == 12


async def test_dead_links_are_errors_with_the_reason() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        message = await refused(f"http://127.0.0.1:{port}/", allow=("127.0.0.1",), ports=(port,))
        assert "the connection was refused" in message
    assert "does not resolve" in await refused("https://pictures.invalid/a.png")


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(_: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with server(silent) as (port, _):
        policy: dict[str, Any] = {"allow": (f"localhost:{port}",)}
        assert "too long" in await refused(f"http://localhost:{port}/", read_seconds=0.1, **policy)
        assert "within 0.1 seconds" in await refused(f"http://localhost:{port}/", total_seconds=0.1, **policy)


async def test_a_server_that_drips_is_given_up() -> None:
    async def drip(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with server(drip) as (port, _):
        message = await refused(f"http://localhost:{port}/", allow=(f"localhost:{port}",), rate_grace=0.1)
        assert "less than 4,096 bytes a second" in message


@pytest.mark.parametrize(
    "url, words",
    [
        ("ftp://example.org/a.png", "not accepted"),
        ("gopher://127.0.0.1/", "not accepted"),
        ("ms://file-1", "not accepted"),
        ("picture.png", "not accepted"),
        ("", "not accepted"),
        ("http://", "names no host"),
        ("http:///a.png", "names no host"),
        ("http://exa mple.org/", "a blank in the host's name"),
        ("http://example.org:99999/", "port 99999"),
        ("http://user:pw@example.org/", "user name or password"),
        ("http://example.org@127.0.0.1/", "user name or password"),
        ("http://example.org:25/", "port 25"),
        ("https://xn--/", "not a valid URL"),
        ("http://example.org\\@127.0.0.1/", "not"),
        ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ", "bare base64"),
    ],
)
async def test_urls_that_are_not_fetched_say_why(url: str, words: str) -> None:
    assert words in await refused(url)


async def test_blanks_around_a_url_do_not_count() -> None:
    async with server(fixed(response("200 OK", PICTURE))) as (port, heads):
        assert (
            await fetched(f" \n\thttp://localhost:{port}/a.png \r\n", allow=(f"localhost:{port}",)) == PICTURE
        )
    assert heads[0].startswith("GET /a.png HTTP")
    assert await fetched(" data:,abc") == b"abc"


async def test_data_urls_of_any_size_are_read() -> None:
    assert await fetched("data:,abc") == b"abc"
    assert await fetched("data:;base64," + "AAAA" * 50_000) == bytes(150_000)


async def test_proxies_from_the_environment_are_used_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(fixed(response("200 OK", PICTURE))) as (port, heads):
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        assert "does not resolve" in await refused("http://pictures.invalid/a.png")
        assert not heads
        assert await fetched("http://pictures.invalid/a.png", use_environment_proxies=True) == PICTURE
        assert heads[0].startswith("GET http://pictures.invalid/a.png")


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """A server's TLS context with a certificate that nobody trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context


async def test_an_untrusted_certificate_is_an_error_with_the_reason(certificate: ssl.SSLContext) -> None:
    async with server(fixed(response("200 OK", PICTURE)), tls=certificate) as (port, heads):
        message = await refused(f"https://localhost:{port}/", allow=(f"localhost:{port}",))
    assert "certificate is not valid" in message and not heads


async def test_the_name_is_checked_against_the_certificate_although_a_number_is_connected_to(
    certificate: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    monkeypatch.setattr("media.fetch.connect.httpx.create_ssl_context", lambda **_: trusting)
    resolve_to(monkeypatch, "127.0.0.1")
    async with server(fixed(response("200 OK", PICTURE)), tls=certificate) as (port, _):
        policy: dict[str, Any] = {"allow": ("localhost", "other.example"), "ports": (port,)}
        assert await fetched(f"https://localhost:{port}/", **policy) == PICTURE
        assert "certificate is not valid" in await refused(f"https://other.example:{port}/", **policy)


# Tenants


@pytest.mark.parametrize("proxied", [False, True])
async def test_nothing_but_the_url_is_sent_whatever_was_fetched_before(
    proxied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tenant's login helps no other, nor its own redirect; no file of the operator's adds a password."""
    (tmp_path / ".netrc").write_text("default login operator password very-secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))

    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        """A site that needs a login for /private, and would also take the operator's password."""
        wide = "session=1; Path=/; Domain=localhost"
        if path == "/login":
            writer.write(response("200 OK", PICTURE, set_cookie="session=1; Path=/"))
        elif path == "/login-and-go":
            writer.write(response("302 Found", location="/private", set_cookie=wide))
        elif "session=1" in heads[-1] or "authorization" in heads[-1].lower():
            writer.write(response("200 OK", PICTURE))
        else:
            writer.write(response("401 Unauthorized", www_authenticate='Basic realm="x"', set_cookie=wide))

    async with server(answer) as (port, heads):
        fetcher = Fetcher(FetchPolicy(allow=(f"localhost:{port}",), use_environment_proxies=proxied))
        try:
            assert await fetcher.fetch(f"http://localhost:{port}/login", "image") == PICTURE
            for path in ("private", "login-and-go", "private"):
                with pytest.raises(MediaError, match="answered 401"):
                    await fetcher.fetch(f"http://localhost:{port}/{path}", "image")
        finally:
            await fetcher.aclose()
    assert [head.split()[1] for head in heads] == [
        "/login", "/private", "/login-and-go", "/private", "/private"
    ]  # fmt: skip
    sent = {line.partition(":")[0].lower() for head in heads for line in head.split("\r\n")[1:] if line}
    assert sent - {"connection"} == {"host", "user-agent", "accept", "accept-encoding"}


# Files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a b.png").write_bytes(PICTURE)
    (tmp_path / "outside.png").write_bytes(PICTURE)
    (tmp_path / "root-of-another").mkdir()
    (tmp_path / "root-of-another" / "a.png").write_bytes(PICTURE)
    (folder / "sibling").symlink_to(tmp_path / "root-of-another")
    (folder / "out.png").symlink_to(tmp_path / "outside.png")
    (folder / "in.png").symlink_to(folder / "sub" / "a b.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")
    return folder


@pytest.mark.parametrize("name", ["sub/a%20b.png", "in.png", "sub/../sub/a%20b.png"])
async def test_files_under_a_root_are_read(root: Path, name: str) -> None:
    assert await fetched(f"file://{root}/{name}", file_roots=(root,)) == PICTURE


@pytest.mark.parametrize(
    "name",
    [
        "../root-of-another/a.png",
        "sibling/a.png",
        "out.png",
        "../outside.png",
        "%2e%2e/outside.png",
        "loop.png",
        "pipe.png",
        "sub",
        "none.png",
        "a%00b",
    ],
)
async def test_what_is_no_regular_file_under_a_root_is_refused_alike(root: Path, name: str) -> None:
    message = await refused(f"file://{root}/{name}", file_roots=(root,))
    assert message == "the file:// URL names no readable file in a folder that this server may read from"


async def test_a_folder_whose_name_only_begins_like_a_root_is_outside(root: Path) -> None:
    beside = root.parent / "root-of-another" / "a.png"
    message = await refused(f"file://{beside}", file_roots=(root,))
    assert message == "the file:// URL names no readable file in a folder that this server may read from"
    assert await fetched(f"file://{beside}", file_roots=(root, beside.parent)) == PICTURE


async def test_file_urls_are_off_without_roots_and_take_no_host(root: Path) -> None:
    assert "switched off" in await refused(f"file://{root}/in.png")
    for url in (f"file://localhost{root}/in.png", f"file://host{root}/in.png", "file:in.png"):
        assert "no host" in await refused(url, file_roots=(root,))
    assert "larger than the limit" in await refused(
        f"file://{root}/in.png", file_roots=(root,), max_image_bytes=10
    )


def test_urls_are_shown_without_what_might_be_secret_or_long() -> None:
    assert shown_url("data:image/png;base64,iVBORw0KGgo") == "data URL"
    assert shown_url("https://me:pw@host/p?key=1#f") == "https://host/p"
    assert shown_url("https://host/" + "x" * 500) == "https://host/" + "x" * 57 + "..."
    assert shown_url("iVBORw0KGgoAAAANSUhEUg") == "'iVBORw0KGgoA...'"
