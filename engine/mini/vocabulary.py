"""The mini K3's vocabulary: where its ranks come from, and the real special-token table at its own offset.

A word has the same ids wherever it stands: the merges are learned on letter runs and on punctuation runs
alone, so no rank holds a blank with a letter, two digits, or an underscore. The real K3 pre-tokenisation
(docs/format.md#pre-tokenisation), which joins a word with the blank before it, then finds no merge to
make across that border.
Copying a word from the prompt is copying its ids, which a small model learns far sooner.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

RANKS_FILE = Path(__file__).parent / "data" / "tiktoken.model"

N_SLOTS = 256
"""Ids behind the ranks that the table may name (docs/format.md#special-tokens)."""

SPECIAL_TOKENS: tuple[tuple[int, str, bool], ...] = (
    (0, "[BOS]", True),
    (1, "[EOS]", True),
    (2, "<|end_of_msg|>", True),
    (3, "<|open|>", False),
    (4, "<|close|>", False),
    (5, "<|sep|>", False),
    (6, "[start_header_id]", True),
    (7, "[end_header_id]", True),
    (9, "[EOT]", True),
    (18, "<|media_begin|>", True),
    (19, "<|media_content|>", True),
    (20, "<|media_end|>", True),
    (21, "<|media_pad|>", True),
    (65, "<osagent_mode>", True),
    (254, "[UNK]", True),
    (255, "[PAD]", True),
)
"""(slot, name, special flag) as in the real table (docs/format.md#special-tokens)."""


def special_id(name: str, n_ranks: int) -> int:
    """The id of a special token. Raises KeyError for a name that is not in the table."""
    return n_ranks + {name: slot for slot, name, _ in SPECIAL_TOKENS}[name]


def read_ranks(path: Path = RANKS_FILE) -> dict[bytes, int]:
    """Token bytes -> rank, from a `tiktoken.model` file (docs/format.md#rank-file)."""
    return {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in path.read_bytes().splitlines() if line)
    }


def write_ranks(tokens: list[bytes], path: Path) -> None:
    """Writes tokens in rank order in the format of `tiktoken.model`."""
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    path.write_bytes(b"".join(lines))


def tokenizer_json(n_ranks: int) -> dict[str, Any]:
    """The content of tokenizer_config.json: the special-token table and the names of four of them."""
    return {
        "added_tokens_decoder": {
            str(n_ranks + slot): {
                "content": name,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": special,
            }
            for slot, name, special in SPECIAL_TOKENS
        },
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "model_max_length": 1048576,
    }
