# ruff: noqa: E501  (templates read best on one line)
"""Questions about video: which way something moves, the order of colours, when something changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.mini.skills.base import DrawnClip, Source, Task
from engine.mini.skills.drawing import COLORS, SHAPES, Shape, draw, grain, look, shade
from engine.mini.words import WORDS

DIRECTIONS = WORDS["direction"]
_RATES = (8, 10, 12, 15, 16, 20, 24, 25, 30)
_PLAN = "I watch the video."
_STEPS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


def _size(source: Source) -> tuple[int, int]:
    def side() -> int:
        return round(56 * 2 ** (source.random.random() ** 1.3))

    width, height = source.own(lambda: f"{side()}x{side()}").split("x")
    return int(width), int(height)


def clip(source: Source) -> Task:
    makers = (_moving, _moving, _order, _moment, _moment, _start_or_end)
    return source.pick(makers)(source)


def _task(
    source: Source, attribute: str, question: str, drawn: DrawnClip, facts: str, check: str, content: str
) -> Task:
    parts: list[dict[str, Any]] = [
        {"type": "video_url", "video_url": {"url": "medium:0"}},
        {"type": "text", "text": question},
    ]
    if source.chance(0.4):
        parts.reverse()
    body = {"messages": [{"role": "user", "content": parts}]}
    return Task("video", body, _PLAN, facts, check, content, media=(drawn,), attribute=attribute)


def _moving(source: Source) -> Task:
    width, height = _size(source)
    background = source.pick(("white", "black", "gray", "white"))
    color, shape = look(source, background)
    direction = source.pick(DIRECTIONS)
    dx, dy = _STEPS[direction]
    fps = source.pick(_RATES)
    n_frames = max(round(source.random.uniform(0.9, 3.0) * fps), 4)
    radius = source.random.uniform(0.16, 0.26) * min(width, height)
    travel = source.random.uniform(0.5, 0.9)
    side = source.random.uniform(0.35, 0.65)
    ground, rgb = shade(source, background), shade(source, color)
    noise = source.random.random()

    def frame(i: int) -> NDArray[np.uint8]:
        along = 0.5 + (i / (n_frames - 1) - 0.5) * travel * (dx + dy)
        x, y = (along, side) if dx else (side, along)
        room_x, room_y = width - 2 * radius, height - 2 * radius
        item = Shape(shape, color, rgb, radius + x * room_x, radius + y * room_y, radius)
        return grain(Source(f"{noise} {i}"), draw(width, height, ground, [item]))

    labels = {
        "color": COLORS.index(color),
        "shape": SHAPES.index(shape),
        "direction": DIRECTIONS.index(direction),
    }

    def chunk_labels(frames: Sequence[int]) -> dict[str, int]:
        return labels if len(frames) > 1 else {"color": labels["color"], "shape": labels["shape"]}

    drawn = DrawnClip(n_frames, fps, frame, chunk_labels)
    way = f"to the {direction}" if dx else direction
    if source.chance(0.25):
        question = source.pick(
            ("What moves, and where to?", "Describe the video.", "What happens in the video?")
        )
        content = f"A{'n' if color[0] in 'aeiou' else ''} {color} {shape} moves {way}."
        return _task(
            source, "describe", question, drawn, f"The {shape} is {color}.", f"It moves {way}.", content
        )
    question = source.pick((f"Which way does the {shape} move?", "In which direction does the shape move?", "Where does the shape go?", "Which way does it move?"))  # fmt: skip
    return _task(source, "direction", question, drawn, f"The shape moves {way}.", f"From start to end it goes {way}.", f"It moves {way}.")  # fmt: skip


def _changing(source: Source, changes: Sequence[float], seconds: float) -> tuple[DrawnClip, list[str]]:
    """A shape (or the whole frame) that takes a new colour at each of the times; its colours."""
    width, height = _size(source)
    whole = source.chance(0.3)
    background = source.pick(("white", "black"))
    shape = look(source, background)[1]
    colors = source.random.sample([c for c in COLORS if c != background], len(changes) + 1)
    tones = [shade(source, c) for c in colors]
    ground = shade(source, background)
    fps, noise = source.pick(_RATES), source.random.random()
    n_frames = round(seconds * fps)
    radius = source.random.uniform(0.28, 0.42) * min(width, height)
    x, y = width * source.random.uniform(0.42, 0.58), height * source.random.uniform(0.42, 0.58)

    def phase(i: int) -> int:
        return sum(i >= round(at * fps) for at in changes)

    def frame(i: int) -> NDArray[np.uint8]:
        tone = tones[phase(i)]
        if whole:
            return grain(Source(f"{noise} {i}"), draw(width, height, tone, []))
        item = Shape(shape, colors[phase(i)], tone, x, y, radius)
        return grain(Source(f"{noise} {i}"), draw(width, height, ground, [item]))

    def labels(frames: Sequence[int]) -> dict[str, int]:
        phases = {phase(i) for i in frames}
        return {"color": COLORS.index(colors[phases.pop()])} if len(phases) == 1 else {}

    return DrawnClip(n_frames, fps, frame, labels), colors


def _order(source: Source) -> Task:
    n = source.pick((1, 2))
    drawn, colors = _changing(source, [float(i + 1) for i in range(n)], n + 1.0)
    named = f"First {', then '.join(colors)}."
    question = source.pick(("In which order do the colors appear?", "Which colors do you see, in order?", "Name the colors in their order."))  # fmt: skip
    return _task(source, "order", question, drawn, f"There are {len(colors)} colors.", "I name them as they come.", named)  # fmt: skip


def _moment(source: Source) -> Task:
    length = source.random.randint(2, 4)
    at = source.random.randint(1, length - 1)
    drawn, colors = _changing(source, [float(at)], float(length))
    question = source.pick(("At which second does the color change?", "When does the color change?", "At what time does the color change?"))  # fmt: skip
    return _task(source, "moment", question, drawn, f"It changes from {colors[0]} to {colors[1]}.", f"The first {colors[1]} frame is at second {at}.", f"The color changes at second {at}.")  # fmt: skip


def _start_or_end(source: Source) -> Task:
    drawn, colors = _changing(source, [1.0], 2.0)
    end = source.chance(0.5)
    word, color = ("end", colors[1]) if end else ("start", colors[0])
    question = source.pick((f"What color is it at the {word}?", f"Which color do you see at the {word}?"))
    return _task(source, "start or end", question, drawn, f"At the {word} it is {color}.", f"I am sure that it is {color}.", f"It is {color}.")  # fmt: skip
