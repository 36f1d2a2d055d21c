"""What is measured: CPU a token, CPU a request, the front end's share of the first token, growth."""

from __future__ import annotations

import base64
import io
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.serve.core import CONTENT, FirstToken
from bench.serve.load import Format, Messages, Refused, Reply, ask, body
from bench.serve.servers import Server, Workplace

N_ONE_TOKEN = 256
# Streams at once -> tokens of each.
TOKENS = {1: 256, 8: 256, 32: 192, 64: 128, 256: 48}
SATURATED = 0.95
PICTURE_SIZE = (1024, 768)


@dataclass(slots=True)
class Table:
    """Figures by row, server and column, one value a round."""

    title: str
    columns: Sequence[str]
    rows: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    def add(self, row: str, server: str, **values: float) -> None:
        cell = self.rows.setdefault(row, {}).setdefault(server, {})
        for column, value in values.items():
            cell.setdefault(column, []).append(value)

    def median(self, row: str, server: str, column: str) -> float | None:
        values = self.rows.get(row, {}).get(server, {}).get(column)
        return statistics.median(values) if values else None


@dataclass(slots=True)
class Bench:
    """Running servers, and which of them answers which format."""

    servers: Sequence[Server]
    place: Workplace
    remarks: list[str] = field(default_factory=list)

    async def settle(self, formats: Sequence[Format]) -> dict[str, list[Server]]:
        """Warm every server up in every format; one that refuses a format is left out there and named."""
        self.place.pace(False)
        able: dict[str, list[Server]] = {}
        for form in formats:
            able[form.name] = []
            for server in self.servers:
                try:
                    for n in (1, 8, 32):
                        await ask(
                            server.port, form, [body(form, question(f"warm {i}"), 24) for i in range(n)]
                        )
                except Refused as refused:
                    self.remarks.append(f"{server.name} does not answer {form.path}: {refused}")
                else:
                    able[form.name].append(server)
        return able

    async def streams(
        self, table: Table, form: Format, servers: Sequence[Server], counts: Sequence[int], n_rounds: int
    ) -> None:
        """So many streams at once: CPU of the front end a token, frames a token, tokens a second."""
        for number in range(n_rounds):
            for n in counts:
                bodies = [body(form, question(f"{i} {number} {n}"), TOKENS[n]) for i in range(n)]
                for server in servers:
                    before, engine = server.cpu(), server.engine_cpu()
                    replies = await ask(server.port, form, bodies)
                    n_tokens = sum(reply.n_tokens for reply in replies)
                    seconds = max(reply.end for reply in replies) - min(reply.asked for reply in replies)
                    table.add(
                        f"{form.name}, {n} streams",
                        server.name,
                        us_per_token=(server.cpu() - before) / n_tokens * 1e6,
                        engine_us=(server.engine_cpu() - engine) / n_tokens * 1e6,
                        frames_per_token=sum(reply.n_frames for reply in replies) / n_tokens,
                        tokens_per_s=n_tokens / seconds,
                    )

    async def one_token(self, table: Table, form: Format, servers: Sequence[Server], n_rounds: int) -> None:
        """Many requests of one token at once: CPU of the front end a request."""
        for number in range(n_rounds):
            bodies = [body(form, question(f"{i} of {number}"), 1) for i in range(N_ONE_TOKEN)]
            for server in servers:
                before = server.cpu()
                replies = await ask(server.port, form, bodies)
                seconds = max(reply.end for reply in replies) - min(reply.asked for reply in replies)
                table.add(
                    f"{form.name}, one token, {len(bodies)} at once",
                    server.name,
                    ms_per_request=(server.cpu() - before) / len(bodies) * 1e3,
                    requests_per_s=len(bodies) / seconds,
                )

    async def first_token(
        self,
        table: Table,
        row: str,
        form: Format,
        servers: Sequence[Server],
        histories: Iterable[Messages],
    ) -> None:
        """One request after the other: the front end's share of the time to the first token, and its CPU.

        The share is what passes before the core schedules the request and after it has given the token. The
        first of `histories` prepares: its time is not counted.
        """
        self.place.pace(False)
        for number, messages in enumerate(histories):
            request = body(form, messages, 2)
            for server in servers:
                before = server.cpu()
                (reply,) = await ask(server.port, form, [request])
                core = FirstToken.read_all(self.place.first_tokens)[-1]
                if number:
                    table.add(
                        row,
                        server.name,
                        share_ms=share(reply, core) * 1e3,
                        ms_per_request=(server.cpu() - before) * 1e3,
                        prompt=core.n_prompt,
                        cached=core.n_computed / core.n_prompt,
                    )


def share(reply: Reply, core: FirstToken) -> float:
    """Seconds of the first token's time that the core did not have the request in its last step."""
    return (core.scheduled - reply.asked) + (reply.first - core.given)


def question(name: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"Tell me of rivers and lakes, number {name}."}]


def histories(n_tokens: int, n: int, name: str, pictures: Sequence[str] = ()) -> Iterable[Messages]:
    """`n` conversations that share about `n_tokens` tokens of history and end with another question each.

    Pictures (data URLs) are spread over the user's turns.
    """
    draw = random.Random(name)
    words = CONTENT.split()
    n_turns = max(1, n_tokens // 400, len(pictures))
    per_turn = n_tokens // n_turns // 2
    messages: list[Mapping[str, Any]] = []
    for turn in range(n_turns):
        text = " ".join(draw.choices(words, k=max(1, int(per_turn * WORDS_PER_TOKEN))))
        said: Any = f"{turn}: {text}"
        if turn < len(pictures):
            said = [
                {"type": "text", "text": said},
                {"type": "image_url", "image_url": {"url": pictures[turn]}},
            ]
        messages.append({"role": "user", "content": said})
        messages.append({"role": "assistant", "content": " ".join(draw.choices(words, k=len(text.split())))})
    for number in range(n):
        yield [*messages, {"role": "user", "content": f"What now, number {number}?"}]


# Of the mini checkpoint's vocabulary on CONTENT; only has to be about right, the table shows real counts.
WORDS_PER_TOKEN = 0.55


def picture(seed: int) -> str:
    """A data URL of a PNG with shapes, like a screenshot: 1024 x 768."""
    from PIL import Image, ImageDraw

    draw = random.Random(seed)
    image = Image.new("RGB", PICTURE_SIZE, "white")
    pen = ImageDraw.Draw(image)
    for _ in range(60):
        x, y = draw.randrange(900), draw.randrange(700)
        pen.rectangle(
            (x, y, x + draw.randrange(20, 200), y + draw.randrange(10, 90)),
            fill=f"#{draw.randrange(2**24):06x}",
        )
    data = io.BytesIO()
    image.save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
