"""`python -m bench.media`: what preparing pictures costs, beside what it cannot cost less than.

Each table is measured in one run, the contenders taking turns, and shows the best of its rounds.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from bench.stock_front_end import StockFrontEnd
from engine.mini.build import checkpoint_dir
from gateway.xtml import MediaPrompt, MediaSpan, RenderCache, Vocab, encode, from_request
from media.navit import target_size
from media.picture import prepare_picture
from media.store import MediaLibrary
from tests.media import reference_picture


def best_of(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of `rounds` runs of each; they take turns, so all see the same machine."""
    best = dict.fromkeys(contenders, float("inf"))
    for round_number in range(rounds + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if round_number:  # the first is for warming up
                best[name] = min(best[name], time.perf_counter() - started)
    return best


@cache
def screenshot(width: int, height: int, seed: int) -> Image.Image:
    """Windows of text, as an agent sees a desktop."""
    rng = random.Random(seed)
    image = Image.new("RGB", (width, height), (30, 60, 90))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        left, top = rng.randrange(width // 2), rng.randrange(height // 2)
        right, bottom = left + width // 2, top + height // 2
        draw.rectangle((left, top, right, bottom), fill=(250, 250, 250), outline=(80, 80, 80))
        for line in range(top + 30, bottom - 14, 16):
            text = "".join(rng.choice("abcdefghij klmnop qrstuvw xyz(){}=.,") for _ in range(width // 16))
            draw.text((left + 8, line), text, fill=(20, 20, rng.randrange(200)))
    return image


@cache
def photo(width: int, height: int, seed: int) -> Image.Image:
    """Smooth areas, edges and sensor noise."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (height // 60, width // 60, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noise = rng.normal(0, 6, (height, width, 1)).astype(np.int16)
    image = Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))
    return image.filter(ImageFilter.GaussianBlur(0.6))


def encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=90)
    return buffer.getvalue()


def floor(data: bytes) -> None:
    """The least that any implementation on Pillow does: decode, RGB, the same resize, one plain copy."""
    image = Image.open(io.BytesIO(data))
    rgb = image.convert("RGB")
    size = target_size(*image.size, patch_limit=reference_picture.PATCH_LIMIT, side_limit=512)
    if rgb.size != (size.width, size.height):
        rgb = rgb.resize((size.width, size.height), Image.Resampling.BICUBIC)
    pixels = np.asarray(rgb)
    patches = np.empty((size.n_patches, 3, 14, 14), np.uint8)
    patches.reshape(-1)[: pixels.size] = pixels.reshape(-1)


def pictures() -> None:
    """Ours, the plain reference and the floor, single-threaded."""
    cases = {
        "1920x1080 PNG": encoded(screenshot(1920, 1080, 1), "PNG"),
        "1920x1080 JPEG": encoded(photo(1920, 1080, 2), "JPEG"),
        "3840x2160 PNG": encoded(screenshot(3840, 2160, 3), "PNG"),
        "6000x4000 JPEG": encoded(photo(6000, 4000, 4), "JPEG"),
    }
    print("One picture, milliseconds (best of the rounds; ours should be at most 1.25 x floor)")
    print(f"{'':16}{'size':>10}{'ours':>10}{'reference':>12}{'floor':>10}{'ours/floor':>12}")
    for name, data in cases.items():
        best = best_of(
            {
                "ours": lambda data=data: prepare_picture(data),
                "reference": lambda data=data: reference_picture.patches(data),
                "floor": lambda data=data: floor(data),
            },
            rounds=15 if "1920" in name else 7,
        )
        print(
            f"{name:16}{len(data) / 1e6:8.2f}MB"
            f"{best['ours'] * 1e3:10.1f}{best['reference'] * 1e3:12.1f}{best['floor'] * 1e3:10.1f}"
            f"{best['ours'] / best['floor']:12.2f}"
        )


N_SCREENSHOTS = 50


def conversation(urls: list[str]) -> list[dict[str, Any]]:
    """An agent's session: a task, then for each step a call and a screenshot as its result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the cheapest flight and book it."}]
    for step, url in enumerate(urls):
        call = {"name": "click", "arguments": json.dumps({"x": step * 7 % 1920, "y": step * 11 % 1080})}
        calls = [{"id": f"click:{step}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": "Next step.", "tool_calls": calls})
        parts = [{"type": "text", "text": "Done."}, {"type": "image_url", "image_url": {"url": url}}]
        messages.append({"role": "tool", "tool_call_id": f"click:{step}", "content": parts})
    return messages


def session(rounds: int = 5) -> None:
    """Turn N of a session with N_SCREENSHOTS pictures, all but the last seen before."""
    seen = [data_url(seed) for seed in range(N_SCREENSHOTS - 1)]
    turns = [conversation([*seen, data_url(1000 + n)]) for n in range(rounds)]
    stock = StockFrontEnd()
    vocab, sections = Vocab.load(checkpoint_dir()), RenderCache()
    with asyncio.Runner() as runner:

        async def start() -> MediaLibrary:
            return MediaLibrary()

        async def ours(messages: list[dict[str, Any]]) -> int:
            parsed = from_request({"messages": messages})
            pictures = await asyncio.gather(*(library.picture(part.url) for part in parsed.media))
            media = [
                MediaPrompt((MediaSpan("", f"image {p.width}x{p.height}", p.item.n_tokens),), p.item.identity)
                for p in pictures
            ]
            return len(encode(parsed, vocab, media, sections).ids)

        library = runner.run(start())
        earlier = conversation(seen)
        runner.run(ours(earlier))
        stock.process(earlier)
        times: dict[str, list[float]] = {"ours": [], "vLLM": []}
        for messages in turns:
            for name, turn in (("ours", lambda m: runner.run(ours(m))), ("vLLM", stock.process)):
                started = time.perf_counter()
                n_tokens = turn(messages)
                times[name].append(time.perf_counter() - started)
        runner.run(library.aclose())
    stock.close()
    best = {name: min(seconds) * 1e3 for name, seconds in times.items()}
    print()
    print(
        f"Front end at turn {N_SCREENSHOTS} of a session of 1920x1080 screenshots, {N_SCREENSHOTS - 1} "
        f"of them seen, {n_tokens:,} prompt tokens (ours should be at least 10 x faster)"
    )
    print(f"{'':16}{'best ms':>10}{'median ms':>12}")
    for name, seconds in times.items():
        print(f"{name:16}{best[name]:10.1f}{statistics.median(seconds) * 1e3:12.1f}")
    print(f"{'vLLM/ours':16}{best['vLLM'] / best['ours']:10.1f}")
    print("ours: messages -> token ids and patches; vLLM: messages -> patches, chat template left out")


def data_url(seed: int) -> str:
    return "data:image/png;base64," + base64.b64encode(encoded(screenshot(1920, 1080, seed), "PNG")).decode()


def clips() -> None:
    """Clips against their floor."""
    from bench import media_video  # it takes its tools from here

    media_video.clips()


# The sections of the report, by name: `python -m bench.media session` runs one.
SECTIONS: dict[str, Callable[[], None]] = {"pictures": pictures, "session": session, "clips": clips}


def main(names: Sequence[str]) -> None:
    for name in names or SECTIONS:
        SECTIONS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
