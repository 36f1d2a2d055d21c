"""vLLM's K3 against the plain-PyTorch definition: same numbers, however the prompt is computed."""

from __future__ import annotations

import asyncio

import pytest
import torch

from engine.client import Engine
from engine.mini.reference import MiniK3
from engine.types import EnginePrompt, Sampling, Step
from tests.engine.prompts import prompt_with_media, random_ids, run, tokens

TOLERANCE = 1e-3  # nats
N_NEW = 12
GREEDY = Sampling(max_tokens=N_NEW, temperature=0.0, logprobs=5, ignore_eos=True)

BLOCK = 128
STEP = 256  # tokens per engine step in the cpu-mini profile


@pytest.fixture(scope="session")
def reference(model_folder) -> MiniK3:
    torch.set_num_threads(1)  # many small operations: a second thread only waits, and the engine runs beside
    return MiniK3.load(model_folder)


def agree(reference: MiniK3, prompt: EnginePrompt, steps: list[Step]) -> None:
    """The engine chose the likeliest token each time, and its logprobs are the reference's."""
    new = tokens(steps)
    assert len(new) == N_NEW
    media = [(placed.offset, placed.item.patches, placed.item.grid) for placed in prompt.media]
    logits = reference.logits([*prompt.ids, *new[:-1]], media)[len(prompt.ids) - 1 :]
    expected = logits.log_softmax(-1)
    logprobs = [position for step in steps for position in step.logprobs]
    for row, (token, got) in enumerate(zip(new, logprobs, strict=True)):
        assert expected[row].max() - expected[row, token] < TOLERANCE
        assert got.token_id == token
        ids, values = zip((token, got.logprob), *got.top, strict=True)
        torch.testing.assert_close(
            torch.tensor(values), expected[row, list(ids)], rtol=0, atol=TOLERANCE, msg=f"token {row}"
        )


async def compare(engine: Engine, reference: MiniK3, prompt: EnginePrompt, name: str) -> list[Step]:
    steps = await run(engine, prompt, GREEDY, name)
    agree(reference, prompt, steps)
    return steps


async def test_a_short_text(engine, reference, vocab):
    await compare(engine, reference, EnginePrompt(ids=random_ids(40, 1, vocab)), "short")


async def test_a_prompt_of_four_chunks_then_again_from_the_prefix_cache(engine, reference, vocab):
    prompt = EnginePrompt(ids=random_ids(3 * STEP + 60, 2, vocab))
    cold = await compare(engine, reference, prompt, "chunks")
    assert cold[0].n_cached == 0
    warm = await compare(engine, reference, prompt, "chunks-again")
    assert warm[0].n_cached == (len(prompt.ids) - 1) // BLOCK * BLOCK
    assert tokens(cold) == tokens(warm)


async def test_a_prompt_shorter_than_a_step_hits_at_its_last_whole_block(engine, reference, vocab):
    prompt = EnginePrompt(ids=random_ids(BLOCK + 70, 12, vocab))
    cold = await compare(engine, reference, prompt, "one-step")
    warm = await compare(engine, reference, prompt, "one-step-again")
    assert (cold[0].n_cached, warm[0].n_cached) == (0, BLOCK)


async def test_a_prompt_that_shares_its_first_half(engine, reference, vocab):
    shared = random_ids(3 * BLOCK + 10, 3, vocab)
    await compare(engine, reference, EnginePrompt(ids=[*shared, *random_ids(400, 31, vocab)]), "first")
    steps = await compare(
        engine, reference, EnginePrompt(ids=[*shared, *random_ids(300, 32, vocab)]), "second"
    )
    # KDA states are saved where an engine step ends, so the hit is at the last such place.
    assert steps[0].n_cached == STEP


async def test_a_second_turn_after_generated_tokens(engine, reference, vocab):
    first = random_ids(3 * BLOCK, 4, vocab)
    answer = tokens(await run(engine, EnginePrompt(ids=first), GREEDY, "turn-1"))
    prompt = EnginePrompt(ids=[*first, *answer, *random_ids(50, 41, vocab)])
    steps = await compare(engine, reference, prompt, "turn-2")
    assert steps[0].n_cached >= STEP


async def test_concurrent_requests_of_different_lengths(engine, reference, vocab):
    prompts = [EnginePrompt(ids=random_ids(n, 50 + n, vocab)) for n in (1, 5, 17, 130, 257, 400, 700)]
    results = await asyncio.gather(
        *(run(engine, prompt, GREEDY, f"together-{i}") for i, prompt in enumerate(prompts))
    )
    for prompt, steps in zip(prompts, results, strict=True):
        agree(reference, prompt, steps)


@pytest.mark.parametrize("grid", [(1, 2, 2), (1, 16, 16), (1, 6, 10), (1, 30, 22)], ids=str)
async def test_a_picture(engine, reference, vocab, grid):
    await compare(engine, reference, prompt_with_media([grid], 6, vocab), f"picture-{grid}")


@pytest.mark.parametrize("n_frames", [2, 3, 4])
async def test_a_chunk_of_video_frames(engine, reference, vocab, n_frames):
    await compare(engine, reference, prompt_with_media([(n_frames, 8, 12)], 7, vocab), f"frames-{n_frames}")


async def test_pictures_and_video_chunks_in_one_prompt_then_again(engine, reference, vocab):
    # The first picture's 360 placeholders and the later items lie across several engine steps.
    grids = [(1, 40, 36), (4, 10, 8), (1, 4, 6), (2, 10, 8), (1, 16, 20)]
    prompt = prompt_with_media(grids, 8, vocab)
    cold = await compare(engine, reference, prompt, "mixed")
    warm = await compare(engine, reference, prompt, "mixed-again")
    assert cold[0].n_cached == 0
    assert warm[0].n_cached == (len(prompt.ids) - 1) // BLOCK * BLOCK


async def test_another_picture_at_the_same_place_is_not_a_prefix_hit(engine, reference, vocab):
    one, other = (prompt_with_media([(1, 20, 20)], seed, vocab, gap=100) for seed in (9, 10))
    same_text = EnginePrompt(ids=one.ids, media=other.media)
    await compare(engine, reference, one, "one")
    steps = await compare(engine, reference, same_text, "other")
    assert steps[0].n_cached == 0


async def test_tenants_do_not_share_prefixes(engine, reference, vocab):
    ids = random_ids(300, 11, vocab)
    await compare(engine, reference, EnginePrompt(ids=ids, cache_salt="a"), "tenant-a")
    other = await compare(engine, reference, EnginePrompt(ids=ids, cache_salt="b"), "tenant-b")
    again = await compare(engine, reference, EnginePrompt(ids=ids, cache_salt="a"), "tenant-a-again")
    assert (other[0].n_cached, again[0].n_cached) == (0, 2 * BLOCK)
