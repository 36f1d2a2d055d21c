"""Every document, section and file that code, tests and documents point to is there."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

from engine.profiles import PROFILES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "engine").rglob("*.md")]
    if "node_modules" not in path.parts
)
_TEXTS = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".txt", ".mjs", ".in", ".conf", ".html", ".js"}
# Documents of development; their facts are in docs/format.md, docs/decisions.md and docs/concepts/model.md.
_NOT_HERE = re.compile(
    r"\b(k3|contract|design|patches-and-engine|cpu-k3|mini-train|field-reports|real-inputs|apis)\.md\b"
    r"|\bfield reports?\b|\bspec (k3|contract|design|patches|cpu)\b"
)
_SECTION_NUMBER = re.compile(r"(?<![\w(])\([1-7]\.\d{1,2}[,)]")
_CODE = re.compile(r"\b(?:[ABCG]\d\d|D\d{1,2})\b")
_CITED = re.compile(r"docs/([a-z0-9/_-]+\.md)(?:#([A-Za-z0-9_-]+))?")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def tracked() -> list[Path]:
    """Files of the repository; without git, all that could be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        folders = ("gateway", "media", "engine", "patches", "tests", "bench", "docs", "examples")
        found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    texts = [path for path in found if path.is_file() and (path.suffix in _TEXTS or not path.suffix)]
    return [path for path in texts if path.name != "package-lock.json" and path != Path(__file__)]


@functools.cache
def read(path: Path) -> str:
    return path.read_text(errors="replace")


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """Explicit anchors, and headings as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S)
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return frozenset(found)


def test_every_section_that_is_cited_exists() -> None:
    wrong = []
    for path in tracked():
        for document, anchor in _CITED.findall(read(path)):
            target = ROOT / "docs" / document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{path.relative_to(ROOT)}: docs/{document}#{anchor}")
    assert wrong == []


def test_nothing_points_to_a_document_that_readers_do_not_have() -> None:
    """Also in what `k3 profiles` prints."""
    wrong = [(name, found[0]) for name, p in PROFILES.items() for found in _NOT_HERE.finditer(p.source)]
    for path in tracked():
        if path.suffix not in {".py", ".md", ".toml", ".yml"}:
            continue
        wrong += [(path.name, found[0]) for found in _NOT_HERE.finditer(read(path))]
        if path.is_relative_to(ROOT / "gateway") or path.is_relative_to(ROOT / "media"):
            wrong += [(path.name, found[0]) for found in _SECTION_NUMBER.finditer(read(path))]
    assert wrong == []


def test_the_codes_in_the_decoder_tests_are_decisions() -> None:
    codes = {code.lower() for code in _CODE.findall(read(ROOT / "tests/xtml/test_decode.py"))}
    assert codes and codes <= anchors(ROOT / "docs/decisions.md")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    wrong = []
    for link in _LINK.findall(re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S)):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_no_anchor_is_there_twice() -> None:
    for path in DOCUMENTS:
        given = re.findall(r'<a id="([^"]+)"', read(path))
        assert len(given) == len(set(given)), path


def named_paths(text: str) -> list[str]:
    """Files and folders that docs/architecture.md names: in its tree, and in backticks."""
    found: list[str] = []
    for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S):
        above: list[tuple[int, str]] = []
        for line in block.splitlines():
            depth, words = len(line) - len(line.lstrip()), re.split(r" {2,}", line.strip())[0].split()
            if depth > 16 or not all(re.fullmatch(r"[\w.-]+(/[\w.-]*)*", word) for word in words):
                continue  # goes on with the description of the line before
            above = [place for place in above if place[0] < depth]
            folder = "".join(name for _, name in above)
            found += [folder + word for word in words]
            if words and words[-1].endswith("/"):
                above.append((depth, words[-1]))
    return found + re.findall(r"`([\w-]+/[\w./-]+|[\w-]+\.(?:py|md|toml))`", text)


_PATH = re.compile(r"(?<![\w/.-])((?:gateway|media|engine|patches|tests|bench|examples|docs)/[\w./-]*\.\w+)")


def test_files_that_are_named_anywhere_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked()
        if path.suffix in {".py", ".md"}
        for name in _PATH.findall(read(path))
        if not (ROOT / name).exists()
    ]
    assert wrong == []


def test_the_paths_in_the_architecture_exist() -> None:
    paths = named_paths(read(ROOT / "docs/architecture.md"))
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_wrapped(path: Path) -> None:
    """Prose at about 110; tables and code are as long as they are."""
    text = re.sub(r"^ *```.*?^ *```", "", read(path), flags=re.M | re.S)
    prose = (line for line in text.splitlines() if not line.startswith(("|", "    ")))
    assert not [line for line in prose if len(line) > 120 and " " in line.strip()[:100]]
