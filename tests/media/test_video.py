"""Clips in, chunks out: containers, codecs, orientation, alpha, identity (docs/format.md#clips)."""

import hashlib
import io
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from media.board import lay_on_board
from media.clip import chunk_identity, prepare_clip
from media.config import K3_MEDIA_CONFIG
from media.navit import target_size, to_patches
from media.types import Clip
from tests.media.clips import (
    clip,
    cover_art_clip,
    ffmpeg,
    needs_ffmpeg,
    numbered,
    numbered_clip,
    prepared_frames,
    prepared_numbers,
    read_number,
    repeated,
)
from tests.media.files import encode, oriented
from tests.shared_data import shared

SAMPLED_31_AT_30 = [0, 4, 9, 13, 17, 21, 26, 30]  # docs/format.md#clip-examples

CONTAINERS = {
    "mp4 h264": {},
    "mov h264": {"container": "mov"},
    "mkv h264": {"container": "matroska"},
    "fragmented mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}, "options": {"g": "7"}},
    "mp4 h265": {"codec": "libx265", "options": {"x265-params": "log-level=none"}},
    "mp4 mpeg4": {"codec": "mpeg4", "options": {"bf": "2"}},
    "mkv ffv1": {"container": "matroska", "codec": "ffv1"},
    "webm vp8": {"container": "webm", "codec": "libvpx"},
    "webm vp9": {"container": "webm", "codec": "libvpx-vp9"},
    "mp4 av1": {"codec": "libsvtav1"},
    "webm av1": {"container": "webm", "codec": "libsvtav1"},
    "webm vp8 with hidden frames": {
        "container": "webm",
        "codec": "libvpx",
        "options": {"auto-alt-ref": "1", "lag-in-frames": "16", "b": "90k"},
    },
    "webm live": {"container": "webm", "codec": "libvpx", "container_options": {"live": "1"}},
    "gif": {"container": "gif", "codec": "gif", "pixel_format": "rgb8"},
    "webp": {"moving": "WEBP"},
    "apng": {"moving": "PNG"},
    "avi mpeg4": {"container": "avi", "codec": "mpeg4", "options": {"bf": "2"}},
    "avi h264": {"container": "avi"},
    "avi mjpeg": {"container": "avi", "codec": "mjpeg", "pixel_format": "yuvj420p"},
    "mpeg ts h264": {"container": "mpegts", "audio": True},
    "mpeg ts h265": {
        "container": "mpegts",
        "codec": "libx265",
        "options": {"x265-params": "log-level=none"},
    },
    "mpeg ts mpeg2": {"container": "mpegts", "codec": "mpeg2video", "options": {"bf": "2"}},
    "mov prores 10 bit": {"container": "mov", "codec": "prores_ks", "pixel_format": "yuv422p10le"},
    "mov mjpeg full range": {"container": "mov", "codec": "mjpeg", "pixel_format": "yuvj420p"},
    "mov png": {"container": "mov", "codec": "png", "pixel_format": "rgb24"},
    "mp4 10 bit": {"pixel_format": "yuv420p10le"},
    "mp4 4:4:4": {"pixel_format": "yuv444p"},
    "mp4 many b-frames": {"options": {"bf": "8", "b-pyramid": "none"}},
    "mp4 b-pyramid, open gop": {"options": {"x264-params": "bframes=5:b-pyramid=normal:open-gop=1:keyint=9"}},
    "mp4 interlaced": {"options": {"flags": "+ildct+ilme", "x264-params": "tff=1"}},
    "mp4 intra refresh": {"options": {"x264-params": "intra-refresh=1:keyint=10"}},
    "sound first": {"audio": True},
}


