"""docs/guides/deploy.md and docs/guides/sglang.md say what the code computes and offers."""

from __future__ import annotations

import re
from pathlib import Path

from engine.profiles import PROFILES
from engine.profiles.blackwell import cache_of
from gateway.xtml import Decoder, Vocab, encode, fold, from_request

DOCS = Path(__file__).resolve().parents[2] / "docs/guides"
CONTEXTS = {"32k": 2**15, "64k": 2**16, "128k": 2**17, "192k": 3 * 2**16, "512k": 2**19, "1M": 2**20}


def sizing_row(name: str) -> str:
    cache = cache_of(PROFILES[name].merged())
    counts = " | ".join(str(cache.n_sequences(n_tokens)) for n_tokens in CONTEXTS.values())
    return f"| `{name}` | {cache.memory / 1e9:.0f} GB | {counts} |"


def test_the_sizing_table_is_computed() -> None:
    text = (DOCS / "deploy.md").read_text()
    assert f"| profile | cache a GPU | {' | '.join(CONTEXTS)} |" in text
    rows = [sizing_row(name) for name in ("b300x8", "b300x8-dspark", "b300x8-dcp", "b300x16-ray")]
    assert [row for row in rows if row not in text] == []


def test_every_profile_is_in_the_document() -> None:
    named = set(re.findall(r"^\| `([a-z0-9-]+)` \|", (DOCS / "deploy.md").read_text(), re.M))
    assert set(PROFILES) <= named


def test_the_library_example_works(model_folder: Path) -> None:
    """The example of docs/guides/sglang.md, with output ids made by hand."""
    code = re.search(r"```python\n(.*?)```", (DOCS / "sglang.md").read_text(), re.S)
    assert code
    vocab = Vocab.load(model_folder)
    marker = vocab.special_ids
    ids = [
        *vocab.encode("thinking"), marker["<|close|>"], *vocab.encode("think"), marker["<|sep|>"],
        marker["<|open|>"], *vocab.encode("response"), marker["<|sep|>"], *vocab.encode("answer"),
    ]  # fmt: skip
    names = {"output_ids": ids, "Path": Path}
    exec(code[1].replace("/models/Kimi-K3-NVFP4", str(model_folder)), names)
    assert names["reply"].content == "answer"
    assert names["prompt"].ids and (Decoder, encode, fold, from_request)
