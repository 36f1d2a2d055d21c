"""`POST /v1/media/preview`: what the model sees of one file, by URL or upload."""

import asyncio
import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from media.clip import prepare_clip
from media.picture import prepare_picture
from media.preview import CHUNK_COLOUR, GRID_COLOUR
from tests.api.conftest import Live, Server
from tests.media.clips import numbered_clip
from tests.media.files import encode, noise
from tests.scripted import Script


def data_url(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


async def preview(live: Live, **body: Any) -> httpx.Response:
    return await live.http.post("/v1/media/preview", json=body)


def drawn(reply: dict[str, Any]) -> np.ndarray:
    head, data = reply["preview"].split(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    return response.json()["error"]


async def test_a_picture_by_url_and_as_upload_says_what_a_chat_request_would_send(server: Server) -> None:
    picture = encode(noise("RGB", 60, 30), "PNG")
    prepared = prepare_picture(picture)
    async with server(Script([1])) as live:
        by_url = (await preview(live, url=data_url(picture))).json()
        upload = await live.http.post("/v1/media/preview", files={"file": ("a.png", picture)})
    assert upload.json() == by_url
    seen = drawn(by_url)
    assert seen.shape == (56, 84, 3)
    assert all(tuple(seen[y, x]) == GRID_COLOUR for y, x in ((0, 5), (28, 5), (5, 0), (5, 28), (5, 56)))
    assert seen[40, 75].tolist() == [0, 0, 0]  # padding
    del by_url["preview"]
    assert by_url == {
        "kind": "image",
        "width": 60,
        "height": 30,
        "resized": {"width": 60, "height": 30},
        "padded": {"width": 84, "height": 56},
        "n_patches": 24,
        "n_tokens": 6,
        "duration": None,
        "n_frames": 1,
        "inputs": [
            {
                "timestamp": None,
                "grid": [1, 4, 6],
                "n_tokens": 6,
                "prompt": "<|media_begin|>image 60x30<|media_content|><|media_pad|> x 6<|media_end|>",
                "identity": prepared.item.identity,
            }
        ],
        "notes": [],
    }


async def test_a_clip_shows_its_chunks(server: Server) -> None:
    clip = numbered_clip(31, width=320, height=240, audio=True)
    async with server(Script([1])) as live:
        reply = (await preview(live, url=data_url(clip))).json()
    chunks = prepare_clip(clip).chunks
    assert (reply["kind"], reply["n_frames"], reply["n_tokens"]) == ("video", 8, 216)
    assert reply["duration"] == pytest.approx(31 / 30)
    assert [i["timestamp"] for i in reply["inputs"]] == ["00:00:00.000", "00:00:00.566"]
    assert [i["identity"] for i in reply["inputs"]] == [chunk.item.identity for chunk in chunks]
    assert reply["inputs"][1]["prompt"] == (
        "00:00:00.566<|media_begin|>video<|media_content|><|media_pad|> x 108<|media_end|>"
    )
    assert "audio track was ignored" in reply["notes"][0]
    assert (drawn(reply) == CHUNK_COLOUR).all(axis=2).any()


async def test_kind_and_detail_are_honoured(server: Server) -> None:
    frames = [Image.fromarray(np.full((40, 40, 3), level, np.uint8)) for level in (0, 250)]
    moving = encode(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=500)
    large = encode(noise("RGB", 1920, 1080), "PNG")
    async with server(Script([1])) as live:
        kinds = [
            (await preview(live, url=data_url(moving), **kind)).json()["kind"]
            for kind in ({}, {"kind": "image"}, {"kind": "video"})
        ]
        low = (await preview(live, url=data_url(large), detail="low")).json()
        form = {"files": {"file": ("a", large)}, "data": {"detail": "low"}}
        low_upload = (await live.http.post("/v1/media/preview", **form)).json()
        wrong_kind = error_of(await preview(live, url=data_url(large), kind="video"))
    assert kinds == ["video", "image", "video"]
    assert low["n_tokens"] == low_upload["n_tokens"] == 264
    assert "send it as an image_url" in wrong_kind["message"]


async def test_the_preview_of_the_largest_picture_and_of_a_long_clip_is_bounded(server: Server) -> None:
    wide = encode(Image.new("L", (12000, 3000), 90), "PNG")
    long = numbered_clip(480, rate=8)
    async with server(Script([1])) as live:
        picture = (await preview(live, url=data_url(wide))).json()
        clip = (await preview(live, url=data_url(long))).json()
    assert max(drawn(picture).shape) == 1600
    assert (drawn(picture)[5, 1:8] == GRID_COLOUR).all(axis=1).any()  # 28 pixels are about 6 here
    assert clip["n_frames"] == 480 and len(clip["inputs"]) == 120
    assert len(clip["preview"]) < 4_000_000


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "url", "required"),
        ({"url": ""}, "url", ""),
        ({"url": 3}, "url", ""),
        ({"url": "data:,x", "detail": "xyz"}, "detail", "auto"),
        ({"url": "data:,x", "kind": "audio"}, "kind", "image"),
        ({"url": "data:,<html>"}, "url", "an HTML page"),
        ({"url": "http://127.0.0.1/x.png"}, "url", "not at a public address"),
        ({"url": "file:///etc/passwd"}, "url", "switched off"),
    ],
)
async def test_a_wrong_request_is_a_400_that_names_the_field(
    server: Server, body: dict[str, Any], param: str, words: str
) -> None:
    async with server(Script([1])) as live:
        error = error_of(await preview(live, **body))
    assert error["param"] == param and words in error["message"]