@pytest.mark.parametrize("how", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_the_same_frames_are_sampled_from_every_container_and_codec(how: dict):
    prepared = prepare_clip(numbered_clip(31, **how))
    assert prepared_numbers(prepared) == SAMPLED_31_AT_30
    assert [chunk.timestamp for chunk in prepared.chunks] == ["00:00:00.000", "00:00:00.566"]
    assert [chunk.item.grid for chunk in prepared.chunks] == [(4, 6, 8), (4, 6, 8)]
    assert (prepared.width, prepared.height, prepared.n_frames) == (96, 64, 8)
    assert prepared.duration == pytest.approx(31 / 30, abs=0.001)
    assert not any("damaged" in note for note in prepared.notes)


def test_the_patches_of_a_chunk_come_frame_after_frame():
    # Lossless, in RGB: every value of the result is known.
    frames = [np.random.default_rng(i).integers(0, 256, (50, 70, 3), np.uint8) for i in range(6)]
    prepared = prepare_clip(clip(frames, container="mov", codec="png", pixel_format="rgb24", rate=8))
    size = target_size(70, 50, patch_limit=16384, side_limit=512)
    expected = np.concatenate([to_patches(frame, size) for frame in frames])
    assert [chunk.item.grid for chunk in prepared.chunks] == [(4, 4, 6), (2, 4, 6)]
    assert np.array_equal(np.concatenate([chunk.item.patches for chunk in prepared.chunks]), expected)


def test_frames_are_shrunk_by_pillows_bicubic_to_what_the_whole_clip_may_have():
    frames = [np.random.default_rng(i).integers(0, 256, (180, 320, 3), np.uint8) for i in range(8)]
    config = replace(K3_MEDIA_CONFIG, video_patch_limit=8 * 100)
    prepared = prepare_clip(clip(frames, container="mov", codec="png", pixel_format="rgb24", rate=8), config)
    size = target_size(320, 180, patch_limit=100, side_limit=512)
    assert size.width < 320
    for frame, seen in zip(frames, prepared_frames(prepared), strict=True):
        small = Image.fromarray(frame).resize((size.width, size.height), Image.Resampling.BICUBIC)
        assert np.array_equal(seen[: size.height, : size.width], np.asarray(small))
        assert not seen[size.height :].any() and not seen[:, size.width :].any()


def test_what_libav_may_skip_changes_nothing():
    """H.264 frames that nothing refers to are not decoded; those that are wanted must still be exact."""
    noise = np.random.default_rng(5).integers(0, 256, (40, 64, 96, 3), np.uint8)
    data = clip(noise, options={"x264-params": "bframes=3:b-pyramid=none:keyint=40:qp=18:no-scenecut=1"})
    every = prepare_clip(data, replace(K3_MEDIA_CONFIG, sample_fps=30.0))
    some = prepare_clip(data)
    positions = np.linspace(0, 39, some.n_frames).round().astype(int)
    all_frames = prepared_frames(every)
    assert len(all_frames) == 40
    for position, frame in zip(positions, prepared_frames(some), strict=True):
        assert np.array_equal(frame, all_frames[position])


def test_one_frame_is_one_chunk():
    prepared = prepare_clip(numbered_clip(1))
    assert [chunk.item.grid for chunk in prepared.chunks] == [(1, 6, 8)]
    assert [chunk.timestamp for chunk in prepared.chunks] == ["00:00:00.000"]
    assert prepared_numbers(prepared) == [0]


def test_odd_sizes_are_kept():
    prepared = prepare_clip(numbered_clip(31, width=97, height=65, pixel_format="yuv444p"))
    assert (prepared.width, prepared.height) == (97, 65)
    assert prepared_numbers(prepared) == SAMPLED_31_AT_30


def test_pixels_that_are_not_square_are_shown_as_a_player_shows_them():
    prepared = prepare_clip(numbered_clip(8, sample_aspect_ratio=Fraction(64, 45), rate=8))
    assert (prepared.width, prepared.height) == (137, 64)
    assert prepared_numbers(prepared) == list(range(8))


def test_a_clip_on_its_side_is_stretched_along_its_own_width():
    quarter = [0, FIXED, 0, -FIXED, 0, 0, 0, 0, 1 << 30]
    data = numbered_clip(8, rate=8, sample_aspect_ratio=Fraction(2), display_matrix=quarter)
    prepared = prepare_clip(data)
    assert (prepared.width, prepared.height) == (64, 192)


@needs_ffmpeg()
def test_a_size_that_changes_in_mid_clip_is_fitted_to_the_first(tmp_path):
    for name, scale in (("a", 1), ("b", 2)):
        part = numbered_clip(8, width=96 * scale, height=64 * scale, rate=8, container="webm", codec="libvpx")
        (tmp_path / f"{name}.webm").write_bytes(part)
    (tmp_path / "list").write_text("file a.webm\nfile b.webm\n")
    ffmpeg("-f", "concat", "-i", tmp_path / "list", "-c", "copy", tmp_path / "both.webm")
    prepared = prepare_clip((tmp_path / "both.webm").read_bytes())
    assert (prepared.width, prepared.height) == (96, 64)
    assert prepared_numbers(prepared) == [*range(8), *range(8)]


FIXED = 1 << 16
MATRICES = {
    "as it is": ((1, 0, 0, 1), None),
    "mirrored": ((-1, 0, 0, 1), Image.Transpose.FLIP_LEFT_RIGHT),
    "upside down mirrored": ((1, 0, 0, -1), Image.Transpose.FLIP_TOP_BOTTOM),
    "half a turn": ((-1, 0, 0, -1), Image.Transpose.ROTATE_180),
    "quarter turn clockwise": ((0, 1, -1, 0), Image.Transpose.ROTATE_270),
    "quarter turn back": ((0, -1, 1, 0), Image.Transpose.ROTATE_90),
    "main diagonal": ((0, 1, 1, 0), Image.Transpose.TRANSPOSE),
    "other diagonal": ((0, -1, -1, 0), Image.Transpose.TRANSVERSE),
}
NUMBER = 0b1101_0010_0001_1000  # different in every orientation


def turned_clip(a: int, b: int, c: int, d: int) -> bytes:
    matrix = [a * FIXED, b * FIXED, 0, c * FIXED, d * FIXED, 0, 0, 0, 1 << 30]
    return clip([numbered(NUMBER)] * 8, rate=8, display_matrix=matrix)


@pytest.mark.parametrize(("signs", "turn"), MATRICES.values(), ids=MATRICES.keys())
def test_a_display_matrix_sets_the_clip_upright(signs: tuple[int, int, int, int], turn):
    prepared = prepare_clip(turned_clip(*signs))
    upright = Image.fromarray(numbered(NUMBER))
    if turn is not None:
        upright = upright.transpose(turn)
    assert (prepared.width, prepared.height) == upright.size
    assert prepared_numbers(prepared) == [read_number(np.asarray(upright))] * 8


@needs_ffmpeg()
@pytest.mark.parametrize("signs", [signs for signs, _ in MATRICES.values()], ids=MATRICES.keys())
def test_ffmpeg_turns_the_same_way(signs: tuple[int, int, int, int], tmp_path):
    (tmp_path / "clip.mp4").write_bytes(turned_clip(*signs))
    ffmpeg("-i", tmp_path / "clip.mp4", "-frames:v", "1", tmp_path / "first.png")
    prepared = prepare_clip((tmp_path / "clip.mp4").read_bytes())
    with Image.open(tmp_path / "first.png") as image:
        first = np.asarray(image.convert("RGB"))
    assert read_number(first) == prepared_numbers(prepared)[0]


COLOURS = {
    "not said": [],
    "bt601": ["-colorspace", "smpte170m", "-color_range", "tv"],
    "bt709": ["-colorspace", "bt709", "-color_range", "tv"],
    "bt709 full range": ["-colorspace", "bt709", "-color_range", "pc"],
    "bt2020": ["-colorspace", "bt2020nc", "-color_range", "tv"],
}


@needs_ffmpeg()
@pytest.mark.parametrize("tags", COLOURS.values(), ids=COLOURS.keys())
def test_colours_are_those_that_ffmpeg_shows(tags: list[str], tmp_path):
    bars = ["-f", "lavfi", "-i", "smptebars=s=112x84:r=8:d=1"]
    path = tmp_path / "clip.mp4"
    ffmpeg(*bars, "-c:v", "libx264", "-qp", "0", "-pix_fmt", "yuv420p", *tags, path)
    ffmpeg("-i", path, "-frames:v", "1", "-pix_fmt", "rgb24", tmp_path / "first.png")
    with Image.open(tmp_path / "first.png") as image:
        expected = np.asarray(image).astype(int)
    seen = prepared_frames(prepare_clip(path.read_bytes()))[0]
    # Two releases of swscale may round differently; a wrong matrix or range is off by 10 and more.
    assert np.abs(seen - expected).max() <= 3


@needs_ffmpeg()
@pytest.mark.parametrize("matrix", [*range(18), 255])
def test_a_colour_matrix_that_is_not_known_is_no_reason_to_refuse(matrix: int, tmp_path):
    (tmp_path / "a.mp4").write_bytes(numbered_clip(8, rate=8))
    mark = f"h264_metadata=matrix_coefficients={matrix}"
    ffmpeg("-i", tmp_path / "a.mp4", "-c", "copy", "-bsf:v", mark, tmp_path / "b.mp4")
    prepared = prepare_clip((tmp_path / "b.mp4").read_bytes())
    assert prepared_numbers(prepared) == list(range(8))
    is_known = matrix in (0, 1, 2, 3, 4, 5, 6, 7, 9, 255)
    assert any("colours are approximate" in note for note in prepared.notes) is not is_known


ALPHA = {
    "mov qtrle": {"container": "mov", "codec": "qtrle", "pixel_format": "argb"},
    "mov png": {"container": "mov", "codec": "png", "pixel_format": "rgba"},
    "mov prores 4444": {"container": "mov", "codec": "prores_ks", "pixel_format": "yuva444p10le"},
    "webm vp9": {"container": "webm", "codec": "libvpx-vp9", "pixel_format": "yuva420p"},
    "webm vp8": {
        "container": "webm",
        "codec": "libvpx",
        "pixel_format": "yuva420p",
        "options": {"auto-alt-ref": "0", "b": "2M"},
    },
}


@pytest.mark.parametrize("how", ALPHA.values(), ids=ALPHA.keys())
def test_what_is_transparent_shows_the_chessboard(how: dict):
    rgba = np.full((84, 112, 4), (200, 100, 50, 128), np.uint8)
    prepared = prepare_clip(clip([rgba] * 8, rate=8, **how))
    expected = lay_on_board(rgba, K3_MEDIA_CONFIG.board).astype(int)
    assert {tuple(expected[0, 0]), tuple(expected[0, 8])} == {(227, 177, 152), (190, 139, 114)}
    for frame in prepared_frames(prepared):
        assert np.abs(frame - expected).max() <= 6


def test_a_gif_with_holes_shows_the_chessboard(tmp_path):
    still = Image.new("RGBA", (56, 56), (0, 0, 0, 0))
    still.paste((255, 0, 0, 255), (0, 0, 28, 56))
    other = still.transpose(Image.Transpose.ROTATE_180)
    still.save(tmp_path / "a.gif", save_all=True, append_images=[other], duration=[300, 300], disposal=2)
    first, second = prepared_frames(prepare_clip((tmp_path / "a.gif").read_bytes()))
    assert (first[:, :28] == (255, 0, 0)).all() and (second[:, 28:] == (255, 0, 0)).all()
    board = lay_on_board(np.zeros((56, 56, 4), np.uint8), K3_MEDIA_CONFIG.board)
    assert np.array_equal(first[:, 28:], board[:, 28:]) and np.array_equal(second[:, :28], board[:, :28])


def photos_clip(orientation: int, container: str = "mov") -> bytes:
    """Motion JPEG whose frames are photos with EXIF, copied into the container as they are."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream("mjpeg", rate=8)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuvj420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, 8)
        for i in range(8):
            photo = encode(Image.fromarray(numbered(i)), "JPEG", exif=oriented(orientation), quality=95)
            packet = av.Packet(photo)
            packet.pts = packet.dts = i
            packet.duration, packet.time_base, packet.is_keyframe = 1, Fraction(1, 8), True
            packet.stream = stream
            output.mux(packet)
    return file.getvalue()


def test_side_data_of_kinds_that_are_not_known_is_skipped():
    """Photos' EXIF, which also turns the picture; and the view of a stereo clip."""
    prepared = prepare_clip(photos_clip(1))
    assert prepared_numbers(prepared) == list(range(8))
    turned = prepare_clip(photos_clip(6))
    assert (turned.width, turned.height) == (64, 96)
    upright = Image.fromarray(numbered(5)).transpose(Image.Transpose.ROTATE_270)
    assert read_number(prepared_frames(turned)[5][:96, :64]) == read_number(np.asarray(upright))


def test_a_stereo_clip_of_a_headset_is_read():
    prepared = prepare_clip(shared("cases/media/mvhevc_spatial.mov").read_bytes())
    assert prepared.n_frames and not any("damaged" in note for note in prepared.notes)


def test_cover_art_is_not_the_video():
    prepared = prepare_clip(cover_art_clip(31, np.full((64, 64, 3), 200, np.uint8)))
    assert prepared_numbers(prepared) == SAMPLED_31_AT_30


def test_an_ignored_sound_track_is_noted():
    assert prepare_clip(numbered_clip(2, audio=True)).notes == (
        "1 audio track was ignored: K3 sees video only",
    )
    assert prepare_clip(numbered_clip(2)).notes == ()


def test_identity_is_of_the_content_the_settings_and_the_chunk():
    data = numbered_clip(31)
    digest = hashlib.sha256(data).hexdigest()
    other_settings = replace(K3_MEDIA_CONFIG, sample_fps=4.0)

    def identities(prepared: Clip) -> list[str]:
        return [chunk.item.identity for chunk in prepared.chunks]

    expected = [chunk_identity(digest, K3_MEDIA_CONFIG, i) for i in range(2)]
    assert identities(prepare_clip(data)) == expected == identities(prepare_clip(bytes(bytearray(data))))
    seen = [
        *expected,
        *identities(prepare_clip(data, other_settings)),
        *identities(prepare_clip(numbered_clip(30))),
        chunk_identity(digest, K3_MEDIA_CONFIG, 0, salt="tenant"),
    ]
    assert len(set(seen)) == len(seen)
    assert all(len(identity) == 64 and set(identity) <= set("0123456789abcdef") for identity in seen)


def test_progress_is_told_after_each_sampled_frame():
    told: list[tuple[int, int]] = []
    prepare_clip(numbered_clip(31), on_progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 8) for i in range(1, 9)]


def test_frames_of_a_clip_made_of_repeats_are_all_told_apart():
    prepared = prepare_clip(repeated(numbered_clip(15), 4))
    positions = np.linspace(0, 59, 16).round().astype(int)
    assert prepared_numbers(prepared) == [int(position) % 15 for position in positions]


def test_two_clips_at_once_do_not_mix():
    clips = [numbered_clip(n) for n in (31, 30, 17, 31)]
    alone = [prepared_numbers(prepare_clip(data)) for data in clips]
    with ThreadPoolExecutor(4) as pool:
        together = [prepared_numbers(prepared) for prepared in pool.map(prepare_clip, clips)]
    assert together == alone
    assert all(a < b for numbers in alone for a, b in itertools.pairwise(numbers))
