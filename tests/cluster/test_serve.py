"""`k3 serve --profile cpu-mini-dp2` over HTTP: conversations, pins, and a rank that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Served, start, stop, until_ready

pytestmark = pytest.mark.slow

SYSTEM = "You are a careful engineer who answers in one short sentence. " * 14
CHAT = {"model": "kimi-k3", "max_tokens": 6, "temperature": 0, "reasoning_effort": "none"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Iterator[Served]:
    running = start(tmp_path_factory.mktemp("cluster") / "log", "--profile", "cpu-mini-dp2")
    try:
        until_ready(running)
        yield running
    finally:
        stop(running)


def engine_process(served: Served, rank: int) -> int:
    """The process id of a rank's engine, by the name that vLLM gives it."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == served.process.pid and f"DP{rank}" in (entry / "cmdline").read_text():
                return int(entry.name)
        except (OSError, ValueError):
            continue
    raise AssertionError(f"no engine process of rank {rank}")


def chat(served: Served, messages: list[dict[str, Any]]) -> dict[str, Any]:
    reply = httpx.post(f"{served.url}/v1/chat/completions", json={**CHAT, "messages": messages}, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()


def rank_of(served: Served, messages: list[dict[str, Any]]) -> int:
    explained = httpx.post(
        f"{served.url}/v1/prefixes/explain", json={**CHAT, "messages": messages}, timeout=60
    )
    return explained.json()["rank"]


def test_a_conversation_stays_on_the_rank_that_holds_its_prefix(cluster: Served) -> None:
    conversations = [[{"role": "user", "content": f"{letter} " * 400}] for letter in ("alpha", "beta")]
    homes: list[int] = []
    for turn in range(3):
        for number, messages in enumerate(conversations):
            reply = chat(cluster, messages)
            if turn:
                assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 256
                assert rank_of(cluster, messages) == homes[number]
            else:
                homes.append(rank_of(cluster, messages))
            messages.append(
                {"role": "assistant", "content": reply["choices"][0]["message"]["content"] or "."}
            )
            messages.append({"role": "user", "content": f"and turn {turn}?"})


def test_a_pin_is_verified_on_every_rank(cluster: Served) -> None:
    body = {"name": "coder", "system": SYSTEM, "efforts": ["max"]}
    pinned = httpx.post(f"{cluster.url}/v1/prefixes", json=body, timeout=120)
    assert pinned.status_code == 201, pinned.text
    (effort,) = pinned.json()["efforts"]
    assert [rank["rank"] for rank in effort["ranks"]] == [0, 1]
    for rank in effort["ranks"]:
        assert rank["warm"] and rank["cached_tokens"] >= effort["tokens"] > 128


def test_every_rank_reports_its_patches(cluster: Served) -> None:
    overview = httpx.get(f"{cluster.url}/v1/engine/patches").json()
    assert overview["agreed"]
    assert [(rank["data_parallel_rank"], rank["rank"]) for rank in overview["ranks"]] == [(0, 0), (1, 0)]


def test_a_rank_that_dies_ends_the_service(cluster: Served) -> None:
    """Last: the service is gone afterwards."""
    os.kill(engine_process(cluster, 1), signal.SIGKILL)
    assert cluster.wait(60) != 0
    log = cluster.log.read_text(errors="replace")
    assert "the process of data-parallel rank 1 was ended by SIGKILL" in log
    assert "the other ranks cannot go on without it" in log
