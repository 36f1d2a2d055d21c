"""Clips through the media library: decoded in another process, once, with each tenant's own identities."""

import asyncio
import base64

import pytest

from media.clip import prepare_clip
from media.config import K3_MEDIA_CONFIG
from media.limits import ClipLimits, MediaLimits
from media.store import MediaLibrary
from media.types import Clip, MediaError
from tests.media.clips import numbered_clip, prepared_numbers


def data_url(data: bytes) -> str:
    return "data:video/mp4;base64," + base64.b64encode(data).decode()


def identities(clip: Clip) -> list[str]:
    return [chunk.item.identity for chunk in clip.chunks]


@pytest.fixture
async def library():
    library = MediaLibrary(limits=MediaLimits(n_workers=1, clip=ClipLimits(duration=5.0)))
    yield library
    await library.aclose()


async def test_a_clip_is_prepared_once_and_as_without_the_library(library: MediaLibrary):
    data = numbered_clip(31, audio=True)
    first, second = await asyncio.gather(library.clip(data_url(data)), library.clip(data_url(data)))
    again = await library.clip(data_url(data))
    assert library.counts["prepared"] == 1
    assert again is first and second is first
    alone = prepare_clip(data)
    assert identities(first) == identities(alone)
    assert prepared_numbers(first) == prepared_numbers(alone)
    assert [chunk.timestamp for chunk in first.chunks] == [chunk.timestamp for chunk in alone.chunks]
    assert first.notes == alone.notes and first.duration == alone.duration


async def test_tenants_have_identities_of_their_own(library: MediaLibrary):
    url = data_url(numbered_clip(31))
    plain, one, other = [await library.clip(url, salt=salt) for salt in ("", "one", "other")]
    seen = identities(plain) + identities(one) + identities(other)
    assert len(set(seen)) == len(seen) == 6


async def test_errors_and_limits_reach_the_caller(library: MediaLibrary):
    with pytest.raises(MediaError, match=r"limit of 5 s.*ffmpeg"):
        await library.clip(data_url(numbered_clip(31, rate=5)))
    with pytest.raises(MediaError, match=r"index"):
        await library.clip(data_url(numbered_clip(31)[:500]))
    # The process is as good as new.
    assert (await library.clip(data_url(numbered_clip(8, rate=8)))).n_frames == 8
    assert library.config is K3_MEDIA_CONFIG
