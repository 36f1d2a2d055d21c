"""The engine client over a real vLLM: sampling, aborting, grammars, pictures by identity, refusals.

All of it on both ways to the steps: vLLM's ordinary one, and the lean one where it takes the request.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.client import Engine
from engine.types import EnginePrompt, EngineRejected, PlacedMedia, Sampling
from tests.engine.prompts import prompt_with_media, pushed, random_ids, run, tokens


@pytest.fixture(params=["ordinary", "lean"], autouse=True)
async def way(request, engine, monkeypatch) -> str:
    await engine.reset_media_cache()  # of what the same test sent the other way
    await engine.reset_prefix_cache()
    ordinary = engine.generate

    def generate(prompt, sampling, request_id):
        if engine.can_push(sampling):
            return pushed(engine, prompt, sampling, request_id)
        return ordinary(prompt, sampling, request_id)

    if request.param == "lean":
        assert engine.can_push(Sampling(max_tokens=1))
        assert not engine.can_push(Sampling(max_tokens=1, n=2))
        assert not engine.can_push(Sampling(max_tokens=1, logprobs=0))
        monkeypatch.setattr(engine, "generate", generate)
    return request.param


@pytest.fixture
def short(vocab) -> EnginePrompt:
    return EnginePrompt(ids=random_ids(20, 100, vocab))


async def idle(engine: Engine) -> bool:
    """Nothing waits or runs: vLLM resets the prefix cache only when no request holds a block."""
    return engine.n_unfinished == 0 and await engine.reset_prefix_cache()


async def test_info_says_what_the_front_end_must_know(engine, model_folder):
    assert engine.info.model == str(model_folder)
    assert engine.info.profile == "cpu-mini"
    assert engine.info.max_model_len == 32768
    assert engine.info.prefix_unit == 128
    await engine.check_health()
    assert not engine.is_dead


async def test_the_patches_report_from_the_worker(engine):
    (report,) = await engine.patch_reports()
    states = {patch["switch"]: patch["state"] for patch in report["patches"]}
    assert states.pop("KIMI_K3_PREFIX_BLOCK_COPY") == "applied"
    assert set(states.values()) <= {"not applicable", "already fixed", "off"}


async def test_steps_are_deltas_that_end_with_a_reason(engine, short):
    steps = await run(engine, short, Sampling(max_tokens=6, ignore_eos=True), "length")
    assert len(tokens(steps)) == 6
    assert [step.finish_reason for step in steps] == [None] * (len(steps) - 1) + ["length"]
    assert all(step.n_cached is not None and step.logprobs is None for step in steps)


async def test_logprobs_are_given_best_first(engine, short):
    steps = await run(engine, short, Sampling(max_tokens=3, temperature=2.0, seed=1, logprobs=4), "logprobs")
    for position in (position for step in steps for position in step.logprobs):
        values = [value for _, value in position.top]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert position.logprob <= values[0]
    only_sampled = await run(engine, short, Sampling(max_tokens=1, logprobs=0), "logprobs-0")
    assert only_sampled[0].logprobs[0].top == ()


async def test_logit_bias_and_stop_tokens(engine, short, vocab):
    forced = 1234
    sampling = Sampling(max_tokens=5, temperature=0, logit_bias={forced: 100.0})
    assert tokens(await run(engine, short, sampling, "bias")) == [forced] * 5
    sampling = Sampling(max_tokens=5, temperature=0, logit_bias={forced: 100.0}, stop_token_ids=(forced,))
    (step,) = await run(engine, short, sampling, "stop")
    assert (step.finish_reason, step.stop_token_id, step.token_ids) == ("stop", forced, (forced,))
    sampling = Sampling(max_tokens=5, temperature=0, logit_bias={vocab.end_of_msg: 100.0})
    (step,) = await run(engine, short, sampling, "eos")
    assert (step.finish_reason, step.stop_token_id) == ("stop", vocab.end_of_msg)


async def test_several_completions_of_one_prompt(engine, short):
    steps = await run(
        engine, short, Sampling(max_tokens=8, n=3, seed=3, temperature=2.0, ignore_eos=True), "several"
    )
    answers = [tokens(steps, index) for index in range(3)]
    assert [len(answer) for answer in answers] == [8, 8, 8]
    assert len({tuple(answer) for answer in answers}) == 3
    assert sorted(step.index for step in steps if step.finish_reason == "length") == [0, 1, 2]


async def test_a_seed_gives_the_same_tokens_however_the_prompt_was_chunked(engine, vocab):
    prompt = EnginePrompt(ids=random_ids(800, 101, vocab))
    sampling = Sampling(max_tokens=12, temperature=1.0, seed=42, ignore_eos=True)
    in_four_chunks = tokens(await run(engine, prompt, sampling, "seed-1"))
    from_cache = await run(engine, prompt, sampling, "seed-2")
    assert from_cache[0].n_cached > 0
    assert tokens(from_cache) == in_four_chunks
    other = Sampling(max_tokens=12, temperature=1.0, seed=43, ignore_eos=True)
    assert tokens(await run(engine, prompt, other, "seed-3")) != in_four_chunks


async def test_closing_the_generator_frees_the_request(engine, short):
    steps = engine.generate(short, Sampling(max_tokens=5000, ignore_eos=True), "closed")
    await anext(steps)
    await steps.aclose()
    assert await idle(engine)
    assert len(tokens(await run(engine, short, Sampling(max_tokens=2, ignore_eos=True), "after"))) == 2


async def test_cancelling_the_reader_frees_the_request_in_prefill(engine, vocab):
    prompt = EnginePrompt(ids=random_ids(6000, 102, vocab))
    reader = asyncio.create_task(run(engine, prompt, Sampling(max_tokens=5000, n=2), "cancelled"))
    while engine.n_unfinished == 0:
        await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await idle(engine)


async def test_abort_by_id_ends_the_steps(engine, short):
    reasons = []
    async for step in engine.generate(short, Sampling(max_tokens=5000, ignore_eos=True), "by-id"):
        reasons.append(step.finish_reason)
        if len(reasons) == 1:
            await engine.abort("by-id")
    assert reasons[-1] == "abort"
    await engine.abort("never-seen")
    assert await idle(engine)


def sequence(*elements: dict) -> str:
    return json.dumps({"type": "structural_tag", "format": {"type": "sequence", "elements": elements}})


async def test_a_grammar_of_markers_and_json(engine, short, vocab):
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "big": {"type": "boolean"}},
        "required": ["colour", "big"],
        "additionalProperties": False,
    }
    tag = sequence(
        {"type": "token", "token": vocab.open},
        {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 2},
        {"type": "token", "token": vocab.close},
    )
    steps = await run(engine, short, Sampling(max_tokens=200, structural_tag=tag, seed=5), "grammar")
    first, *inner, last, end = tokens(steps)
    assert (first, last, end) == (vocab.open, vocab.close, vocab.end_of_msg)
    value = json.loads(b"".join(map(vocab.token_bytes, inner)))
    assert value["colour"] in ("red", "green")
    assert isinstance(value["big"], bool)
    assert steps[-1].finish_reason == "stop"


async def test_no_marker_gets_into_a_json_string_even_if_the_model_wants_it(engine, short, vocab):
    schema = {"type": "string", "minLength": 6, "maxLength": 12}
    tag = sequence({"type": "json_schema", "json_schema": schema}, {"type": "token", "token": vocab.close})
    wish = {vocab.close: 100.0, vocab.open: 100.0, vocab.end_of_msg: 90.0}
    sampling = Sampling(max_tokens=200, structural_tag=tag, logit_bias=wish, seed=6)
    *inner, last, end = tokens(await run(engine, short, sampling, "inert"))
    assert (last, end) == (vocab.close, vocab.end_of_msg)
    assert not any(vocab.special_name(token) for token in inner)


@pytest.mark.parametrize(
    "tag",
    [
        "{not json",
        '{"type": "structural_tag", "format": {"type": "no-such-format"}}',
        sequence({"type": "token", "token": 10**7}),
        sequence({"type": "json_schema", "json_schema": {"$ref": "#/not/there"}}),
    ],
)
async def test_a_grammar_that_cannot_be_compiled_fails_its_request_only(engine, short, tag):
    other = asyncio.create_task(run(engine, short, Sampling(max_tokens=30, ignore_eos=True), "bystander"))
    with pytest.raises(EngineRejected):
        await run(engine, short, Sampling(max_tokens=5, structural_tag=tag), "bad-grammar")
    assert len(tokens(await other)) == 30
    assert await idle(engine)


@pytest.mark.parametrize(
    ("ids", "sampling", "said"),
    [
        ([], Sampling(max_tokens=1), "empty"),
        ([1] * 32768, Sampling(max_tokens=1), "32768"),
        ([1, 10**6], Sampling(max_tokens=1), "vocabulary"),
        ([1], Sampling(max_tokens=0), "max_tokens"),
        ([1], Sampling(max_tokens=1, temperature=-1.0), "temperature"),
        ([1], Sampling(max_tokens=1, top_p=1.5), "top_p"),
        ([1], Sampling(max_tokens=1, logprobs=5000), "logprobs"),
        ([1], Sampling(max_tokens=1, logit_bias={10**6: 1.0}), "logit_bias"),
        ([1], Sampling(max_tokens=1, data_parallel_rank=7), "data_parallel_rank"),
    ],
)
async def test_what_the_engine_refuses_is_named(engine, ids, sampling, said):
    with pytest.raises(EngineRejected, match=said):
        await run(engine, EnginePrompt(ids=ids), sampling, "refused")
    assert engine.n_unfinished == 0


GREEDY = Sampling(max_tokens=4, temperature=0, ignore_eos=True)


def sent_items(engine: Engine, monkeypatch) -> list[list[bool]]:
    """For every request that goes out from now on: which of its items carry data."""
    sent: list[list[bool]] = []
    stock = engine._llm.add_request

    def spy(request_id, engine_input, *args, **kwargs):
        sent.append([item is not None for item in engine_input["mm_kwargs"]["image"]])
        return stock(request_id, engine_input, *args, **kwargs)

    monkeypatch.setattr(engine._llm, "add_request", spy)
    return sent


async def test_a_picture_that_the_engine_has_is_not_sent_again(engine, vocab, monkeypatch):
    sent = sent_items(engine, monkeypatch)
    prompt = prompt_with_media([(1, 8, 8), (1, 6, 4)], 110, vocab)
    first = await run(engine, prompt, GREEDY, "sent")
    again = await run(engine, prompt, GREEDY, "not-sent")
    assert sent == [[True, True], [False, False]]
    assert tokens(first) == tokens(again)


async def test_a_new_picture_that_comes_twice_is_sent_once(engine, vocab, monkeypatch):
    sent = sent_items(engine, monkeypatch)
    prompt = prompt_with_media([(1, 8, 8), (1, 8, 8)], 115, vocab)
    item = prompt.media[0].item
    twice = EnginePrompt(prompt.ids, tuple(PlacedMedia(placed.offset, item) for placed in prompt.media))
    assert len(tokens(await run(engine, twice, GREEDY, "twice"))) == 4
    assert sent == [[True, False]]


async def test_pictures_that_the_engine_lost_are_sent_again(engine, vocab, monkeypatch):
    prompt = prompt_with_media([(1, 8, 8), (1, 6, 4)], 111, vocab)
    first = await run(engine, prompt, GREEDY, "before-loss")
    await engine._llm.engine_core.reset_mm_cache_async()  # the engine's side only
    sent = sent_items(engine, monkeypatch)
    again = await run(engine, prompt, GREEDY, "after-loss")
    assert sent == [[False, False], [True, True]]
    assert tokens(first) == tokens(again)


async def test_concurrent_requests_with_one_new_picture(engine, vocab):
    prompt = prompt_with_media([(1, 10, 10)], 112, vocab)
    results = await asyncio.gather(*(run(engine, prompt, GREEDY, f"same-{i}") for i in range(4)))
    assert len({tuple(tokens(steps)) for steps in results}) == 1


async def test_a_refused_request_does_not_spoil_the_media_cache(engine, vocab):
    prompt = prompt_with_media([(1, 10, 12)], 113, vocab)
    with pytest.raises(EngineRejected):
        await run(engine, prompt, Sampling(max_tokens=1, logprobs=5000), "refused-picture")
    assert len(tokens(await run(engine, prompt, GREEDY, "accepted-picture"))) == 4


async def test_resetting_the_media_cache(engine, vocab):
    prompt = prompt_with_media([(1, 4, 4)], 114, vocab)
    first = await run(engine, prompt, GREEDY, "before-reset")
    await engine.reset_media_cache()
    assert tokens(await run(engine, prompt, GREEDY, "after-reset")) == tokens(first)
