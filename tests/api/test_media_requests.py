"""Pictures and clips in chat requests over real HTTP: order, sharing, errors, usage, disconnects."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gateway.assembly import media_library
from gateway.settings import Settings
from gateway.xtml import Vocab
from media.clip import prepare_clip
from media.picture import prepare_picture
from media.types import MediaError
from tests.api.conftest import END, END_THINK, Server, chat_body, events_of
from tests.api.test_disconnect import leave, until
from tests.media.clips import moving, numbered_clip, repeated
from tests.media.files import encode, noise
from tests.scripted import Script

Ids = Callable[[str], list[int]]


def data_url(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


def png(seed: int = 0, width: int = 60, height: int = 40) -> bytes:
    return encode(noise("RGB", width, height, seed), "PNG")


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


def video(data: bytes) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(data)}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def decoders() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it ends just now
            if "media.process.worker" in process.cmdline():
                found.append(process)
    return found


async def test_twenty_pictures_of_one_request_stand_in_their_order(server: Server, ids: Ids) -> None:
    files = [png(seed, 30 + 28 * seed, 40) for seed in range(20)]
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        reply = await live.chat(messages=user(*map(image, files)))
        prompt, _ = live.engine.requests[0]
    wanted = [prepare_picture(data).item for data in files]
    assert [placed.item.identity for placed in prompt.media] == [item.identity for item in wanted]
    usage = reply.json()["usage"]["prompt_tokens_details"]
    assert usage["image_tokens"] == sum(item.n_tokens for item in wanted)


async def test_one_bad_picture_is_named_by_its_place_and_ends_the_others(server: Server) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()  # until the fetcher hangs up
        left.set()
        writer.close()

    async def bad_when_asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asked.wait()
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    slow = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    bad = await asyncio.start_server(bad_when_asked, "127.0.0.1", 0)
    hosts = [f"127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in (slow, bad)]
    urls = [{"type": "image_url", "image_url": {"url": f"http://{host}/x.png"}} for host in hosts]
    async with slow, bad, server(Script([1]), media_allowed_hosts=hosts) as live:
        messages = [{"role": "system", "content": "s"}, *user(text("t"), image(png()), *urls)]
        response = await live.chat(messages=messages)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"].startswith("messages[1].content[3]") and "404" in error["message"]
        await asyncio.wait_for(left.wait(), 5)
        assert not live.engine.requests


async def test_the_same_picture_in_fifty_requests_at_once_is_prepared_once(server: Server, ids: Ids) -> None:
    data = png(1, 900, 700)
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        replies = await asyncio.gather(*(live.chat(messages=user(image(data))) for _ in range(50)))
        counts = live.service.renderer.media.counts
    assert {r.status_code for r in replies} == {200}
    assert counts["prepared"] == 1


@pytest.mark.parametrize("role", ["user", "system", "tool"])
async def test_text_pictures_and_clips_keep_their_order(
    server: Server, ids: Ids, vocab: Vocab, role: str
) -> None:
    clip, picture = numbered_clip(31), png()
    parts = [text("ONE"), video(clip), text("TWO"), image(picture), text("THREE"), video(clip), text("FOUR")]
    message: dict[str, Any] = {"role": role, "content": parts}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    if role == "tool":
        message["tool_call_id"] = "c"
    messages = [*(before if role == "tool" else []), message]
    if role == "system":
        messages.append({"role": "user", "content": "hi"})
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        reply = await live.chat(messages=messages)
        assert reply.status_code == 200, reply.text
        prompt, _ = live.engine.requests[0]
        count = await live.http.post("/v1/tokenizers/estimate-token-count", json=chat_body(messages=messages))
    chunks = [chunk.item for chunk in prepare_clip(clip).chunks]
    wanted = [*chunks, prepare_picture(picture).item, *chunks]
    assert [placed.item.identity for placed in prompt.media] == [item.identity for item in wanted]
    written = vocab.decode([id_ for id_ in prompt.ids if id_ != vocab.media_pad])
    places = [
        written.index(w) for w in ("ONE", "00:00:00.000", "00:00:00.566", "TWO", "image 60x40", "THREE")
    ]
    assert places == sorted(places) and written.index("FOUR") > written.rindex("00:00:00.566") > places[-1]
    n_video = 2 * sum(item.n_tokens for item in chunks)
    usage = reply.json()["usage"]
    assert usage["prompt_tokens_details"]["video_tokens"] == n_video
    assert count.json()["data"] == {
        "total_tokens": usage["prompt_tokens"],
        "image_tokens": usage["prompt_tokens_details"]["image_tokens"],
        "video_tokens": n_video,
    }


async def test_media_tokens_are_the_same_streamed_and_whole_and_sound_is_told(
    server: Server, ids: Ids
) -> None:
    messages = user(video(numbered_clip(31, audio=True)), image(png()))
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        whole = await live.chat(messages=messages)
        streamed = await live.chat(messages=messages, stream=True, stream_options={"include_usage": True})
    last = json.loads(events_of(streamed.text)[-2])
    details = whole.json()["usage"]["prompt_tokens_details"]
    assert details["image_tokens"] == 6 and details["video_tokens"] > 0
    assert last["usage"]["prompt_tokens_details"] == details
    for reply in (whole, streamed):
        assert "audio track was ignored" in reply.headers["k3-media"]


async def test_a_moving_picture_as_a_picture_is_told(server: Server, ids: Ids) -> None:
    async with server(Script(ids(f"a{END_THINK}b{END}"))) as live:
        reply = await live.chat(messages=user(image(moving("GIF", 3))))
        still = await live.chat(messages=user(image(moving("GIF", 1))))
    assert "the picture moves, but only its first frame is seen" in reply.headers["k3-media"]
    assert "k3-media" not in still.headers


@pytest.mark.timeout(30)
async def test_a_client_that_leaves_while_a_long_clip_is_decoded_frees_the_decoder(server: Server) -> None:
    clip = repeated(numbered_clip(60, width=1280, height=720), 100)
    async with server(Script([1])) as live:
        await leave(
            live,
            lambda: any(p.cpu_times().user > 0.5 for p in decoders()),
            messages=user(video(clip)),
        )
        await until(lambda: live.service.admission.running == 0)
        await until(lambda: not decoders())
        assert not live.engine.requests


async def test_a_clip_beyond_the_context_is_refused_before_it_is_decoded(
    checkpoint: Path, vocab: Vocab
) -> None:
    library = media_library(Settings(), checkpoint, context=1_000)
    try:
        with pytest.raises(MediaError, match="more than the limit of 1,000 for it; cut it"):
            await library.clip_of(repeated(numbered_clip(60, width=320, height=240), 10))
    finally:
        await library.aclose()


async def test_a_reply_with_an_error_names_no_path_of_the_server(server: Server) -> None:
    async with server(Script([1])) as live:
        url = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
        response: httpx.Response = await live.chat(messages=user(url))
    assert response.status_code == 400 and "/etc" not in response.text.replace("file:///etc/passwd", "")
