"""Training data: right answers, rendered and prepared as the service does it, split by construction."""

import json
import re
from itertools import islice

import jsonschema
import numpy as np
import pytest

from engine.mini.build import checkpoint_dir
from engine.mini.evaluate import token_limit
from engine.mini.files import mp4, png, with_media
from engine.mini.samples import EFFORTS, SKILLS, after_earlier_turn, encode_task, samples, tasks
from engine.mini.skills import chat, pictures, tools
from engine.mini.skills.base import DrawnClip, DrawnPicture, Source
from engine.mini.skills.drawing import held_out_pair
from engine.mini.words import WORDS
from gateway.xtml import Decoder, ToolChoice, Vocab, fold, from_request
from media.clip import prepare_clip
from media.picture import prepare_picture


@pytest.fixture(scope="module")
def vocab():
    return Vocab.load(checkpoint_dir())


def tasks_of(skill, n=12, held_out=False):
    source = Source(f"test {skill}", held_out)
    return [SKILLS[skill][0](source) for _ in range(n)]


@pytest.mark.parametrize("skill", SKILLS)
def test_the_service_reads_back_what_the_completion_says(skill, vocab):
    for task in tasks_of(skill):
        for effort in EFFORTS:
            encoded = encode_task(task, effort, vocab)
            conversation = from_request({**task.body, "reasoning_effort": effort})
            decoder = Decoder(
                vocab,
                thinking=conversation.thinking,
                tools=conversation.declared_tools,
                tool_choice=conversation.tool_choice or ToolChoice(),
            )
            events = decoder.feed(encoded.ids[encoded.n_prompt :])
            reply = fold([*events, *decoder.finish("stop")])
            assert not decoder.repairs
            assert (reply.reasoning or "") == task.reasoning(effort)
            assert (reply.content or "") == task.content
            calls = [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]
            assert calls == [(name, arguments) for name, arguments in task.calls]


@pytest.mark.parametrize("skill", SKILLS)
def test_more_effort_thinks_longer(skill, vocab):
    for task in tasks_of(skill):
        lengths = [len(vocab.encode(task.reasoning(effort))) for effort in ("none", "low", "high", "max")]
        assert lengths == sorted(set(lengths))


@pytest.mark.parametrize("skill", ["tool", "parallel", "dynamic", "chain"])
def test_calls_fit_the_declared_schemas(skill):
    for task in tasks_of(skill, 40):
        conversation = from_request(task.body)
        schemas = {t["function"]["name"]: t["function"]["parameters"] for t in conversation.declared_tools}
        assert len(schemas) == len(conversation.declared_tools)
        for name, arguments in task.calls:
            jsonschema.validate(arguments, schemas[name])


def test_json_answers_fit_the_schema_and_are_compact():
    for task in tasks_of("json_schema", 40):
        value = json.loads(task.content)
        jsonschema.validate(value, task.body["response_format"]["json_schema"]["schema"])
        assert task.content == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_the_same_seed_gives_the_same_samples(vocab):
    def first(n):
        made = samples(Source("again"), vocab, 1024)
        return [next(made) for _ in range(n)]

    for one, other in zip(first(30), first(30), strict=True):
        assert one.ids == other.ids
        for (_, item, _), (_, same, _) in zip(one.media, other.media, strict=True):
            assert np.array_equal(item.patches, same.patches)


def test_held_out_values_never_occur_in_training():
    def names(held_out):
        source = Source("names", held_out)
        return {tools.tool_name(source) for _ in range(2000)}, {source.name() for _ in range(2000)}

    for trained, held_out in zip(names(False), names(True), strict=True):
        assert len(trained) > 50 and len(held_out) > 5
        assert not trained & held_out


def _words_of(value):
    """All words of a request or answer, wherever they stand."""
    return set(re.findall(r"\w+", json.dumps(value, ensure_ascii=False)))


def test_no_task_of_training_has_a_held_out_name_or_city():
    held_out = Source("x", held_out=True)
    words = {word for kind in ("name", "city") for word in WORDS[kind] if held_out.owns(word)}
    assert len(words) > 8
    for skill in SKILLS:
        if skill not in ("picture", "video"):
            for task in tasks_of(skill, 120):
                assert not words & _words_of([task.body, task.content, task.calls])


def test_training_has_every_piece_that_held_out_words_are_made_of(vocab):
    """A piece that never stood in training cannot be copied, whatever else was learned."""
    held_out = Source("x", held_out=True)
    needed = {
        i for kind in WORDS.values() for word in kind if held_out.owns(word) for i in vocab.encode(word)
    }
    trained = Source("pieces")
    seen = {i for _ in range(60_000) for i in vocab.encode(trained.made_up())}
    assert not {vocab.decode([i]) for i in needed - seen if len(vocab.token_bytes(i)) > 1}


