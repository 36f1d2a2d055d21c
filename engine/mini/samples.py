"""Tasks become training samples: rendered by `gateway.xtml`, pictures and clips prepared by `media`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from engine.mini.batch import Encoded
from engine.mini.skills import chat, clips, memory, pictures, structured, tools
from engine.mini.skills.base import DrawnClip, DrawnPicture, Source, Task
from gateway.xtml import (
    MediaPrompt,
    MediaSpan,
    Message,
    ToolCall,
    Vocab,
    encode,
    encode_assistant,
    from_request,
)
from media.board import lay_on_board
from media.config import K3_MEDIA_CONFIG
from media.navit import target_size, to_patches
from media.sampling import chunk_ranges, sample_constant_rate, timestamp
from media.types import MediaItem

SKILLS: dict[str, tuple[Callable[[Source], Task], float]] = {
    "echo": (chat.echo, 0.05),
    "greeting": (chat.greeting, 0.02),
    "arithmetic": (chat.arithmetic, 0.13),
    "fact": (memory.system_fact, 0.06),
    "remember": (memory.remember, 0.01),
    "recall": (memory.recall, 0.04),
    "tool": (tools.single_call, 0.11),
    "parallel": (tools.parallel_calls, 0.12),
    "result": (tools.result_answer, 0.04),
    "chain": (tools.chain, 0.03),
    "dynamic": (tools.dynamic_tool, 0.04),
    "no_call": (tools.no_call, 0.03),
    "json_schema": (structured.json_schema, 0.06),
    "json_object": (structured.json_object, 0.05),
    "picture": (pictures.picture, 0.14),
    "video": (clips.clip, 0.07),
}
"""How tasks of each skill are made, and their share of the mix."""

EARLY_ECHO = 0.3
"""Share of echoes among the first tasks: copying is what most other skills are made of."""

EFFORTS = ("low", "high", "max", "none")
_EFFORT_SHARES = (0.3, 0.22, 0.4, 0.08)
_ARITHMETIC_EFFORT_SHARES = (0.25, 0.2, 0.3, 0.25)
"""Without steps a result must be known at once, which takes many more examples than working it out."""
_EARLIER_TURN = 0.12
"""Share of plain-text tasks that stand after an earlier, unrelated turn."""


def with_effort(task: Task, effort: str) -> dict[str, Any]:
    """The request at an effort; `max` is the default and left out."""
    return dict(task.body) if effort == "max" else {**task.body, "reasoning_effort": effort}


def encode_task(task: Task, effort: str, vocab: Vocab) -> Encoded:
    """Prompt and completion ids, with the media where their placeholders stand."""
    conversation = from_request(with_effort(task, effort))
    prepared = [_prepare(medium) for medium in task.media]
    order = [int(part.url.removeprefix("medium:")) for part in conversation.media]
    prompt = encode(conversation, vocab, [prepared[i][0] for i in order])
    answer = Message(
        "assistant",
        parts=(task.content,) if task.content else (),
        reasoning=task.reasoning(effort),
        tool_calls=tuple(ToolCall(None, name, arguments) for name, arguments in task.calls),
    )
    completion = encode_assistant(answer, vocab, thinking=conversation.thinking)
    media = [(slot.offset, *prepared[order[slot.part]][1][slot.span]) for slot in prompt.media]
    return Encoded(task.skill, prompt.ids + completion, len(prompt.ids), media, 2.0 if media else 1.0)


def _prepare(medium: DrawnPicture | DrawnClip) -> tuple[MediaPrompt, list[tuple[MediaItem, dict[str, int]]]]:
    config = K3_MEDIA_CONFIG
    if isinstance(medium, DrawnPicture):
        pixels = medium.pixels
        height, width = pixels.shape[:2]
        rgb = lay_on_board(pixels, config.board) if pixels.shape[2] == 4 else pixels
        size = target_size(width, height, patch_limit=config.patch_limit, side_limit=config.side_limit)
        item = MediaItem(to_patches(rgb, size), (1, size.grid_h, size.grid_w), "")
        span = MediaSpan("", f"image {width}x{height}", item.n_tokens)
        return MediaPrompt((span,), ""), [(item, medium.labels)]
    sampling = sample_constant_rate(medium.n_frames, medium.fps, config.sample_fps)
    spans, items = [], []
    for run in chunk_ranges(len(sampling), config.frames_per_chunk):
        shown = [sampling.positions[i] for i in run]
        frames = [medium.frame(i) for i in shown]
        height, width = frames[0].shape[:2]
        size = target_size(width, height, patch_limit=config.frame_patch_limit, side_limit=config.side_limit)
        patches = np.concatenate([to_patches(frame, size) for frame in frames])
        item = MediaItem(patches, (len(frames), size.grid_h, size.grid_w), "")
        spans.append(MediaSpan(timestamp(sampling.times[run.start]), "video", item.n_tokens))
        items.append((item, medium.labels(shown)))
    return MediaPrompt(tuple(spans), ""), items


def tasks(source: Source, n_early: int = 0) -> Iterator[tuple[Task, str]]:
    """Endless tasks of the mix with an effort each; the first `n_early` have more echoes."""
    makers, shares = zip(*SKILLS.values(), strict=True)
    for number in count():
        make = source.random.choices(makers, shares)[0]
        if number < n_early and source.chance(EARLY_ECHO):
            make = chat.echo
        task = make(source)
        shares_now = _ARITHMETIC_EFFORT_SHARES if task.skill == "arithmetic" else _EFFORT_SHARES
        effort = source.random.choices(EFFORTS, shares_now)[0]
        if not task.media and "tools" not in task.body and source.chance(_EARLIER_TURN):
            task = after_earlier_turn(task, source)
        yield task, effort


def after_earlier_turn(task: Task, source: Source) -> Task:
    """The task behind a question and answer of another skill."""
    first = source.pick((chat.echo, chat.greeting, chat.arithmetic))(source)
    effort = source.pick(("low", "high", "max"))
    turn = [
        *first.body["messages"],
        {"role": "assistant", "reasoning_content": first.reasoning(effort), "content": first.content},
    ]
    given = task.body["messages"]
    n_system = next((i for i, m in enumerate(given) if m["role"] != "system" or "tools" in m), 0)
    messages = [*given[:n_system], *turn, *given[n_system:]]
    return Task(**{**_fields(task), "body": {**task.body, "messages": messages}})


def _fields(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in task.__dataclass_fields__}


def samples(source: Source, vocab: Vocab, longest: int, n_early: int = 0) -> Iterator[Encoded]:
    """Endless samples of at most `longest` tokens; longer ones are dropped."""
    for task, effort in tasks(source, n_early):
        sample = encode_task(task, effort, vocab)
        if len(sample.ids) <= longest:
            yield sample
