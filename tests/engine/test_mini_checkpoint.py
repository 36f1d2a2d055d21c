"""The mini checkpoint: real keys, real names, the same bytes every time."""

import hashlib
import json

import pytest
import torch
from safetensors import safe_open

from engine.mini.bpe import corpus, learn
from engine.mini.build import checkpoint_dir
from engine.mini.checkpoint import initial_tensors, tensor_shapes, write_checkpoint
from engine.mini.config import MiniConfig
from engine.mini.vocabulary import N_SLOTS, RANKS_FILE, read_ranks, write_ranks
from tests.shared_data import shared


@pytest.fixture(scope="module")
def folder():
    return checkpoint_dir()


def test_untrained_checkpoint_is_the_same_for_the_same_seed(tmp_path):
    hashes = set()
    for name in ("a", "b"):
        write_checkpoint(tmp_path / name, MiniConfig(), initial_tensors(MiniConfig(), seed=3))
        hashes.add(hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest())
    assert len(hashes) == 1


def test_checkpoint_is_at_most_32_megabytes(folder):
    assert (folder / "model.safetensors").stat().st_size <= 32_000_000


def test_config_has_ids_of_its_own_vocabulary(folder):
    config = json.loads((folder / "config.json").read_text())
    table = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    names = {int(token_id): entry["content"] for token_id, entry in table.items()}
    assert names[config["eos_token_id"]] == "<|end_of_msg|>"
    assert names[config["media_placeholder_token_id"]] == "<|media_pad|>"
    assert config["text_config"]["vocab_size"] == len(read_ranks()) + N_SLOTS
    assert max(names) < config["text_config"]["vocab_size"]


def test_special_tokens_stand_at_the_real_offsets(folder):
    real = json.loads(shared("tokenizer/tokenizer_config.json").read_text())["added_tokens_decoder"]
    mini = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]

    def by_offset(table):
        first = min(map(int, table))
        return {int(token_id) - first: (e["content"], e["special"]) for token_id, e in table.items()}

    assert by_offset(mini) == by_offset(real)


def test_every_layer_is_kda_or_mla_and_both_occur():
    text = MiniConfig().to_json()["text_config"]
    kda, mla = text["linear_attn_config"]["kda_layers"], text["linear_attn_config"]["full_attn_layers"]
    assert kda and mla
    assert sorted(kda + mla) == list(range(1, text["num_hidden_layers"] + 1))
    assert text["num_hidden_layers"] > text["attn_res_block_size"]


def test_tensors_are_stored_in_the_real_dtypes(folder):
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        names = list(tensors.keys())
        layer = "language_model.model.layers.0.self_attn."
        assert tensors.get_tensor(layer + "A_log").dtype == torch.float32
        assert tensors.get_tensor(layer + "q_conv1d.weight").dtype == torch.float32
        assert tensors.get_tensor(layer + "q_proj.weight").dtype == torch.bfloat16
    assert set(names) == set(tensor_shapes(MiniConfig()))


def test_tensors_that_do_not_fit_are_refused(tmp_path):
    tensors = initial_tensors(MiniConfig())
    tensors["language_model.model.norm.weight"] = torch.ones(3)
    with pytest.raises(ValueError, match=r"model\.norm\.weight"):
        write_checkpoint(tmp_path, MiniConfig(), tensors)


def test_checkpoint_is_built_once(tmp_path, monkeypatch):
    monkeypatch.setenv("K3_CACHE", str(tmp_path))
    said = []
    first = checkpoint_dir(said.append)
    built = (first / "model.safetensors").stat().st_mtime_ns
    assert checkpoint_dir(said.append) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == built
    assert len(said) == 2
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.slow
def test_ranks_file_is_what_the_corpus_yields(tmp_path):
    write_ranks(learn(corpus(), MiniConfig().n_ranks), tmp_path / "ranks")
    assert (tmp_path / "ranks").read_bytes() == RANKS_FILE.read_bytes()


def test_the_first_ranks_are_what_the_corpus_yields():
    """Merges are learnt one after the other, so fewer of them are the same ones."""
    n = MiniConfig().n_ranks // 5
    assert learn(corpus(), n) == list(read_ranks())[:n]


def test_no_rank_joins_a_word_with_its_surroundings():
    for token in read_ranks():
        text = token.decode("utf-8", "replace")
        if len(text) > 1:
            kinds = {
                "letter" if c.isalpha() else "digit" if c.isdigit() else "blank" if c.isspace() else "sign"
                for c in text
            }
            assert kinds in ({"letter"}, {"sign"}), text
            assert not set(text) & set("_-"), text
