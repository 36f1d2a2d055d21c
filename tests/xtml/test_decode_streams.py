"""What a client assembles from a stream is the whole reply (docs/decisions.md#r2).

One exception: where the answer was written as thinking, a stream has sent it as reasoning already, and sends
it once more as content (D4, `ReasoningWasContent`).
"""

import json
from typing import Any

import msgspec
import pytest

from gateway.xtml import CallClosed, CallOpened, ReasoningClosed, ReasoningWasContent, Vocab
from tests.xtml.completions import Decoded
from tests.xtml.random_ids import RandomIds
from tests.xtml.stream_client import Assembled, is_json

SPLITS = (0, 1, 3, 7)  # ids per step; 0 is all at once


def check(vocab: Vocab, ids: list[int], options: dict[str, Any], reason: str) -> Decoded:
    for size in SPLITS:
        got = Decoded(vocab, ids, reason, size, **options)
        client = Assembled(got.events, got.finish_reason)
        reply = got.reply
        assert client.calls == [(c.id, c.name, c.arguments) for c in reply.tool_calls], (ids, options)
        assert client.content == reply.content
        assert client.unparsed == [part.text for part in reply.unparsed]
        if not any(isinstance(event, ReasoningWasContent) for event in got.events):
            assert client.reasoning == reply.reasoning
        else:
            end = got.events.index(ReasoningClosed())
            before = Assembled(got.events[:end], "stop").reasoning
            assert client.reasoning == before + reply.reasoning
        for event in got.events:
            msgspec.json.encode(event)
        check_finish(got, client)
        check_failure(got, client, options)
    return got


def check_finish(got: Decoded, client: Assembled) -> None:
    """No announced call is open where the finish reason says that all is well."""
    opened = {e.index for e in got.events if isinstance(e, CallOpened)}
    closed = {e.index for e in got.events if isinstance(e, CallClosed)}
    assert set(client.announced) == opened == set(range(len(opened)))
    if opened - closed:
        assert got.finish_reason == "length"
        assert not any(is_json(client.announced[index]["arguments"]) for index in opened - closed)
    elif got.finish_reason == "tool_calls":
        assert closed
    elif got.finish_reason == "stop":
        assert not closed
    for call in got.reply.tool_calls:
        if call.valid_arguments:
            assert isinstance(json.loads(call.arguments), dict)
            assert msgspec.json.decode(call.arguments.encode()) == json.loads(call.arguments)


def check_failure(got: Decoded, client: Assembled, options: dict[str, Any]) -> None:
    """An error is what gave its client nothing to use; what did, is none (docs/decisions.md#r3)."""
    thoughts = client.reasoning if not client.content.strip() else ""
    if not options["thinking"]:
        assert not client.reasoning
    if got.failure is not None:
        assert got.failure == "empty_reply"
        assert (client.content.strip(), client.calls) == ("", [])
        # A call that was lost may have had neither a name nor arguments to show.
        assert not thoughts.strip() or client.unparsed or got.decoder._reader.calls.withheld
    elif got.finish_reason == "stop" and got.decoder.stop_string is None:
        assert client.content.strip() or thoughts


def run(vocab: Vocab, seed: int, n: int) -> dict[str, int]:
    source = RandomIds(vocab, seed)
    seen = dict.fromkeys(["calls", "open", "answers in thinking", "answerable"], 0)
    for _ in range(n):
        ids, options = source.one(), source.options()
        got = check(vocab, ids, options, source.random.choice(["stop", "length"]))
        seen["calls"] += len(got.calls)
        seen["open"] += got.decoder.finish_reason("stop") == "length"
        seen["answers in thinking"] += any(isinstance(e, ReasoningWasContent) for e in got.events)
        seen["answerable"] += any(not (c.declared and c.valid_arguments) for c in got.reply.tool_calls)
    return seen


def test_client_assembles_the_whole_reply(small_vocab: Vocab) -> None:
    seen = run(small_vocab, 50, 1_000)
    assert min(seen.values()) > 5, seen


@pytest.mark.slow
def test_client_assembles_8_000_whole_replies(small_vocab: Vocab) -> None:
    seen = run(small_vocab, 51, 8_000)
    assert min(seen.values()) > 50, seen
