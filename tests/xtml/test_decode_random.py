"""Whatever the ids are: nothing raises, nothing leaks, and the cut into steps does not matter."""

import re
from collections import Counter
from pathlib import Path

import pytest

from gateway.xtml import Decoder, Vocab
from gateway.xtml.decode.json_repair import read_json
from tests.xtml.completions import Decoded
from tests.xtml.random_ids import RandomIds

DOCS = Path(__file__).parents[2] / "docs/concepts/decoding.md"


@pytest.mark.parametrize("seed", range(4))
def test_any_split_gives_the_same(small_vocab: Vocab, seed: int) -> None:
    source = RandomIds(small_vocab, seed)
    for _ in range(1500):
        ids, options = source.one(), source.options()
        reason = source.random.choice(["stop", "length"])
        whole = Decoded(small_vocab, ids, reason, **options)
        size = source.random.choice([1, 1, 2, 3, 5, 11])
        assert Decoded(small_vocab, ids, reason, size, **options).outcome == whole.outcome, (ids, options)


def test_closed_calls_are_valid_and_counts_add_up(small_vocab: Vocab) -> None:
    source = RandomIds(small_vocab, 10)
    n_calls = 0
    for _ in range(6000):
        ids = source.one()
        got = Decoded(small_vocab, ids, **source.options())
        for call in got.reply.tool_calls:
            literal = read_json(call.arguments)
            assert call.valid_arguments == (literal == (call.arguments, "object"))
            assert call.declared == (call.name in ("f", "g"))
            n_calls += call.declared and call.valid_arguments
        decoder = got.decoder
        assert sum((decoder.n_reasoning, decoder.n_content, decoder.n_tool, decoder.n_other)) == len(ids)
        if got.finish_reason != "length":
            assert (got.finish_reason == "tool_calls") == bool(got.calls)
    assert n_calls > 300


def test_no_marker_shows(small_vocab: Vocab) -> None:
    """Special ids never come out as text, wherever they stand (texts here spell none)."""
    source = RandomIds(small_vocab, 20, spelled_markers=False)
    specials = re.compile("|".join(re.escape(name) for name in small_vocab.special_ids))
    for _ in range(6000):
        reply = Decoded(small_vocab, source.one(), **source.options()).reply
        shown = [reply.reasoning, reply.content, *(part.text for part in reply.unparsed)]
        shown += [call.arguments for call in reply.tool_calls]
        assert not specials.search("".join(shown))


def test_every_kind_of_repair_occurs_and_is_documented(small_vocab: Vocab) -> None:
    source = RandomIds(small_vocab, 30)
    repairs: Counter[str] = Counter()
    for _ in range(8000):
        decoder = Decoder(small_vocab, **source.options())  # type: ignore[arg-type]
        decoder.feed(source.one())
        decoder.finish("length")
        repairs += decoder.repairs
    section = DOCS.read_text().partition("## Repairs")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert set(repairs) == documented


@pytest.mark.slow
def test_200_000_random_sequences_never_raise(small_vocab: Vocab) -> None:
    source = RandomIds(small_vocab, 40)
    for _ in range(200_000):
        decoder = Decoder(small_vocab, **source.options())  # type: ignore[arg-type]
        decoder.feed(source.one())
        decoder.finish("stop")