FORM = {"content-type": "multipart/form-data; boundary=x"}


@pytest.mark.parametrize(
    ("headers", "body", "param"),
    [
        ({"content-type": "multipart/form-data"}, b"", None),
        (FORM, b"", "file"),
        (FORM, b"garbage", None),
        (FORM, b"--x\r\ngarbage", None),
        (FORM, b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\ntext\r\n--x--\r\n', "file"),
        (FORM, b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\ncut off', None),
        (FORM, b"--x\r\nContent-Disposition: form-data\r\n\r\ntext\r\n--x--\r\n", None),
    ],
)
async def test_a_broken_form_is_a_400(
    server: Server, headers: dict[str, str], body: bytes, param: str | None
) -> None:
    async with server(Script([1])) as live:
        error = error_of(await live.http.post("/v1/media/preview", content=body, headers=headers))
    assert error["message"] and (param is None or error["param"] == param)


async def test_two_files_and_wrong_fields_of_a_form_are_refused(server: Server) -> None:
    async with server(Script([1])) as live:
        two = await live.http.post("/v1/media/preview", files=[("file", b"a"), ("file", b"b")])
        field = await live.http.post("/v1/media/preview", files={"file": b"a"}, data={"detail": "x"})
        empty = await live.http.post("/v1/media/preview", files={"file": ("a.png", b"")})
    assert "Too many files" in error_of(two)["message"]
    assert error_of(field)["param"] == "detail"
    assert error_of(empty)["param"] == "file" and "empty" in error_of(empty)["message"]


async def test_keys_the_body_limit_and_places_hold_here_too(server: Server) -> None:
    tiny = encode(noise("L", 4, 4), "PNG")
    async with server(Script([1]), api_keys=["secret"], max_body_bytes=4096) as live:
        without = await preview(live, url=data_url(tiny))
        live.http.headers["authorization"] = "Bearer secret"
        with_key = await preview(live, url=data_url(tiny))
        too_large = await live.http.post("/v1/media/preview", files={"file": b"x" * 5000})
        place = live.service.admission.place()
        live.service.admission.limit = 1
        crowded = await preview(live, url=data_url(tiny))
        place.release()
    statuses = [r.status_code for r in (without, with_key, too_large, crowded)]
    assert statuses == [401, 200, 413, 429]


async def test_previews_at_the_same_time_share_one_preparation(server: Server) -> None:
    picture = data_url(encode(noise("RGB", 600, 600), "PNG"))
    async with server(Script([1])) as live:
        replies = await asyncio.gather(*(preview(live, url=picture) for _ in range(20)))
        counts = live.service.renderer.media.counts
    assert {r.status_code for r in replies} == {200} and counts["prepared"] == 1
