"""The library with real decoding processes."""

import asyncio
import base64
import contextlib
import functools
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio
from PIL import Image

from media.cache import DiskCache, MemoryCache
from media.fetch import Fetcher, FetchPolicy
from media.limits import MediaLimits
from media.packing import n_bytes
from media.picture import MAX_JPEG_SCANS, prepare_picture
from media.process import WorkerError
from media.store import MediaLibrary
from media.types import MediaError
from tests.media import files
from tests.media.clips import numbered_clip, repeated
from tests.media.files import encode, noise
from tests.media.test_fetch import fixed, response, server

MakeLibrary = Callable[..., MediaLibrary]


@pytest_asyncio.fixture
async def make_library() -> AsyncIterator[MakeLibrary]:
    made: list[MediaLibrary] = []

    def make(fetcher: Fetcher | None = None, **limits: Any) -> MediaLibrary:
        made.append(MediaLibrary(fetcher=fetcher, limits=MediaLimits(**{"n_workers": 2, **limits})))
        return made[-1]

    yield make
    for library in made:
        await library.aclose()


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def picture(seed: int = 0, size: tuple[int, int] = (60, 40)) -> bytes:
    return encode(noise("RGB", *size, seed), "PNG")


@functools.cache
def slow_picture() -> bytes:
    """Takes about a second to decode and resize: 144 megapixels."""
    return encode(Image.new("L", (12_000, 12_000), 200), "PNG", compress_level=1)


def endless_picture(seed: int = 0) -> bytes:
    """Takes longer to decode than a test waits; each seed is another file."""
    return _endless_picture() + bytes([seed])


@functools.cache
def _endless_picture() -> bytes:
    """144 megapixels in as many scans as are allowed."""
    data = encode(Image.new("L", (12_000, 12_000), 90), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    n_more = MAX_JPEG_SCANS - data.count(b"\xff\xda")
    return data[:-2] + scan * n_more + data[-2:]


@functools.cache
def long_clip() -> bytes:
    return repeated(numbered_clip(60, width=1280, height=720), 40)


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it ends just now
            if "media.process.worker" in process.cmdline():
                found.append(process)
    return found


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_the_library_gives_what_prepare_picture_gives(make_library: MakeLibrary) -> None:
    library = make_library()
    for detail in ("auto", "low"):
        data = encode(noise("RGBA", 900, 700), "PNG")
        got, want = await library.picture(data_url(data), detail), prepare_picture(data, detail=detail)
        assert (got.width, got.height, got.item.grid) == (want.width, want.height, want.item.grid)
        assert got.item.identity == want.item.identity
        assert np.array_equal(got.item.patches, want.item.patches)


async def test_a_picture_is_prepared_once_under_whatever_url(make_library: MakeLibrary) -> None:
    library = make_library()
    data = picture()
    first = await library.picture(data_url(data))
    assert await library.picture(data_url(data), "high") is first
    assert await library.picture(data_url(data).rstrip("=").replace("image/png", "")) is first
    assert await library.picture_of(data) is first
    assert library.counts == {"prepared": 1, "memory": 3}
    assert library.n_bytes == first.item.patches.nbytes
    assert await library.picture(data_url(data), "low") is not first


async def test_identical_requests_at_the_same_time_share_one_decode(make_library: MakeLibrary) -> None:
    library = make_library()
    data = picture()
    spellings = [data_url(data), data_url(data) + "\n", data_url(data).replace("image/png", "")] * 4
    got = await asyncio.gather(*(library.picture(url) for url in spellings))
    assert all(one is got[0] for one in got)
    assert library.counts["prepared"] == 1


async def test_one_that_gives_up_stops_nobody(make_library: MakeLibrary) -> None:
    library = make_library()
    url = data_url(slow_picture())
    first = asyncio.create_task(library.picture(url))
    second = asyncio.create_task(library.picture(url))
    await until(workers)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await second).width == 12_000
    assert library.counts == {"prepared": 1}


