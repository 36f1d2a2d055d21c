"""Schemathesis over the OpenAPI document: no 500, no status or body that the document does not name."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.api.conftest import END, END_THINK, Server
from tests.scripted import Script

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_service_keeps_what_its_openapi_document_says(server: Server, ids, tmp_path: Path) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"), per_step=8)) as live:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")),
            *("run", f"{live.url}/openapi.json", "--checks", CHECKS, "--seed", "1"),
            *("--max-examples", "50", "--phases", "examples,coverage,fuzzing", "--no-color"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-12_000:]
