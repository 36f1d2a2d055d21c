"""Ids as the checkpoint's files define them, and files that are not K3's."""

import json
from pathlib import Path

import pytest

from gateway.xtml.vocabulary import Vocab, VocabError
from tests.xtml.small_vocab import SLOT_NAMES, write_small_vocab


def test_real_vocabulary_has_the_ids_of_the_spec(real_vocab: Vocab) -> None:
    assert (real_vocab.n_ranks, real_vocab.size) == (163_584, 163_840)
    assert (real_vocab.end_of_msg, real_vocab.open, real_vocab.close, real_vocab.sep) == (
        163_586,
        163_587,
        163_588,
        163_589,
    )
    media = (real_vocab.media_begin, real_vocab.media_content, real_vocab.media_end, real_vocab.media_pad)
    assert media == (163_602, 163_603, 163_604, 163_605)
    assert real_vocab.special_name(163_592) == "<|reserved_token_163592|>"
    assert real_vocab.stop_ids == {163_585, 163_586}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("think", [39964]),
        ("response", [12092]),
        (" role", [6244]),
        ('="', [878]),
        ("<|close|>", [27, 91, 10794, 91, 29]),
        ("<|kimi_image_placeholder|>", [27, 91, 74, 30223, 11947, 114136, 91, 29]),
        ("image 640x480", [4017, 220, 24057, 87, 19665]),
    ],
)
def test_real_vocabulary_encodes_as_in_the_spec(real_vocab: Vocab, text: str, ids: list[int]) -> None:
    assert real_vocab.encode(text) == ids


def test_special_slots_are_named_by_the_table_or_by_their_id(small_vocab: Vocab) -> None:
    assert len(small_vocab.special_ids) == 256
    for name, token_id in small_vocab.special_ids.items():
        slot = token_id - small_vocab.n_ranks
        assert name == SLOT_NAMES.get(slot, f"<|reserved_token_{token_id}|>")
        assert small_vocab.special_name(token_id) == name
        assert small_vocab.token_bytes(token_id) == name.encode()


def test_token_bytes_join_to_the_text(small_vocab: Vocab) -> None:
    text = "the thinking user 城市 😀\n"
    ids = small_vocab.encode(text)
    assert b"".join(map(small_vocab.token_bytes, ids)).decode() == text
    assert small_vocab.special_name(ids[0]) is None
    with pytest.raises(KeyError):
        small_vocab.token_bytes(small_vocab.size)
    with pytest.raises(KeyError):
        small_vocab.token_bytes(-1)


def test_spellings_of_special_tokens_are_ordinary_bytes(small_vocab: Vocab) -> None:
    for name in small_vocab.special_ids:
        ids = small_vocab.encode(name)
        assert max(ids) < small_vocab.n_ranks
        assert small_vocab.decode(ids) == name


def test_changing_the_returned_ids_leaves_the_vocabulary_alone(small_vocab: Vocab) -> None:
    small_vocab.encode("user").clear()
    assert small_vocab.decode(small_vocab.encode("user")) == "user"


# Long texts are cut before encoding (docs/format.md#segments); two blanks are one token here, so that a cut
# shows.


@pytest.mark.parametrize(("before", "first", "pair"), [("x", "\t", "  "), (" ", "x", "th")])
def test_a_run_is_cut_at_25000_characters(small_vocab: Vocab, before: str, first: str, pair: str) -> None:
    text = before + first + pair * 12_500  # the run is 25,001 long: the cut splits the last pair
    ids = small_vocab.encode(text)
    last_pair = [token for half in pair for token in small_vocab.encode(half)]
    assert ids[-2:] == last_pair
    assert ids[-3:-2] == small_vocab.encode(pair)