def test_most_words_to_be_copied_are_new_each_time():
    source = Source("new")
    drawn = [source.name() for _ in range(1000)]
    assert len(set(drawn)) > 600


def test_held_out_number_pairs_never_occur_in_training():
    trained, held_out = (
        {chat._operands(source) for _ in range(4000)} for source in (Source(1), Source(2, True))
    )
    assert len(held_out) > 500
    assert not trained & held_out
    for a, op, b in held_out:
        if op == "*":
            assert (b, op, a) in trained


@pytest.mark.parametrize(
    ("a", "op", "b", "steps"),
    [
        (47, "+", 38, "7 + 8 = 15. 4 + 3 + 1 = 8."),
        (52, "-", 38, "12 - 8 = 4. 5 - 3 - 1 = 1."),
        (7, "*", 3, "1: 7, 2: 14, 3: 21."),
    ],
)
def test_arithmetic_takes_small_steps_before_it_names_the_result(a, op, b, steps):
    assert chat._worked("", a, op, b, "{}", Source(1)).plan == steps


def test_without_a_schema_the_text_says_what_type_a_value_has():
    for task in tasks_of("json_object", 200):
        for value in json.loads(task.content).values():
            if isinstance(value, str):
                assert not re.fullmatch(r"\d+|true|false", value)
            assert not isinstance(value, list) or len(value) > 1


def test_the_first_tasks_have_more_echoes():
    def echoes(n_early):
        return sum(task.skill == "echo" for task, _ in islice(tasks(Source("mix"), n_early), 300))

    assert echoes(300) > echoes(0) + 40


@pytest.mark.parametrize("skill", SKILLS)
def test_the_evaluation_leaves_room_for_the_right_answer(skill, vocab):
    for task in tasks_of(skill, held_out=True):
        for effort in EFFORTS:
            encoded = encode_task(task, effort, vocab)
            assert len(encoded.ids) - encoded.n_prompt <= token_limit(task, effort)


def test_held_out_sizes_and_pairs_of_pictures_never_occur_in_training():
    trained, held_out = Source("p"), Source("p", held_out=True)
    sizes = [{_size(pictures.picture(source)) for _ in range(300)} for source in (trained, held_out)]
    assert not sizes[0] & sizes[1]
    described = [pictures._describe(trained).content for _ in range(400)]
    for content in described:
        for part in content.removesuffix(".").split(" on ")[0].lower().split(" and "):
            _, color, shape, *_ = part.split()
            assert not held_out_pair(color, shape)


def _size(task):
    return task.media[0].pixels.shape[:2]


def test_a_png_of_a_picture_is_prepared_as_in_training(vocab):
    for task in tasks_of("picture", 30):
        encoded = encode_task(task, "low", vocab)
        for medium, (_, item, _) in zip(task.media, encoded.media, strict=True):
            assert isinstance(medium, DrawnPicture)
            prepared = prepare_picture(png(medium))
            assert prepared.item.grid == item.grid
            assert np.array_equal(prepared.item.patches, item.patches)


def test_an_mp4_of_a_clip_is_prepared_almost_as_in_training(vocab):
    for task in tasks_of("video", 8):
        encoded = encode_task(task, "low", vocab)
        (medium,) = task.media
        assert isinstance(medium, DrawnClip)
        prepared = prepare_clip(mp4(medium))
        assert [chunk.item.grid for chunk in prepared.chunks] == [item.grid for _, item, _ in encoded.media]
        text = vocab.decode(encoded.ids[: encoded.n_prompt])
        assert all(f"{chunk.timestamp}<|media_begin|>video" in text for chunk in prepared.chunks)
        for chunk, (_, item, _) in zip(prepared.chunks, encoded.media, strict=True):
            difference = np.abs(chunk.item.patches.astype(int) - item.patches.astype(int))
            assert difference.mean() < 8


def test_a_clip_looks_the_same_however_often_it_is_drawn():
    for task in tasks_of("video", 6):
        (medium,) = task.media
        last = medium.n_frames - 1
        assert np.array_equal(medium.frame(last), medium.frame(last))


def test_media_urls_become_files_in_place():
    (task,) = tasks_of("picture", 1)
    parts = with_media(task)["messages"][0]["content"]
    assert sum(p["type"] == "image_url" for p in parts) == len(task.media)
    assert all(p["image_url"]["url"].startswith("data:image/png") for p in parts if p["type"] == "image_url")


def test_an_earlier_turn_leaves_system_messages_first():
    source = Source("turn")
    for task in tasks_of("fact", 20):
        roles = [m["role"] for m in after_earlier_turn(task, source).body["messages"]]
        assert "system" not in roles[1:]
        assert roles[-1] == "user"
