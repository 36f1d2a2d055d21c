# ruff: noqa: E501  (templates read best on one line)
"""Questions about still pictures: colour, shape, count, position, background, transparency, description."""

from __future__ import annotations

from typing import Any

from engine.mini.skills.base import DrawnPicture, Source, Task, listing
from engine.mini.skills.drawing import (
    BACKGROUNDS,
    COLORS,
    PLACES,
    SHAPES,
    TRANSPARENT,
    Shape,
    draw,
    grain,
    look,
    shade,
)

_PLAN = "I look at the picture."


def _size(source: Source) -> tuple[int, int]:
    """Sides from 56 to 224 pixels, smaller ones more often."""

    def side() -> int:
        return round(56 * 4 ** (source.random.random() ** 1.6))

    width, height = source.own(lambda: f"{side()}x{side()}").split("x")
    return int(width), int(height)


def _background(source: Source) -> str:
    draw_ = source.random.random()
    if draw_ < 0.45:
        return "white"
    if draw_ < 0.6:
        return TRANSPARENT
    return source.pick(COLORS)


def _scene(
    source: Source, n: int, alike: bool = False, large: bool = False
) -> tuple[DrawnPicture, list[tuple[Shape, str]], str]:
    """A picture with `n` shapes in different cells of 3 x 3; the shapes with their places; the background."""
    width, height = _size(source)
    background = _background(source)
    cells = [4] if large else source.random.sample(range(9), n)
    color, shape = look(source, background)
    shapes: list[tuple[Shape, str]] = []
    for cell in sorted(cells):
        if not alike:
            color, shape = look(source, background)
            while shape in [s.shape for s, _ in shapes] and n <= 3:
                color, shape = look(source, background)
        column, row = cell % 3, cell // 3
        cell_side = min(width, height) / 3
        radius = source.random.uniform(0.34, 0.48) * cell_side * (1.15 if n == 1 else 1.0)
        slack = 0.06 if n > 1 else 0.1
        if large:
            radius, slack = source.random.uniform(0.22, 0.46) * min(width, height), 0.02
        x = (column + 0.5 + source.random.uniform(-slack, slack)) * width / 3
        y = (row + 0.5 + source.random.uniform(-slack, slack)) * height / 3
        shapes.append((Shape(shape, color, shade(source, color), x, y, radius), PLACES[cell]))
    ground = None if background == TRANSPARENT else shade(source, background)
    pixels = grain(source, draw(width, height, ground, [s for s, _ in shapes]))
    labels = {"count": n, "background": BACKGROUNDS.index(background)}
    if n == 1 or alike:
        labels |= {"color": COLORS.index(shapes[0][0].color), "shape": SHAPES.index(shapes[0][0].shape)}
    if n == 1:
        labels["place"] = PLACES.index(shapes[0][1])
    return DrawnPicture(pixels, labels), shapes, background


def picture(source: Source) -> Task:
    makers = (
        _color,
        _color,
        _shape,
        _shape,
        _count,
        _count,
        _place,
        _place,
        _ground,
        _describe,
        _which,
        _pair,
    )
    return source.pick(makers)(source)


def _task(
    source: Source,
    attribute: str,
    question: str,
    media: list[DrawnPicture],
    facts: str,
    check: str,
    content: str,
) -> Task:
    text: dict[str, Any] = {"type": "text", "text": question}
    parts = [{"type": "image_url", "image_url": {"url": f"medium:{i}"}} for i in range(len(media))]
    parts = [*parts, text] if source.chance(0.6) else [text, *parts]
    body = {"messages": [{"role": "user", "content": parts}]}
    return Task("picture", body, _PLAN, facts, check, content, media=tuple(media), attribute=attribute)


