"""docs/deploy/nginx.conf in a real nginx, before the real service (its engine scripted)."""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.api.conftest import END, END_THINK, Server, chat_body
from tests.scripted import Script

CONFIG = Path(__file__).resolve().parents[2] / "docs/deploy/nginx.conf"
Ids = Callable[[str], list[int]]

pytestmark = pytest.mark.skipif(
    shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") is None,
    reason="nginx is not installed (apt-get install nginx-light): its configuration is not tested",
)


def self_signed(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "k3.example.org")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    signed = builder.not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


@asynccontextmanager
async def nginx(folder: Path, upstream: str, port: int) -> AsyncIterator[httpx.AsyncClient]:
    """nginx with the project's configuration; only ports, folders and the process model are changed."""
    self_signed(folder)
    text = CONFIG.read_text()
    for published, here in (
        ("127.0.0.1:8000", upstream.removeprefix("http://")),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/tls", str(folder)),
        ("/var/log/nginx", str(folder)),
        ("/run/nginx.pid", str(folder / "pid")),
        ("http {", f"http {{\n    client_body_temp_path {folder}/body;\n    proxy_temp_path {folder}/proxy;"),
    ):
        assert published in text
        text = text.replace(published, here)
    (folder / "nginx.conf").write_text("daemon off;\n" + text)
    binary = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    process = await asyncio.create_subprocess_exec(
        binary, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "stderr")
    )
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=False, timeout=30) as client:
        try:
            while True:
                assert process.returncode is None, (folder / "stderr").read_text()
                try:
                    await client.get("/health")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
            yield client
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


@pytest.mark.timeout(60)
async def test_a_stream_is_not_held_back(server: Server, ids: Ids, tmp_path: Path, free_port: int) -> None:
    """The last tokens are made only after the first have arrived: a proxy that buffers would hang."""
    script = Script(ids(f"thinking{END_THINK}answer{END}"), stall=asyncio.Event())
    async with server(script) as live, nginx(tmp_path, live.url, free_port) as client:
        request = client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True))
        async with request as response:
            lines = []
            async for line in response.aiter_lines():
                lines.append(line)
                if "answer" in line:
                    script.stall.set()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert lines[-2:] == ["data: [DONE]", ""] or "data: [DONE]" in lines


@pytest.mark.timeout(60)
async def test_a_comment_keeps_a_silent_stream_alive(
    server: Server, ids: Ids, tmp_path: Path, free_port: int
) -> None:
    script = Script(ids(f"a{END_THINK}b{END}"), hold=asyncio.Event())
    async with (
        server(script, keep_alive_seconds=0.05) as live,
        nginx(tmp_path, live.url, free_port) as client,
        client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith(":"):
                script.hold.set()
    assert script.hold.is_set()


@pytest.mark.timeout(60)
async def test_a_client_that_leaves_is_noticed_through_the_proxy(
    server: Server, ids: Ids, tmp_path: Path, free_port: int
) -> None:
    script = Script(ids("thinking " * 5000), pause=0.001)
    async with server(script) as live, nginx(tmp_path, live.url, free_port) as client:
        async with client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response:
            async for line in response.aiter_lines():
                if "reasoning_content" in line:
                    break
        while live.engine.running:
            await asyncio.sleep(0.01)
        assert len(live.engine.aborted) == 1


@pytest.mark.timeout(120)
async def test_big_bodies_pass_and_too_big_ones_are_refused(
    server: Server, ids: Ids, tmp_path: Path, free_port: int
) -> None:
    async with (
        server(Script(ids(f"a{END_THINK}b{END}"))) as live,
        nginx(tmp_path, live.url, free_port) as client,
    ):
        padded = json.dumps(chat_body()).encode() + b" " * (20 * 2**20)
        headers = {"content-type": "application/json"}
        accepted = await client.post("/v1/chat/completions", content=padded, headers=headers)
        assert accepted.status_code == 200
        assert await status_of_length(free_port, 257 * 2**20) == 413


async def status_of_length(port: int, n_bytes: int) -> int:
    """The answer to a request that announces a body of `n_bytes` and sends none of it."""
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=insecure)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: k3\r\nContent-Length: {n_bytes}\r\n\r\n"
    writer.write(head.encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


@pytest.mark.timeout(60)
async def test_errors_of_the_service_come_through_unchanged(
    server: Server, ids: Ids, tmp_path: Path, free_port: int
) -> None:
    async with (
        server(Script(ids(f"a{END_THINK}b{END}")), api_keys=["sk-1"]) as live,
        nginx(tmp_path, live.url, free_port) as client,
    ):
        refused = await client.post("/v1/chat/completions", json=chat_body())
        assert refused.status_code == 401 and refused.json()["error"]["code"]
        allowed = await client.post(
            "/v1/chat/completions", json=chat_body(), headers={"authorization": "Bearer sk-1"}
        )
        assert allowed.status_code == 200
