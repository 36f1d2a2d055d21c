"""The tokenizer that vLLM is given: K3's tokenizer data, read without the checkpoint's remote code.

vLLM renders and detokenizes nothing here. It needs a tokenizer for three things: the id of the media
placeholder, the end-of-message id, and the vocabulary that grammars are compiled against.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gateway.xtml import RANK_FILE, TABLE_FILE, Vocab

TOKENIZER_MODE = "k3_gateway"

# A special token is spelled for grammars with a byte in front that no text can hold, so that inside a string
# only a token-level element can allow it. Spelled by its name alone, `<|close|>` would pass as text in a JSON
# string (xgrammar 0.2.8), and the decoder would read it as a marker. An empty spelling makes xgrammar refuse
# the id even where a token-level element names it.
INERT_PREFIX = b"\xff"


def byte_level_alphabet() -> list[str]:
    """The printable character of each byte, as byte-level BPE vocabularies write them (GPT-2's table)."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(shifted)) for byte in range(256)]


class K3Tokenizer:
    """vLLM's `TokenizerLike` over `Vocab`, as far as vLLM uses it. Immutable."""

    # Tells xgrammar that this is a tiktoken vocabulary; it finds the byte-level spelling by itself.
    vocab_files_names = {"vocab_file": RANK_FILE}  # noqa: RUF012
    is_fast = True
    truncation_side = "left"
    model_input_names = ("input_ids",)

    def __init__(self, vocab: Vocab, name_or_path: str) -> None:
        self.vocab = vocab
        self.name_or_path = name_or_path

    @classmethod
    def from_pretrained(cls, path_or_repo_id: str | Path, *args: Any, **kwargs: Any) -> K3Tokenizer:
        """From a folder, or from a repository of the Hub, of which only the tokenizer's data is fetched."""
        folder = Path(path_or_repo_id)
        if not folder.is_dir():
            from huggingface_hub import snapshot_download

            files = [RANK_FILE, TABLE_FILE, "generation_config.json", "config.json"]
            folder = Path(
                snapshot_download(str(path_or_repo_id), revision=kwargs.get("revision"), allow_patterns=files)
            )
        return cls(Vocab.load(folder), str(path_or_repo_id))

    def __deepcopy__(self, memo: dict[int, Any]) -> K3Tokenizer:
        return self

    def __len__(self) -> int:
        return self.vocab.size

    @property
    def vocab_size(self) -> int:
        return self.vocab.size

    @property
    def max_token_id(self) -> int:
        return self.vocab.size - 1

    @cached_property
    def max_chars_per_token(self) -> int:
        return max(len(self.vocab.token_bytes(i)) for i in range(self.vocab.size))

    @property
    def eos_token_id(self) -> int:
        return self.vocab.end_of_msg

    @property
    def bos_token_id(self) -> int:
        return self.vocab.special_ids["[BOS]"]

    @property
    def pad_token_id(self) -> int:
        return self.vocab.special_ids["[PAD]"]

    @property
    def unk_token_id(self) -> None:
        return None

    @property
    def all_special_tokens(self) -> list[str]:
        return list(self.vocab.special_ids)

    @property
    def all_special_ids(self) -> list[int]:
        return list(self.vocab.special_ids.values())

    def num_special_tokens_to_add(self, *args: Any, **kwargs: Any) -> int:
        return 0

    @cached_property
    def _spellings(self) -> list[str]:
        alphabet = byte_level_alphabet()

        def spell(token_id: int) -> str:
            inert = INERT_PREFIX if self.vocab.special_name(token_id) else b""
            return "".join(alphabet[byte] for byte in inert + self.vocab.token_bytes(token_id))

        return [spell(token_id) for token_id in range(self.vocab.size)]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {spelling: token_id for token_id, spelling in enumerate(self._spellings)}

    def get_vocab(self) -> dict[str, int]:
        """Byte-level spelling -> id of every token; special ones with INERT_PREFIX in front."""
        return dict(self._ids)

    def get_added_vocab(self) -> dict[str, int]:
        return dict(self.vocab.special_ids)

    def encode(self, text: str, *args: Any, **kwargs: Any) -> list[int]:
        """Inert: special spellings in the text are ordinary bytes."""
        return self.vocab.encode(text)

    def __call__(self, text: str | list[str], *args: Any, **kwargs: Any) -> Any:
        from transformers import BatchEncoding

        ids = self.vocab.encode(text) if isinstance(text, str) else [self.vocab.encode(part) for part in text]
        return BatchEncoding({"input_ids": ids})

    def decode(self, ids: Sequence[int] | int, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        wanted = [ids] if isinstance(ids, int) else ids
        return self.vocab.decode(
            i for i in wanted if not (skip_special_tokens and self.vocab.special_name(i))
        )

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        """Ids of special names (as the table has them) or of byte-level spellings; -1 for what is neither."""
        if isinstance(tokens, str):
            return self.vocab.special_ids.get(tokens, self._ids.get(tokens, -1))
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Sequence[int], skip_special_tokens: bool = False) -> list[str]:
        return [
            self.vocab.special_name(i) or self._spellings[i]
            for i in ids
            if not (skip_special_tokens and self.vocab.special_name(i))
        ]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return self.decode(self.convert_tokens_to_ids(tokens))

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("prompts are encoded by gateway.xtml, not by a chat template")


def register_tokenizer() -> None:
    """Make `tokenizer_mode="k3_gateway"` known to vLLM. Safe to call again."""
    from vllm.renderers.registry import RENDERER_REGISTRY
    from vllm.tokenizers.registry import TokenizerRegistry

    if TOKENIZER_MODE not in TokenizerRegistry.tokenizers:
        TokenizerRegistry.register(TOKENIZER_MODE, "engine.plugin.tokenizer", "K3Tokenizer")
        RENDERER_REGISTRY.register(TOKENIZER_MODE, "engine.plugin.renderer", "IdleRenderer")
