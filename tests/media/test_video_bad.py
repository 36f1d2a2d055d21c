"""Clips that cannot be used: every one gives a MediaError that says what was received and what to do."""

import io
import random
import re
import struct
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from media.clip import prepare_clip
from media.config import K3_MEDIA_CONFIG
from media.limits import ClipLimits
from media.types import MediaError
from tests.media.child import prepare_in_child, run_child
from tests.media.clips import clip, ffmpeg, moving, needs_ffmpeg, numbered, numbered_clip, prepared_numbers


def refusal(data: bytes, limits: ClipLimits | None = None) -> str:
    with pytest.raises(MediaError) as caught:
        prepare_clip(data, K3_MEDIA_CONFIG, limits)
    message = str(caught.value)
    assert not re.search(r"0x[0-9a-f]{5}|/\w+/|[Tt]raceback|<\w", message), message
    return message


def sound_only(container: str = "mp4", codec: str = "aac") -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=48_000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 96_000), np.int16), "s16", "stereo")
        silence.sample_rate, silence.pts = 48_000, 0
        output.mux(stream.encode(silence))
        output.mux(stream.encode(None))
    return file.getvalue()


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 20)).save(file, kind)
    return file.getvalue()


NO_CLIPS = {
    "nothing": (b"", "0 bytes"),
    "png": (picture("PNG"), "PNG picture.*image_url"),
    "jpeg": (picture("JPEG"), "JPEG picture.*image_url"),
    "html": (b"<!doctype html><html><body>404</body></html>", "HTML page"),
    "json": (b'{"error": "gone"}', "JSON"),
    "text": (b"hello, this is not a clip", "text"),
    "pdf": (b"%PDF-1.7 ...", "PDF"),
    "noise": (random.Random(1).randbytes(5000), "not a clip"),
    "avi of nothing": (b"RIFF\x00\x10\x00\x00AVI LIST" + bytes(100), "cannot be read"),
    "mpeg ts of nothing": ((b"\x47\x40\x00\x10" + bytes(184)) * 3, "no video track|cannot be read"),
    "one packet of mpeg ts": (b"\x47\x40\x00\x10" + bytes(184), "188 bytes of no known format"),
    "windows media": (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media file.*ffmpeg"),
    "sound in m4a": (sound_only("ipod"), "MPEG-4 audio file"),
    "camera raw": (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "camera RAW file .CR3"),
    "heif in the compact form": (b"\0\0\0\x10ftypmif3avif", "compact form .brand mif3"),
    "playlist": (b"#EXTM3U\n#EXTINF:9,\nhttp://example.org/a.ts\n", "playlist"),
    "sound in mp4": (sound_only(), "no video track.*audio track .aac"),
    "sound in mkv": (sound_only("matroska", "pcm_s16le"), "no video track.*audio track"),
    "a lone box": (struct.pack(">I4s", 8, b"ftyp"), "index .*missing"),
    "matroska magic only": (b"\x1a\x45\xdf\xa3", "cannot be read"),
    "gif header only": (b"GIF89a\x10\x00\x10\x00\x00\x00\x00", "none of its frames"),
    "gif of no frame": (b"GIF89a\x10\x00\x10\x00\x00\x00\x00;", "none of its frames"),
}


@pytest.mark.parametrize(("data", "words"), NO_CLIPS.values(), ids=NO_CLIPS.keys())
def test_what_is_not_a_clip_is_named(data: bytes, words: str):
    with pytest.raises(MediaError, match=f"(?s){words}"):
        prepare_clip(data)


def test_an_mp4_without_its_index_is_told_apart():
    data = numbered_clip(31)
    start = data.index(b"moov") - 4
    assert "index" in refusal(data[:start])


def with_index_first(data: bytes, folder) -> bytes:
    (folder / "a.mp4").write_bytes(data)
    ffmpeg("-i", folder / "a.mp4", "-c", "copy", "-movflags", "faststart", folder / "b.mp4")
    return (folder / "b.mp4").read_bytes()


@needs_ffmpeg()
def test_a_clip_with_its_index_first_is_read_and_half_of_it_refused(tmp_path):
    data = with_index_first(numbered_clip(300), tmp_path)
    assert prepare_clip(data).n_frames == 80
    assert "cut off" in refusal(data[: len(data) // 2])


def test_half_a_fragmented_mp4_is_what_there_is():
    fragments = {"movflags": "frag_keyframe+empty_moov"}
    data = numbered_clip(200, container_options=fragments, options={"g": "10"})
    prepared = prepare_clip(data[: len(data) // 2])
    assert 8 <= prepared.n_frames < 53


def test_frames_that_an_edit_list_leaves_out_are_not_missing():
    """Phones trim a clip by telling a shorter duration; the frames after it stay in the file."""
    data = numbered_clip(60)
    trimmed = patched(data, b"elst", 8, 1000)  # of 2000 thousandths
    prepared = prepare_clip(trimmed)
    assert prepared.duration == pytest.approx(1, abs=0.1)
    assert max(prepared_numbers(prepared)) < 34


def test_a_limit_of_exactly_full_hd_takes_full_hd():
    data = clip([numbered(1, 1920, 1080)] * 2, options={"preset": "ultrafast"})
    assert prepare_clip(data, K3_MEDIA_CONFIG, ClipLimits(frame_pixels=1920 * 1080)).height == 1080


def test_half_a_webm_is_what_there_is():
    data = numbered_clip(200, container="webm", codec="libvpx", options={"g": "10"})
    prepared = prepare_clip(data[: len(data) // 2])
    shown = prepared_numbers(prepared)
    assert 8 <= prepared.n_frames < 53 and shown == sorted(shown)


@needs_ffmpeg()
def test_an_encrypted_clip_is_refused(tmp_path):
    (tmp_path / "a.mp4").write_bytes(numbered_clip(31))
    scheme = ["-encryption_scheme", "cenc-aes-ctr", "-encryption_key", "0" * 32, "-encryption_kid", "1" * 32]
    ffmpeg("-i", tmp_path / "a.mp4", "-c", "copy", *scheme, tmp_path / "b.mp4")
    assert "encrypted" in refusal((tmp_path / "b.mp4").read_bytes())


def test_limits_are_named_with_a_way_out():
    data = numbered_clip(60)
    limits = ClipLimits()
    too_long = refusal(data, replace(limits, duration=1.5))
    assert "2.0 s" in too_long and "1.5 s" in too_long and "ffmpeg -i clip.mp4 -t 1 -c copy" in too_long
    assert f"{len(data):,} bytes" in refusal(data, replace(limits, n_bytes=1000))
    assert "60 frames" in refusal(data, replace(limits, n_frames=59))
    assert "96x64" in refusal(data, replace(limits, frame_pixels=96 * 64 - 1))
    assert "60 frames of 96x64" in refusal(data, replace(limits, total_pixels=96 * 64 * 60 - 1))
    exact = ClipLimits(2.0, len(data), 60, 96 * 64, 96 * 64 * 60, 4 * (12 + 11))
    assert prepare_clip(data, K3_MEDIA_CONFIG, exact).n_frames == 16
    assert "92 tokens" in refusal(data, replace(exact, max_tokens=91))


@pytest.mark.parametrize("seconds", [3, 8, 20])
def test_the_cut_that_is_proposed_for_too_many_tokens_fits(seconds: int):
    data = clip([numbered(3, 640, 480)] * 8 * seconds, rate=8, options={"preset": "ultrafast"})
    whole = sum(chunk.item.n_tokens + 11 for chunk in prepare_clip(data).chunks)
    limits = ClipLimits(max_tokens=whole * 2 // 3)
    message = refusal(data, limits)
    proposed = int(message.split("-t ")[1].split()[0])
    shorter = clip([numbered(3, 640, 480)] * 8 * proposed, rate=8, options={"preset": "ultrafast"})
    assert prepare_clip(shorter, K3_MEDIA_CONFIG, limits).n_frames == 8 * proposed


def test_ten_hours_of_black_are_refused_unseen():
    black = clip([np.zeros((64, 64, 3), np.uint8)] * 10, rate=Fraction(1, 3600))
    assert "36000.0 s, more than the limit of 600 s" in refusal(black)


def test_a_header_that_claims_centuries_is_refused():
    data = numbered_clip(31, container="matroska")
    at = data.index(b"\x44\x89\x88") + 3  # Duration, a float of 8 bytes, in milliseconds
    claims = data[:at] + struct.pack(">d", 1e13) + data[at + 8 :]
    assert "header claims 1e+10 s" in refusal(claims)
    assert "limit of 600 s" in refusal(patched(numbered_clip(31), b"stts", 12, 0x40000000))


def test_a_header_that_declares_what_was_filmed_before_trimming_is_not_held_against_the_clip():
    limits = ClipLimits(duration=1.2)
    assert "2.0 s" in refusal(numbered_clip(60), limits)
    assert prepare_clip(patched(numbered_clip(60), b"elst", 8, 1000), K3_MEDIA_CONFIG, limits).n_frames > 7


def patched(data: bytes, box: bytes, offset: int, value: int) -> bytes:
    """`data` with the 32-bit number at `offset` after the name of the index's first `box` replaced."""
    at = data.index(box, data.index(b"moov")) + 4 + offset
    return data[:at] + struct.pack(">I", value) + data[at + 4 :]


LIES = {
    "sample count in stsz": ("stsz", 8),
    "sample count in stts": ("stts", 8),
    "chunk count in stco": ("stco", 4),
    "entry count in stts": ("stts", 4),
    "entry count in ctts": ("ctts", 4),
    "entry count in stss": ("stss", 4),
    "samples per chunk in stsc": ("stsc", 12),
    "size of the moov box": ("moov", -8),
}
PEAK_ABOVE_IMPORT = 100 * 1024**2  # bytes


@pytest.mark.parametrize(("box", "offset"), LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("constant_size", [0, 1])
def test_a_header_that_claims_a_thousand_million_takes_no_memory(
    box: str, offset: int, constant_size: int, tmp_path
):
    data = numbered_clip(31)
    if constant_size:
        data = patched(data, b"stsz", 4, 40)
    (tmp_path / "a.mp4").write_bytes(patched(data, box.encode(), offset, 1_000_000_000))
    outcome, taken = prepare_in_child(tmp_path / "a.mp4")
    assert outcome.split()[0] in ("frames", "refused")
    assert taken < PEAK_ABOVE_IMPORT, outcome


def test_a_fragment_that_claims_a_thousand_million_is_refused():
    data = numbered_clip(31, container_options={"movflags": "frag_keyframe+empty_moov"})
    at = data.index(b"trun") + 4
    without_sizes = data[:at] + struct.pack(">II", 1, 1_000_000_000) + data[at + 8 :]
    assert "claims 1000000000 samples" in refusal(without_sizes)
    assert "claims 1000000000 samples" in refusal(data[: at + 4] + struct.pack(">I", 10**9) + data[at + 8 :])


def damaged(data: bytes, start: float, end: float, seed: int = 3) -> bytes:
    """Noise instead of the bytes between two shares of the pixel data of an MP4 whose index is last."""
    body, tail = data.index(b"mdat") + 4, data.index(b"moov") - 4
    a, b = (body + int((tail - body) * share) for share in (start, end))
    return data[:a] + random.Random(seed).randbytes(b - a) + data[b:]


def test_a_clip_with_a_few_broken_frames_is_used_and_says_so():
    every_frame_alone = numbered_clip(80, rate=8, codec="mjpeg", pixel_format="yuvj420p")
    prepared = prepare_clip(damaged(every_frame_alone, 0.5, 0.52))
    assert prepared.n_frames == 80
    assert any("damaged" in note for note in prepared.notes)


def test_a_clip_that_is_mostly_broken_is_refused():
    data = numbered_clip(80, rate=8, codec="mjpeg", pixel_format="yuvj420p")
    assert "damaged" in refusal(damaged(data, 0.1, 0.9))


def test_a_frame_size_that_only_the_codec_knows_is_refused_too():
    large = numbered_clip(4, width=640, height=480)
    disguised = patched(large, b"avc1", 24, 96 << 16 | 64)
    assert prepare_clip(disguised).height == 480
    refusal(disguised, ClipLimits(frame_pixels=640 * 480 - 1))


GROWING = {
    "vp8": {"container": "webm", "codec": "libvpx"},
    "vp9": {"container": "webm", "codec": "libvpx-vp9"},
    "av1": {"container": "webm", "codec": "libsvtav1"},
    "mpeg2": {"container": "matroska", "codec": "mpeg2video", "options": {"bf": "0"}},
    "h264 with headers in its packets": {"container": "mpegts"},
}


@needs_ffmpeg()
@pytest.mark.parametrize("how", GROWING.values(), ids=GROWING.keys())
def test_frames_that_grow_in_mid_clip_beyond_the_limit_are_refused(how: dict, tmp_path):
    for name, scale in (("a", 1), ("b", 4)):
        part = numbered_clip(60, width=96 * scale, height=64 * scale, **how)
        (tmp_path / name).write_bytes(part)
    (tmp_path / "list").write_text("file a\nfile b\n")
    ffmpeg("-f", "concat", "-i", tmp_path / "list", "-c", "copy", tmp_path / "both.mkv")
    data = (tmp_path / "both.mkv").read_bytes()
    whole = prepare_clip(data)
    assert (whole.width, whole.height) == (96, 64)
    # H.264 counts a frame that is too large among the damaged ones.
    assert re.search("cannot be read|is damaged", refusal(data, ClipLimits(frame_pixels=96 * 64)))


def half_transparent(codec: str) -> bytes:
    return clip(
        [np.dstack([numbered(i), np.full((64, 96), 128, np.uint8)]) for i in range(8)],
        container="webm",
        codec=codec,
        pixel_format="yuva420p",
        options={"auto-alt-ref": "0"},
    )


FUZZED = {
    "mp4": lambda: numbered_clip(20, audio=True),
    "fragmented": lambda: numbered_clip(20, container_options={"movflags": "frag_keyframe+empty_moov"}),
    "mov png": lambda: numbered_clip(6, container="mov", codec="png", pixel_format="rgb24"),
    "mkv": lambda: numbered_clip(20, container="matroska"),
    "vp8": lambda: numbered_clip(20, container="webm", codec="libvpx"),
    "vp8 alpha": lambda: half_transparent("libvpx"),
    "vp9 alpha": lambda: half_transparent("libvpx-vp9"),
    "avi": lambda: numbered_clip(20, container="avi", codec="mpeg4"),
    "mpeg ts": lambda: numbered_clip(20, container="mpegts"),
    "gif": lambda: numbered_clip(12, container="gif", codec="gif", pixel_format="rgb8"),
    "webp": lambda: moving("WEBP", 12),
    "apng": lambda: moving("PNG", 12),
}
FUZZ_CHILD = """
import random, sys, time
from media.types import Clip, MediaError
from media.clip import prepare_clip
from media.limits import ClipLimits
data, seed, seconds = open(sys.argv[1], "rb").read(), int(sys.argv[2]), float(sys.argv[3])
chance, until, ends = random.Random(seed), time.monotonic() + seconds, {"clip": 0, "refused": 0}
for round in range(int(sys.argv[4])):
    if time.monotonic() > until:
        break
    mutated = bytearray(data)
    for _ in range(chance.choice([1, 2, 5, 30])):
        kind, at = chance.randrange(4), chance.randrange(len(mutated))
        if kind == 0:
            mutated[at] = chance.randrange(256)
        elif kind == 1:
            mutated[at : at + 4] = chance.choice([b"\\xff\\xff\\xff\\xff", b"\\x7f\\xff\\xff\\xff", bytes(4)])
        elif kind == 2:
            del mutated[at : at + chance.randrange(1, 40)]
        else:
            mutated[at:at] = mutated[at : at + chance.randrange(1, 40)]
        if not mutated:
            break
    try:
        result = prepare_clip(bytes(mutated), limits=ClipLimits(frame_pixels=1 << 20, duration=60))
        assert isinstance(result, Clip) and result.chunks
        ends["clip"] += 1
    except MediaError:
        ends["refused"] += 1
    except BaseException:
        print("round", round, file=sys.stderr)
        raise
print(ends["clip"], ends["refused"])
"""


@pytest.mark.parametrize("n_rounds", [100, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", FUZZED)
def test_a_mutated_clip_is_a_clip_or_a_media_error(kind: str, n_rounds: int, tmp_path):
    (tmp_path / "clip").write_bytes(FUZZED[kind]())
    (line,) = run_child(FUZZ_CHILD, str(tmp_path / "clip"), "1", "40", str(n_rounds))
    used, refused = map(int, line.split())
    assert used + refused > 10
    assert refused > 0
