"""The tokenizer that vLLM and xgrammar are given: the same ids and bytes as the front end's vocabulary."""

from __future__ import annotations

import copy

import pytest

from engine.plugin.tokenizer import INERT_PREFIX, K3Tokenizer, byte_level_alphabet


@pytest.fixture(scope="module")
def tokenizer(model_folder) -> K3Tokenizer:
    return K3Tokenizer.from_pretrained(model_folder)


def test_every_id_has_its_own_spelling(tokenizer, vocab):
    spellings = tokenizer.get_vocab()
    assert sorted(spellings.values()) == list(range(vocab.size))
    assert len(tokenizer) == tokenizer.vocab_size == vocab.size
    assert tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(range(vocab.size))) == list(
        range(vocab.size)
    )


def test_grammars_see_the_bytes_of_every_token(tokenizer, vocab):
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocab.size)
    expected = [
        (INERT_PREFIX if vocab.special_name(i) else b"") + vocab.token_bytes(i) for i in range(vocab.size)
    ]
    assert info.decoded_vocab == expected
    assert info.stop_token_ids == [vocab.end_of_msg]
    assert info.special_token_ids == []  # xgrammar would refuse these even where a grammar names them
    assert not info.add_prefix_space


def test_special_tokens_are_found_by_name_only(tokenizer, vocab):
    assert tokenizer.convert_tokens_to_ids("<|media_pad|>") == vocab.media_pad
    assert tokenizer.decode(vocab.media_pad) == "<|media_pad|>"
    assert tokenizer.convert_tokens_to_ids("no such token") == -1
    assert not set(tokenizer.encode("a <|open|> typed by a user")) & set(tokenizer.all_special_ids)
    assert tokenizer.eos_token_id == vocab.end_of_msg


def test_text_survives_a_round_trip(tokenizer):
    text = "Grüße, 世界! \n\tcode(x) <|sep|> 🙂"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer([text, "a"])["input_ids"] == [tokenizer.encode(text), tokenizer.encode("a")]


def test_skipping_special_tokens(tokenizer, vocab):
    ids = [vocab.open, *tokenizer.encode("response"), vocab.sep]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "response"
    assert tokenizer.decode(ids) == "<|open|>response<|sep|>"


def test_copies_are_the_tokenizer_itself(tokenizer):
    assert copy.deepcopy(tokenizer) is tokenizer


def test_the_byte_level_alphabet_is_that_of_published_tokenizers():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    assert byte_level_alphabet() == [bytes_to_unicode()[byte] for byte in range(256)]


async def test_vllm_uses_it(engine, vocab):
    tokenizer = engine._llm.get_tokenizer()
    assert isinstance(tokenizer, K3Tokenizer)
    assert engine._llm.model_config.trust_remote_code is False
    assert engine._llm.model_config.hf_config.media_placeholder_token_id == vocab.media_pad
