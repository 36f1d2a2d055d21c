"""docs/reference/metrics.md lists what `/metrics` has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.api.conftest import Server
from tests.scripted import Script

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"


async def test_every_metric_is_documented_with_its_own_words(server: Server) -> None:
    async with server(Script([])) as live:
        shown = (await live.http.get("/metrics")).text
    exposed = {
        name: said for name, said in re.findall(r"^# HELP (k3_\w+) (.*)$", shown, re.M)
        if not name.endswith("_created")
    }  # fmt: skip
    rows = re.findall(r"^\| `(k3_\w+)` \|.*\| (.*) \|$", DOCUMENT.read_text(), re.M)
    assert dict(rows).keys() == exposed.keys()
    assert not [name for name, said in rows if not said.startswith(exposed[name])]