async def test_tenants_share_nothing(make_library: MakeLibrary) -> None:
    library = make_library()
    url = data_url(picture())
    plain, a, b = [await library.picture(url, salt=salt) for salt in ("", "a", "b")]
    assert len({plain.item.identity, a.item.identity, b.item.identity}) == 3
    assert np.array_equal(a.item.patches, b.item.patches)
    assert library.counts == {"prepared": 3}
    assert await library.picture(url, salt="a") is a


async def test_failures_are_shared_meanwhile_but_not_remembered(make_library: MakeLibrary) -> None:
    library = make_library()
    url = data_url(picture()[:-30])
    results = await asyncio.gather(*(library.picture(url) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(r, MediaError) for r in results)
    assert library.counts == {"failed": 1}
    with pytest.raises(MediaError, match="received a PNG picture"):
        await library.picture(url)
    assert library.counts == {"failed": 2}


async def test_memory_is_bounded_and_the_least_recently_used_goes(make_library: MakeLibrary) -> None:
    one = n_bytes(prepare_picture(picture()))
    library = make_library(cache_bytes=2 * one)
    urls = [data_url(picture(seed)) for seed in range(3)]
    first = await library.picture(urls[0])
    await library.picture(urls[1])
    assert await library.picture(urls[0]) is first
    await library.picture(urls[2])  # pushes out the second
    assert await library.picture(urls[0]) is first
    assert library.n_bytes == 2 * one and library.counts["prepared"] == 3
    await library.picture(urls[1])
    assert library.counts["prepared"] == 4


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = MemoryCache(100)
    cache.put("key", prepare_picture(picture()))
    assert (len(cache), cache.n_bytes, cache.get("key")) == (0, 0, None)


async def test_a_folder_keeps_pictures_over_restarts(make_library: MakeLibrary, tmp_path: Path) -> None:
    url = data_url(picture())
    first = await make_library(cache_folder=tmp_path / "media").picture(url)
    library = make_library(cache_folder=tmp_path / "media")
    again = await library.picture(url)
    assert library.counts == {"disk": 1}
    assert np.array_equal(again.item.patches, first.item.patches)
    assert (again.item.identity, again.item.grid) == (first.item.identity, first.item.grid)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:-1] + b"?", lambda b: b"?" + b, lambda b: b""]
)
def test_a_damaged_file_in_the_folder_is_as_if_absent(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    cache = DiskCache(tmp_path, 10**9)
    cache.put("00aa", prepare_picture(picture()))
    assert cache.get("00aa") is not None
    (path,) = tmp_path.glob("*/*")
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("00aa") is None and not path.exists()


def test_the_folder_is_bounded_and_the_least_recently_used_goes(tmp_path: Path) -> None:
    media = prepare_picture(picture())
    cache = DiskCache(tmp_path, 2 * (n_bytes(media) + 500))
    for n, key in enumerate(("aaa", "bbb", "ccc")):
        cache.put(key, media)
        for path in tmp_path.glob(f"*/{key}*"):
            os.utime(path, (n, n))
        if key == "bbb":
            assert cache.get("aaa") is not None
    assert cache.get("aaa") is not None and cache.get("ccc") is not None
    assert cache.get("bbb") is None


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    """Four write, read and trim the same few entries; each finds an entry whole or not at all."""
    script = """
import sys
from pathlib import Path
from media.cache import DiskCache
from media.picture import prepare_picture
from media.packing import n_bytes
from tests.media.test_store import picture
media = [prepare_picture(picture(seed)) for seed in range(4)]
cache = DiskCache(Path(sys.argv[1]), 2 * (n_bytes(media[0]) + 500))
found = 0
for n in range(300):
    key, want = f"{n % 4:02d}key", media[n % 4]
    cache.put(key, want)
    got = cache.get(f"{(n + 1) % 4:02d}key")
    if got is not None:
        found += 1
        assert (got.item.patches == media[(n + 1) % 4].item.patches).all()
print(found)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4 and sum(found) > 0
    assert not list(tmp_path.glob("*/*.part"))


def test_a_folder_that_cannot_be_read_is_as_if_empty(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10**9)
    (tmp_path / "00" / "00aa.k3media").mkdir(parents=True)  # neither a file nor removable as one
    assert cache.get("00aa") is None
    cache.put("00aa", prepare_picture(picture()))
    assert cache.get("00aa") is None


# Files that take long, too much, or the process with them


async def test_a_file_that_takes_too_long_is_an_error_and_its_process_ends(make_library: MakeLibrary) -> None:
    library = make_library(picture_seconds=0.05)
    with pytest.raises(MediaError, match=r"more than 0\.05 seconds of processor time"):
        await library.picture_of(slow_picture())
    assert not workers()


@pytest_asyncio.fixture
async def stopped(make_library: MakeLibrary) -> AsyncIterator[tuple[MediaLibrary, psutil.Process]]:
    """A library whose only process waits for a processor: it is stopped, as it might be on a busy machine."""
    library = make_library(n_workers=1, picture_seconds=0.5)
    await library.picture_of(picture())
    (worker,) = workers()
    worker.suspend()
    yield library, worker
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.resume()


async def test_waiting_for_a_processor_is_not_work(stopped: tuple[MediaLibrary, psutil.Process]) -> None:
    library, worker = stopped
    task = asyncio.create_task(library.picture_of(picture(1)))
    await asyncio.sleep(1.5)  # more than the limit
    worker.resume()
    assert (await task).width == 60


async def test_a_process_that_does_nothing_any_more_is_ended(
    stopped: tuple[MediaLibrary, psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, worker = stopped
    monkeypatch.setattr("media.process.clock._STALLED_SECONDS", 0.2)
    with pytest.raises(MediaError, match="makes its decoder hang"):
        await library.picture_of(picture(1))
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert (await library.picture_of(picture(1))).width == 60


async def test_a_file_that_kills_its_process_is_an_error_and_the_next_one_works(
    make_library: MakeLibrary,
) -> None:
    library = make_library(n_workers=1)
    task = asyncio.create_task(library.picture_of(slow_picture()))
    await until(workers)
    await until(lambda: workers()[0].memory_info().rss > 100_000_000)  # it is decoding
    os.kill(workers()[0].pid, signal.SIGSEGV)
    with pytest.raises(MediaError, match="made its decoder crash"):
        await task
    assert (await library.picture_of(picture())).width == 60


def _kill_while_decoding(seen: set[int]) -> bool:
    """End a process that is decoding, as the kernel does where memory is short; False if none is."""
    for worker in workers():
        with contextlib.suppress(psutil.Error):
            if worker.pid not in seen and worker.memory_info().rss > 100_000_000:
                worker.kill()
                seen.add(worker.pid)
                return True
    return False


async def test_a_process_that_is_killed_from_outside_is_replaced_once(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=1)
    killed: set[int] = set()
    task = asyncio.create_task(library.picture_of(slow_picture()))
    await until(lambda: _kill_while_decoding(killed))
    assert (await task).width == 12_000
    task = asyncio.create_task(library.picture_of(slow_picture() + b"\0"))
    for _ in range(2):
        await until(lambda: _kill_while_decoding(killed))
    with pytest.raises(WorkerError, match="ended from outside by signal 9, twice"):
        await task
    assert (await library.picture_of(picture())).width == 60


async def test_a_process_that_was_killed_while_idle_is_nobodys_error(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=1)
    await library.picture_of(picture())
    workers()[0].kill()
    assert (await library.picture_of(picture(1))).width == 60


async def test_whatever_a_decoder_raises_is_said_of_the_file_and_logged(
    make_library: MakeLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    """A decoder that raises what it should not will do so again: nothing that a client could try again.

    The settings are broken on purpose, so that planning any clip raises.
    """
    library = make_library(n_workers=1)
    library.config = replace(library.config, sample_fps="eight")
    with pytest.raises(MediaError, match="cannot be decoded: its decoder failed with TypeError; convert it"):
        await library.clip_of(numbered_clip(4))
    assert "TypeError" in caplog.text and "sample_count" in caplog.text
    assert (await library.picture_of(picture())).width == 60


async def test_a_file_that_swells_is_an_error(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=1, worker_memory=700 * 1024**2)
    with pytest.raises(MediaError, match="memory"):
        await library.picture_of(encode(Image.new("RGBA", (12_000, 12_000)), "PNG", compress_level=1))
    assert (await library.picture_of(picture())).width == 60


async def test_slow_files_delay_neither_the_event_loop_nor_other_files(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=2)
    await asyncio.gather(*(library.picture_of(picture(seed)) for seed in (1, 2)))  # both processes started
    slow = [asyncio.create_task(library.picture_of(slow_picture()))]
    await asyncio.sleep(0)
    done = [await library.picture_of(picture(seed)) for seed in range(10, 30)]
    assert len(done) == 20 and not slow[0].done()
    assert (await slow[0]).width == 12_000


async def test_more_slow_files_than_processes_delay_no_quick_one(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=2, pixels_in_flight=10**9, picture_seconds=600)
    slow = [asyncio.create_task(library.picture_of(endless_picture(seed))) for seed in range(4)]
    await until(lambda: len(workers()) >= 2)
    done = [await library.picture_of(picture(seed)) for seed in range(10)]
    assert len(done) == 10 and not any(task.done() for task in slow)


async def test_a_huge_picture_that_waits_for_memory_delays_no_small_one(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=1, pixels_in_flight=150_000_000, picture_seconds=600)
    huge = [asyncio.create_task(library.picture_of(endless_picture(seed))) for seed in range(3)]
    await until(lambda: len(workers()) >= 2)
    assert (await library.picture_of(picture())).width == 60
    assert not any(task.done() for task in huge)


async def test_work_that_everybody_gave_up_is_ended_and_may_be_asked_for_again(
    make_library: MakeLibrary,
) -> None:
    library = make_library(n_workers=1)
    tasks = [asyncio.create_task(library.picture_of(endless_picture())) for _ in range(3)]
    await until(lambda: workers() and workers()[0].cpu_times().user > 0.6)  # it is decoding
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not workers())
    again = asyncio.create_task(library.picture_of(endless_picture()))
    await until(workers)
    assert not again.done()


async def test_clips_do_not_delay_pictures(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=1)
    clip = asyncio.create_task(library.clip_of(long_clip()))
    await until(workers)
    assert (await library.picture_of(picture())).width == 60
    assert not clip.done()


async def test_a_process_that_cannot_be_started_is_the_servers_fault(
    make_library: MakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = make_library()
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(WorkerError, match="no decoding process can be started"):
        await library.picture_of(picture())


async def test_pixels_in_flight_are_bounded_over_all_processes(make_library: MakeLibrary) -> None:
    library = make_library(n_workers=2, pixels_in_flight=150_000_000)
    data = slow_picture()
    await asyncio.gather(*(library.picture_of(picture(seed)) for seed in (1, 2)))
    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            sizes = sorted(p.memory_info().rss for p in workers())
            peak = max(peak, sizes[0])
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    two = await asyncio.gather(library.picture_of(data), library.picture_of(data + b"\0"))
    watching.cancel()
    assert [p.width for p in two] == [12_000, 12_000]
    assert peak < 200_000_000  # the one that waits has not taken its 144 MB meanwhile


async def test_a_bomb_is_refused_by_its_header(make_library: MakeLibrary) -> None:
    library = make_library()
    with pytest.raises(MediaError, match="20000x20000 pixels"):
        await library.picture_of(files.png_header_only(20_000, 20_000))
    with pytest.raises(MediaError, match="too many pixels"):
        await library.picture_of(files.png_header_only(2**31 - 1, 2**31 - 1))
    with pytest.raises(MediaError, match="cannot be decoded"):
        await library.picture_of(files.png_header_only(16_384, 16_384))


@pytest.mark.slow
async def test_the_largest_picture_of_the_spec_is_prepared(make_library: MakeLibrary) -> None:
    got = await make_library().picture_of(
        encode(Image.new("L", (16_384, 16_384), 9), "PNG", compress_level=1)
    )
    assert (got.width, got.item.n_tokens) == (16_384, 16_384)


async def test_decoding_processes_know_no_secrets(
    make_library: MakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3_API_KEYS", "very-secret")
    await make_library().picture_of(picture())
    for worker in workers():
        assert "very-secret" not in str(worker.environ())


async def test_a_module_beside_a_script_does_not_shadow_pythons_own(
    make_library: MakeLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "types.py").write_text("raise ImportError('not the one that was meant')")
    monkeypatch.syspath_prepend(tmp_path)  # where Python puts the folder of a script
    assert (await make_library().picture_of(picture())).width == 60


async def test_closing_ends_the_processes_and_what_is_under_way(make_library: MakeLibrary) -> None:
    library = make_library()
    task = asyncio.create_task(library.picture_of(slow_picture()))
    await until(workers)
    await library.aclose()
    assert not workers()
    with pytest.raises((MediaError, asyncio.CancelledError)):
        await task


# URLs


@pytest.mark.parametrize("url_seconds, n_fetches", [(3600, 1), (0, 3)])
async def test_a_url_is_fetched_again_after_a_while_but_known_content_is_not_prepared_again(
    make_library: MakeLibrary, url_seconds: float, n_fetches: int
) -> None:
    async with server(fixed(response("200 OK", picture()))) as (port, heads):
        fetcher = Fetcher(FetchPolicy(allow=(f"localhost:{port}",)))
        library = make_library(fetcher=fetcher, url_seconds=url_seconds)
        url = f"http://localhost:{port}/a.png"
        first, second = await asyncio.gather(library.picture(url), library.picture(url))
        assert first is second is await library.picture(url) is await library.picture(url)
    assert len(heads) == n_fetches and library.counts["prepared"] == 1


async def test_tenants_that_ask_for_the_same_url_at_the_same_time_share_no_fetch(
    make_library: MakeLibrary,
) -> None:
    """With isolation on, content is remembered by URL for the tenant that fetched it, and for no other."""
    async with server(fixed(response("200 OK", picture()))) as (port, heads):
        library = make_library(fetcher=Fetcher(FetchPolicy(allow=(f"localhost:{port}",))), url_seconds=3600)
        url = f"http://localhost:{port}/a.png"
        a, b, again = await asyncio.gather(*(library.picture(url, salt=salt) for salt in ("a", "b", "a")))
        assert a is again and a.item.identity != b.item.identity
        assert len(heads) == 2
        assert await library.picture(url, salt="a") is a
        assert len(heads) == 2
        await library.picture(url, salt="c")
        assert len(heads) == 3
    assert library.counts["prepared"] == 3


async def test_a_changed_file_behind_a_url_is_another_picture(
    make_library: MakeLibrary, tmp_path: Path
) -> None:
    library = make_library(fetcher=Fetcher(FetchPolicy(file_roots=(tmp_path,))))
    path = tmp_path / "a.png"
    path.write_bytes(picture(1))
    first = await library.picture(f"file://{path}")
    path.write_bytes(picture(2))
    assert (await library.picture(f"file://{path}")).item.identity != first.item.identity


async def test_a_file_of_exactly_the_limit_is_taken(make_library: MakeLibrary) -> None:
    data = picture()
    for limit, is_taken in ((len(data), True), (len(data) - 1, False)):
        library = make_library(fetcher=Fetcher(FetchPolicy(max_image_bytes=limit)))
        try:
            assert (await library.picture_of(data)).width == 60
        except MediaError as error:
            assert not is_taken and f"more than the limit of {limit:,}" in str(error)
        else:
            assert is_taken


async def test_nothing_of_a_data_url_is_logged(
    make_library: MakeLibrary, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    library = make_library()
    with pytest.raises(MediaError) as caught:
        await library.picture(data_url(picture()[:-30]))
    await library.picture(data_url(picture()))
    assert "iVBOR" not in caplog.text and "iVBOR" not in str(caught.value)


async def test_an_unknown_detail_is_an_error_before_anything_is_fetched(make_library: MakeLibrary) -> None:
    library = make_library()
    for call in (library.picture("http://pictures.invalid/", "xyz"), library.picture_of(b"", "xyz")):
        with pytest.raises(MediaError, match="detail must be"):
            await call
