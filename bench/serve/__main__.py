"""This service, vLLM's server in Python and vLLM's in Rust over one scripted core: `make bench-serve`.

The core is vLLM's own EngineCore with its scheduler, K3's cache groups and ZeroMQ; only the model is missing
(bench.serve.executor). One server is asked at a time, the servers in turn; figures are medians of the rounds.
Prints tables and writes all figures as JSON.

paced:    a step takes 5 ms up to 8 streams, 10 at 32, 20 at 64, 100 at 256: CPU a token and a request
unpaced:  steps take no time: tokens a second. Left out on fewer than 4 cores, which client, engine and front
          end would share
first:    the front end's share of the time to the first token, unpaced, by length of a cached history
growth:   the same from 1k to 1M tokens and 1 to 100 pictures, for this service
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.serve.load import FORMATS
from bench.serve.measure import Bench, Table, histories, picture
from bench.serve.report import exponent, print_table
from bench.serve.rust import rust_front_end
from bench.serve.servers import NAMES, Server, Workplace, running

PARTS = ("paced", "unpaced", "first", "growth")
N_FIRST = 12
CACHED_HISTORIES = (100, 14_000, 100_000)
N_SEEN_PICTURES = 30
GROWTH_TOKENS = (1_000, 10_000, 100_000, 1_000_000)
GROWTH_PICTURES = (1, 3, 10, 30, 100)
CORES_FOR_RATES = 4


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.serve", description=__doc__.partition("\n")[0])
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--servers", type=names, default=list(NAMES))
    parser.add_argument("--formats", type=names, default=list(FORMATS))
    parser.add_argument(
        "--streams", type=lambda t: [int(n) for n in t.split(",")], default=[1, 8, 32, 64, 256]
    )
    parser.add_argument("--parts", type=names, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=18400)
    parser.add_argument("--json", type=Path, default=Path("build/bench-serve.json"))
    return parser.parse_args(argv)


async def measure(bench: Bench, options: argparse.Namespace) -> list[Table]:
    formats = [FORMATS[name] for name in options.formats]
    able = await bench.settle(formats)
    tables = []
    if "paced" in options.parts:
        paced = Table("Paced: CPU of the front end", ("us_per_token", "frames_per_token"))
        requests = Table("Requests of one token: CPU of the front end", ("ms_per_request",))
        bench.place.pace(True)
        for form in formats:
            await bench.streams(paced, form, able[form.name], options.streams, options.rounds)
            await bench.one_token(requests, form, able[form.name], options.rounds)
        tables += [paced, requests]
    if "unpaced" in options.parts and (os.cpu_count() or 1) >= CORES_FOR_RATES:
        unpaced = Table("Unpaced: as fast as they go", ("tokens_per_s", "us_per_token", "frames_per_token"))
        bench.place.pace(False)
        for form in formats:
            await bench.streams(unpaced, form, able[form.name], options.streams, options.rounds)
        tables.append(unpaced)
    if "first" in options.parts and "chat" in able:
        tables.append(await first_tokens(bench, able["chat"]))
    if "growth" in options.parts and "chat" in able:
        tables += await growths(bench, able["chat"])
    return tables


async def first_tokens(bench: Bench, servers: Sequence[Server]) -> Table:
    table = Table("First token: the front end's share", ("share_ms", "ms_per_request", "prompt", "cached"))
    form = FORMATS["chat"]
    for n in CACHED_HISTORIES:
        row = f"{n:,} tokens, all but the question cached"
        await bench.first_token(table, row, form, servers, histories(n, N_FIRST, row))
    seen = [picture(n) for n in range(N_SEEN_PICTURES)]
    row = f"{N_SEEN_PICTURES} pictures seen before"
    # vLLM's server in Python cannot place K3's pictures without the checkpoint's own template code.
    servers = [server for server in servers if server.name != "vllm-py"]
    await bench.first_token(table, row, form, servers, histories(3_000, N_FIRST, row, seen))
    return table


async def growths(bench: Bench, servers: Sequence[Server]) -> list[Table]:
    form = FORMATS["chat"]
    servers = [server for server in servers if server.name != "vllm-py"]
    by_tokens = Table(
        "Growth with the history, all but the question cached", ("share_ms", "ms_per_request", "prompt")
    )
    for n in GROWTH_TOKENS:
        row = f"{n:,} tokens"
        await bench.first_token(by_tokens, row, form, servers, histories(n, 5, row))
    by_pictures = Table("Growth with pictures seen before", ("share_ms", "ms_per_request", "prompt"))
    all_pictures = [picture(1000 + n) for n in range(max(GROWTH_PICTURES))]
    for n in GROWTH_PICTURES:
        row = f"{n} pictures"
        await bench.first_token(by_pictures, row, form, servers, histories(1000, 5, row, all_pictures[:n]))
    for table, sizes in ((by_tokens, GROWTH_TOKENS), (by_pictures, GROWTH_PICTURES)):
        for server in servers:
            for column in ("share_ms", "ms_per_request"):
                values = [table.median(row, server.name, column) for row in table.rows]
                points = [(x, y) for x, y in zip(sizes, values, strict=True) if y is not None]
                bench.remarks.append(
                    f"{table.title}, {server.name}, {column}: exponent {exponent(points):.2f}, over the last "
                    f"step {exponent(points[-2:]):.2f}"
                )
    return [by_tokens, by_pictures]


def machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores, {name}, Python {platform.python_version()}"


def main(argv: Sequence[str]) -> int:
    options = arguments(argv)
    rust = rust_front_end() if "vllm-rs" in options.servers else None
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as folder:
        place = Workplace.create(Path(folder))
        with running(options.servers, place, rust, options.port) as servers:
            bench = Bench(servers, place)
            tables = asyncio.run(measure(bench, options))
    print(machine())
    for table in tables:
        print_table(table, options.servers)
    if bench.remarks:
        print()
    for remark in bench.remarks:
        print(remark)
    figures: dict[str, Any] = {"machine": machine(), "command": " ".join(argv), "remarks": bench.remarks}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({**figures, "tables": [asdict(table) for table in tables]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
