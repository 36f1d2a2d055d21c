"""Writes the tokenizer and config files of a 1,024-token K3, for a random-weight checkpoint on a GPU host.

    python -m bench.gpu_tokenizer FOLDER

The checkpoint writer that travels with the packed vLLM takes sizes from its own table and everything else
from these files. Byte tokens, fillers, and the real special-token table behind them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine.mini.config import MiniConfig, generation_json, preprocessor_json
from engine.mini.vocabulary import N_SLOTS, SPECIAL_TOKENS

N_RANKS = 768


def tokenizer_json() -> dict:
    """A `tokenizers` byte-level vocabulary without merges whose special tokens have K3's ids."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = alphabet + [f"<filler{n}>" for n in range(len(alphabet), N_RANKS)]
    special = {slot: name for slot, name, _ in SPECIAL_TOKENS}
    names += [special.get(slot, f"<slot{slot}>") for slot in range(N_SLOTS)]
    tokenizer = Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special.values()])
    return json.loads(tokenizer.to_str())


def main(folder: Path) -> None:
    config = MiniConfig(n_ranks=N_RANKS)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "[BOS]",
            "eos_token": "<|end_of_msg|>",
            "unk_token": "[UNK]",
            "pad_token": "[PAD]",
        },
        "config.json": config.to_json(),
        "generation_config.json": generation_json(config),
        "preprocessor_config.json": preprocessor_json(),
    }.items():
        (folder / name).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
