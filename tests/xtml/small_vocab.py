"""A small vocabulary with K3's special tokens, so that tests need no real tokenizer files."""

import base64
import json
from pathlib import Path

# Names by slot, as in K3's table (docs/format.md#special-tokens): the first slot follows the ranks.
SLOT_NAMES = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    6: "[start_header_id]",
    7: "[end_header_id]",
    9: "[EOT]",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    65: "<osagent_mode>",
    254: "[UNK]",
    255: "[PAD]",
}
# Every merge builds on an earlier one, so that BPE can reach it.
_MERGES = [
    "th",
    "in",
    "nk",
    "think",
    " r",
    "ol",
    " rol",
    " role",
    '="',
    "re",
    "er",
    "us",
    "user",
    "  ",
    "城",
    "ag",
]


def write_small_vocab(folder: Path) -> Path:
    """256 byte tokens, a few merges, 256 special slots; no generation_config.json."""
    tokens = [bytes([value]) for value in range(256)] + [text.encode() for text in _MERGES]
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    special = {"[BOS]", "[EOS]", "<|end_of_msg|>"}
    table = {
        str(len(tokens) + slot): {"content": n, "special": n in special} for slot, n in SLOT_NAMES.items()
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": table}))
    return folder
