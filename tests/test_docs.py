"""The documents fit the code."""

import re
from pathlib import Path

from gateway.app import REPLY_HEADERS
from gateway.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert not [name for name in COMMANDS if f"`k3 {name}" not in text]


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", (ROOT / "Makefile").read_text(), re.M))
    known = {name for line in targets for name in line.split()}
    named = {n for path in DOCUMENTS for n in re.findall(r"`make ([a-z-]+)", path.read_text())}
    assert not named - known


def test_browsers_may_read_every_documented_reply_header() -> None:
    text = (ROOT / "docs/reference/api.md").read_text()
    assert set(re.findall(r"^\| `(k3-[a-z-]+)` \|", text, re.M)) == set(REPLY_HEADERS) - {
        "retry-after",
        "x-request-id",
    }