def test_runs_are_cut_wherever_they_begin(small_vocab: Vocab) -> None:
    """An odd run of letters: where it is cut shows in the ids, since `th` is one token."""
    for lead in (2, 12_499, 12_500, 12_501, 30_000):
        words = "a" * (lead % 2) + "a " * (lead // 2)
        ids = small_vocab.encode(words + "th" * 30_000)
        # 60,000 letters in pieces of 25,000: no pair is split, so each is one token
        assert ids[-30_000:] == small_vocab.encode("th") * 30_000
        ids = small_vocab.encode(words + "x" + "th" * 30_000)
        # shifted by one, both cuts fall inside a pair, which becomes two tokens
        assert len(ids) - len(small_vocab.encode(words)) == 1 + 29_998 + 2 * 2


def test_texts_are_cut_at_400000_characters(small_vocab: Vocab) -> None:
    text = "a " * 199_999 + " th"  # the cut falls between `t` and `h`
    assert len(text) == 400_001
    assert small_vocab.encode(text)[-2:] == small_vocab.encode("t") + small_vocab.encode("h")


def test_long_text_without_long_runs_is_not_changed_by_cutting(small_vocab: Vocab) -> None:
    text = "the user \n" * 30_000
    assert small_vocab.encode(text) == small_vocab.encode("the user \n" * 3) * 10_000


def test_vocabularies_that_differ_have_different_fingerprints(tmp_path: Path) -> None:
    first = Vocab.load(write_small_vocab(tmp_path))
    assert Vocab.load(tmp_path).fingerprint == first.fingerprint
    table = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del table["added_tokens_decoder"][str(first.special_ids["<osagent_mode>"])]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(table))
    assert Vocab.load(tmp_path).fingerprint != first.fingerprint


# Stop ids (docs/format.md#stop-ids)


def test_stop_ids_come_from_the_checkpoint(tmp_path: Path) -> None:
    vocab = Vocab.load(write_small_vocab(tmp_path))
    end, eos = vocab.special_ids["<|end_of_msg|>"], vocab.special_ids["[EOS]"]
    assert vocab.stop_ids == {end, eos}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": eos + 7}}))
    assert Vocab.load(tmp_path).stop_ids == {eos + 7, eos}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, eos + 8]}))
    assert Vocab.load(tmp_path).stop_ids == {end, eos + 8, eos}


# Files that are not K3's


@pytest.mark.parametrize("name", ["tiktoken.model", "tokenizer_config.json"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write_small_vocab(tmp_path) / name).unlink()
    with pytest.raises(VocabError, match=f"{name}: cannot be read"):
        Vocab.load(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines[1:], "entry 1 is not"),
        (lambda lines: [*lines[:5], "!!! 5", *lines[6:]], "entry 6 is not"),
        (lambda lines: [*lines[:5], lines[4].replace(" 4", " 5"), *lines[6:]], "entry 6 is not"),
        (lambda lines: [*lines, "<html>"], "is not `base64-token rank`"),
        (lambda lines: lines[:200], "56 of the 256 single bytes"),
        (lambda lines: [], "256 of the 256 single bytes"),
    ],
)
def test_damaged_rank_file_is_refused(tmp_path: Path, damage, message: str) -> None:
    path = write_small_vocab(tmp_path) / "tiktoken.model"
    path.write_text("\n".join(damage(path.read_text().splitlines())))
    with pytest.raises(VocabError, match=message):
        Vocab.load(tmp_path)


def damaged_table(folder: Path, change) -> None:
    path = write_small_vocab(folder) / "tokenizer_config.json"
    config = json.loads(path.read_text())
    change(config["added_tokens_decoder"])
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["<|open|>", "[EOS]", "<|media_pad|>", "<|end_of_msg|>"])
def test_table_without_a_marker_is_refused(tmp_path: Path, name: str) -> None:
    def change(table) -> None:
        del table[next(key for key, entry in table.items() if entry["content"] == name)]

    damaged_table(tmp_path, change)
    with pytest.raises(VocabError) as caught:
        Vocab.load(tmp_path)
    assert f"no `{name}`" in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"5": {"content": "<|x|>"}}, "do not belong together"),
        ({"163587": {"content": "<|x|>"}}, "do not belong together"),
        ({"x": {"content": "<|x|>"}}, "not an id"),
        ({"280": {"content": ""}}, "not an id"),
        ({"280": "text"}, "not an id"),
        ({"300": {"content": "<|open|>"}}, "the same name"),
    ],
)
def test_odd_table_is_refused(tmp_path: Path, entries: dict, message: str) -> None:
    damaged_table(tmp_path, lambda table: table.update(entries))
    with pytest.raises(VocabError, match=message):
        Vocab.load(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"added_tokens_decoder": {}}', "\xff"])
def test_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    (write_small_vocab(tmp_path) / "tokenizer_config.json").write_text(text, encoding="latin-1")
    with pytest.raises(VocabError, match=r"tokenizer_config\.json"):
        Vocab.load(tmp_path)


@pytest.mark.parametrize("value", ["x", -1, 10**6, True, [1, None]])
def test_odd_eos_id_is_refused(tmp_path: Path, value: object) -> None:
    folder = write_small_vocab(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(VocabError, match=r"generation_config\.json: eos_token_id"):
        Vocab.load(folder)