def _article(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def _color(source: Source) -> Task:
    if source.chance(0.25):
        return _solid(source)
    drawn, shapes, _ = _scene(source, 1, large=source.chance(0.5))
    item = shapes[0][0]
    question = source.pick(("What color is the shape?", f"What color is the {item.shape}?", "Which color is it?", "Name the color of the shape."))  # fmt: skip
    return _task(source, "color", question, [drawn], f"The shape is {item.color}.", f"I am sure that it is {item.color}.", f"It is {item.color}.")  # fmt: skip


def _solid(source: Source) -> Task:
    """Nothing but one colour."""
    width, height = _size(source)
    color = source.pick(COLORS)
    pixels = grain(source, draw(width, height, shade(source, color), []))
    labels = {"count": 0, "background": BACKGROUNDS.index(color), "color": COLORS.index(color)}
    question = source.pick(("What color is the picture?", "What color is this?", "Which color is it?", "What color do you see?"))  # fmt: skip
    return _task(source, "color", question, [DrawnPicture(pixels, labels)], f"The picture is {color}.", f"I am sure that it is {color}.", f"It is {color}.")  # fmt: skip


def _shape(source: Source) -> Task:
    drawn, shapes, _ = _scene(source, 1, large=source.chance(0.5))
    shape = _article(shapes[0][0].shape)
    question = source.pick(("What shape is it?", "Which shape is in the picture?", "What shape do you see?", "Name the shape."))  # fmt: skip
    return _task(source, "shape", question, [drawn], f"The shape is {shape}.", f"I am sure that it is {shape}.", f"It is {shape}.")  # fmt: skip


def _there(n: int, what: str) -> str:
    return f"There {'is' if n == 1 else 'are'} {n} {what}{'' if n == 1 else 's'}."


def _count(source: Source) -> Task:
    n = source.random.randint(1, 6)
    alike = source.chance(0.5)
    drawn, shapes, _ = _scene(source, n, alike)
    what = shapes[0][0].shape if alike and source.chance(0.5) else "shape"
    plural = {"cross": "crosses"}.get(what, f"{what}s")
    question = source.pick(
        (f"How many {plural} are there?", f"Count the {plural}.", f"How many {plural} do you see?")
    )
    content = f"There is 1 {what}." if n == 1 else f"There are {n} {plural}."
    numbers = ", ".join(str(i) for i in range(1, n + 1))
    return _task(source, "count", question, [drawn], f"I count {numbers}.", f"So the number is {n}.", content)


def _place(source: Source) -> Task:
    drawn, shapes, _ = _scene(source, 1)
    item, place = shapes[0]
    where = _where(place)
    question = source.pick((f"Where is the {item.shape}?", "Where is the shape?", "In which part of the picture is the shape?"))  # fmt: skip
    return _task(source, "place", question, [drawn], f"The shape is {where}.", f"I am sure that it is {where}.", f"It is {where}.")  # fmt: skip


def _where(place: str) -> str:
    return "in the center" if place == "center" else f"at the {place}"


def _ground(source: Source) -> Task:
    drawn, _, background = _scene(source, source.random.randint(1, 3))
    question = source.pick(("What color is the background?", "Which background does the picture have?", "Is the background transparent, or which color is it?"))  # fmt: skip
    return _task(source, "background", question, [drawn], f"The background is {background}.", f"I am sure that it is {background}.", f"The background is {background}.")  # fmt: skip


def _describe(source: Source) -> Task:
    n = source.pick((1, 1, 2))
    drawn, shapes, background = _scene(source, n, large=n == 1 and source.chance(0.5))
    seen = listing([f"{_article(s.color)} {s.shape} {_where(place)}" for s, place in shapes])
    content = f"{seen[0].upper()}{seen[1:]} on {_article(background)} background."
    question = source.pick(("Describe the picture.", "What do you see?", "What is in the picture?", "Describe this image."))  # fmt: skip
    return _task(source, "describe", question, [drawn], f"The background is {background}. {_there(n, 'shape')}", "I name the color, the shape and the position.", content)  # fmt: skip


def _which(source: Source) -> Task:
    """Two shapes: the colour of one, or the shape of a colour."""
    while True:
        drawn, shapes, _ = _scene(source, 2)
        if shapes[0][0].color != shapes[1][0].color:
            break
    item = source.pick(shapes)[0]
    if source.chance(0.5):
        return _task(source, "which", f"What color is the {item.shape}?", [drawn], f"The {item.shape} is {item.color}.", f"I am sure that it is {item.color}.", f"It is {item.color}.")  # fmt: skip
    shape = _article(item.shape)
    return _task(source, "which", f"Which shape is {item.color}?", [drawn], f"The {item.color} shape is {shape}.", f"I am sure that it is {shape}.", f"It is {shape}.")  # fmt: skip


def _pair(source: Source) -> Task:
    """Two pictures in one prompt."""
    scenes = [_scene(source, 1, large=source.chance(0.6)) for _ in range(2)]
    colors = [shapes[0][0].color for _, shapes, _ in scenes]
    question = source.pick(("What colors are the shapes in the two pictures?", "Name the color in the first and in the second picture."))  # fmt: skip
    facts = f"The first is {colors[0]}. The second is {colors[1]}."
    return _task(source, "two pictures", question, [d for d, _, _ in scenes], facts, "I name them in their order.", f"First {colors[0]}, second {colors[1]}.")  # fmt: skip
