"""How long prefix hits are on vLLM with the mini K3, at, before and after every boundary.

With the profile's settings the unit is a block of 128 tokens; with `prefix_match_unit` it is finer, and
outputs must be the same as without a cache (docs/decisions.md#c02).
"""

from __future__ import annotations

import itertools

import pytest

from engine.client import Engine
from engine.types import EnginePrompt, PlacedMedia, Sampling
from gateway.xtml import Vocab
from tests.engine.prompts import random_ids, random_item, run, tokens
from tests.prefix.conftest import FINE_UNIT as UNIT

BLOCK = 128
_numbers = itertools.count()


async def ask(engine: Engine, prompt: EnginePrompt, n: int = 1) -> tuple[int, list[int]]:
    """Cached tokens, and `n` tokens of the likeliest completion."""
    sampling = Sampling(max_tokens=n, temperature=0.0, ignore_eos=True)
    steps = await run(engine, prompt, sampling, f"hits-{next(_numbers)}")
    return steps[0].n_cached or 0, tokens(steps)


def text(n: int, vocab: Vocab, salt: str | None = None) -> EnginePrompt:
    return EnginePrompt(random_ids(n, next(_numbers), vocab), cache_salt=salt)


def longer(prompt: EnginePrompt, n: int, vocab: Vocab) -> EnginePrompt:
    return EnginePrompt([*prompt.ids, *random_ids(n, next(_numbers), vocab)], prompt.media, prompt.cache_salt)


def cut(prompt: EnginePrompt, n: int) -> EnginePrompt:
    return EnginePrompt(prompt.ids[:n], tuple(m for m in prompt.media if m.offset < n), prompt.cache_salt)


def around(unit: int, n: int) -> list[int]:
    """Lengths before, at and after the first `n` boundaries."""
    return [k * unit + d for k in range(1, n + 1) for d in (-1, 0, 1)]


@pytest.mark.parametrize("length", around(BLOCK, 5))
async def test_a_prompt_is_reused_up_to_its_last_block(engine: Engine, vocab: Vocab, length: int) -> None:
    """Also one that ends exactly on a boundary (docs/decisions.md#c01)."""
    first = text(length, vocab)
    await ask(engine, first)
    n_cached, _ = await ask(engine, longer(first, 50, vocab))
    assert n_cached == length // BLOCK * BLOCK


@pytest.mark.parametrize("length", around(BLOCK, 3))
async def test_the_same_prompt_again_computes_at_least_its_last_token(
    engine: Engine, vocab: Vocab, length: int
) -> None:
    prompt = text(length, vocab)
    await ask(engine, prompt)
    n_cached, _ = await ask(engine, prompt)
    assert n_cached == (length - 1) // BLOCK * BLOCK


@pytest.mark.parametrize(
    ("length", "n_said"),
    [(100, 28), (100, 29), (100, 40), (129, 40), (215, 41), (215, 42), (300, 60), (100, 170)],
)
async def test_what_the_model_said_is_reused_too(
    engine: Engine, vocab: Vocab, length: int, n_said: int
) -> None:
    """With no boundary in the answer, one, and two. The last token of an answer was never computed, so one
    that ends on a boundary does not fill the block."""
    prompt = text(length, vocab)
    _, said = await ask(engine, prompt, n_said)
    n_cached, _ = await ask(engine, longer(EnginePrompt([*prompt.ids, *said]), 20, vocab))
    assert n_cached == (length + n_said - 1) // BLOCK * BLOCK


@pytest.mark.parametrize("shared", [100, 128, 200, 256, 300, 500])
async def test_a_shared_beginning_is_reused_by_the_third_prompt(
    engine: Engine, vocab: Vocab, shared: int
) -> None:
    """A hit needs a state at the boundary. The first prompt leaves one where its steps end, each 256 tokens;
    the second shows where they part and leaves one there (docs/concepts/prefixes.md#how-k3-hits)."""
    beginning = text(shared, vocab)
    hits = [(await ask(engine, longer(beginning, 700 - shared, vocab)))[0] for _ in range(3)]
    assert hits == [0, shared // 256 * 256, shared // BLOCK * BLOCK]


@pytest.mark.parametrize("gap", [100, 120, 127, 128, 129, 250])
async def test_a_picture_is_reused_with_its_text(engine: Engine, vocab: Vocab, gap: int) -> None:
    item = random_item((1, 8, 8), next(_numbers))  # 16 tokens
    prompt = text(gap, vocab)
    with_picture = EnginePrompt(
        [*prompt.ids, vocab.media_begin, *[vocab.media_pad] * item.n_tokens, vocab.media_end],
        (PlacedMedia(gap + 1, item),),
    )
    first = longer(with_picture, 60, vocab)
    await ask(engine, first)
    n_cached, _ = await ask(engine, longer(first, 70, vocab))
    assert n_cached == len(first.ids) // BLOCK * BLOCK

    other = random_item((1, 8, 8), next(_numbers))
    changed = EnginePrompt(longer(first, 70, vocab).ids, (PlacedMedia(gap + 1, other),))
    n_cached, _ = await ask(engine, changed)
    assert n_cached <= (gap + 1) // BLOCK * BLOCK  # never beyond a picture that is another one (C03)


async def test_a_salt_shares_nothing(engine: Engine, vocab: Vocab) -> None:
    prompt = text(300, vocab, "tenant a")
    await ask(engine, prompt)
    assert (await ask(engine, EnginePrompt(prompt.ids, (), "tenant b")))[0] == 0
    assert (await ask(engine, EnginePrompt(prompt.ids, (), "tenant a")))[0] == 256


@pytest.mark.parametrize("length", around(UNIT, 9))
async def test_fine_hits_land_on_the_unit_and_give_the_same_tokens(
    fine_engine: Engine, vocab: Vocab, length: int
) -> None:
    """The state at the last unit's boundary before a prompt's end is kept; where the prompt ends on one, the
    boundary before counts, unless it is a block's."""
    first = text(length, vocab)
    await ask(fine_engine, first)
    second = longer(first, 40, vocab)
    n_cached, said = await ask(fine_engine, second, 8)
    assert n_cached == (length if length % BLOCK == 0 else (length - 1) // UNIT * UNIT)
    n_cached, without_cache = await ask(fine_engine, EnginePrompt(second.ids, (), f"salt-{length}"), 8)
    assert n_cached == 0 and said == without_cache


@pytest.mark.parametrize("gap", [30, 45, 60, 75, 100, 120, 140])
async def test_fine_hits_with_pictures_give_the_same_tokens(
    fine_engine: Engine, vocab: Vocab, gap: int
) -> None:
    item = random_item((1, 8, 8), next(_numbers))
    ids = random_ids(gap, next(_numbers), vocab)
    ids += [vocab.media_begin, *[vocab.media_pad] * item.n_tokens, vocab.media_end]
    first = longer(EnginePrompt(ids, (PlacedMedia(gap + 1, item),)), 7, vocab)
    await ask(fine_engine, first)
    second = longer(first, 40, vocab)
    n_cached, said = await ask(fine_engine, second, 8)
    assert n_cached == (len(first.ids) - 1) // UNIT * UNIT
    n_cached, without_cache = await ask(fine_engine, EnginePrompt(second.ids, second.media, f"s-{gap}"), 8)
    assert n_cached == 0 and said == without_cache
