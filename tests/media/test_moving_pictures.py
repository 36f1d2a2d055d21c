"""GIF, WebP, PNG and AVIF pictures that move, as clips."""

import io
import struct

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from media.board import lay_on_board
from media.clip import prepare_clip
from media.config import K3_MEDIA_CONFIG
from media.limits import ClipLimits
from media.preview import is_clip
from media.types import MediaError
from tests.media.clips import moving, numbered, prepared_frames, prepared_numbers
from tests.media.files import insert_after_ihdr, png_chunk

BOARD = K3_MEDIA_CONFIG.board
KINDS = ["GIF", "WEBP", "PNG"]


def saved(frames: list[Image.Image], kind: str, durations: list[int], **options: object) -> bytes:
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:], duration=durations, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_each_frame_is_shown_for_its_own_time(kind: str) -> None:
    durations = [200, 400, 1000, 200, 200, 600]
    frames = [Image.fromarray(numbered(i)) for i in range(6)]
    prepared = prepare_clip(saved(frames, kind, durations))
    assert prepared_numbers(prepared) == list(range(6))
    assert prepared.frame_times == pytest.approx([0, 0.2, 0.6, 1.6, 1.8, 2.0])
    assert prepared.duration == pytest.approx(2.6)
    assert prepared.notes == ()


@pytest.mark.parametrize("kind", KINDS)
def test_times_that_browsers_do_not_believe_are_a_tenth_of_a_second(kind: str) -> None:
    frames = [Image.fromarray(numbered(i)) for i in range(10)]
    assert prepare_clip(saved(frames, kind, [10 if kind != "GIF" else 0] * 10)).duration == pytest.approx(1)
    assert prepare_clip(saved(frames, kind, [20] * 10)).duration == pytest.approx(0.2)


def holes() -> tuple[list[Image.Image], list[NDArray[np.uint8]]]:
    """Two frames that are each half transparent, in colours that every format keeps, and what is seen."""
    left = Image.new("RGBA", (56, 56), (0, 0, 0, 0))
    left.paste((255, 0, 0, 255), (0, 0, 28, 56))
    right = left.transpose(Image.Transpose.ROTATE_180)
    return [left, right], [lay_on_board(np.asarray(frame), BOARD) for frame in (left, right)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_transparent_shows_the_chessboard(kind: str) -> None:
    frames, want = holes()
    how = {"GIF": {"disposal": 2}, "WEBP": {"lossless": True}, "PNG": {"blend": 0}}[kind]
    shown = prepared_frames(prepare_clip(saved(frames, kind, [300, 300], **how)))
    assert all(np.array_equal(a, b) for a, b in zip(shown, want, strict=True))


def gif(*frames: tuple[tuple[int, int, int, int], int, int]) -> bytes:
    """A GIF of 56x56 without any transparent colour. Frames: (box, palette index that fills it, disposal).

    Its background colour is green, its palette red, green, blue and white.
    """
    palette = bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255])
    parts = [b"GIF89a", struct.pack("<2H3B", 56, 56, 0x81, 1, 0), palette]
    for (left, top, right, bottom), colour, disposal in frames:
        still = Image.new("P", (right - left, bottom - top), colour)
        still.putpalette(palette)
        file = io.BytesIO()
        still.save(file, "GIF", optimize=False)
        encoded = file.getvalue()
        at = encoded.rindex(b"\x2c" + struct.pack("<4H", 0, 0, *still.size)) + 9
        flags = encoded[at]
        own = 3 << (flags & 7) + 1 if flags & 0x80 else 0
        table = encoded[at + 1 : at + 1 + own] or encoded[13 : 13 + (3 << (encoded[10] & 7) + 1)]
        size = (len(table) // 3).bit_length() - 2
        parts += [
            b"\x21\xf9\x04" + struct.pack("<BHBB", disposal << 2, 30, 0, 0),
            b"\x2c" + struct.pack("<4H", left, top, right - left, bottom - top),
            bytes([0x80 | size]) + table + encoded[at + 1 + own : -1],
        ]
    return b"".join([*parts, b";"])


def canvas(*boxes: tuple[tuple[int, int, int, int], tuple[int, int, int]]) -> NDArray[np.uint8]:
    rgba = np.zeros((56, 56, 4), np.uint8)
    for (left, top, right, bottom), colour in boxes:
        rgba[top:bottom, left:right] = (*colour, 255)
    return lay_on_board(rgba, BOARD)


RED, BLUE = (255, 0, 0), (0, 0, 255)
SMALL, OTHER, ALL = (10, 5, 30, 25), (20, 15, 50, 40), (0, 0, 56, 56)


def test_what_no_frame_of_a_gif_has_drawn_on_is_transparent() -> None:
    data = gif((SMALL, 0, 1), (OTHER, 2, 1))
    shown = prepared_frames(prepare_clip(data))
    assert np.array_equal(shown[0], canvas((SMALL, RED)))
    assert np.array_equal(shown[1], canvas((SMALL, RED), (OTHER, BLUE)))


def test_the_disposals_of_a_gif() -> None:
    """Cleared is transparent, whatever background colour the file names; restored is as it was before."""
    cleared = prepared_frames(prepare_clip(gif((ALL, 0, 1), (SMALL, 2, 2), (OTHER, 2, 1))))
    left = canvas((ALL, RED))
    left[SMALL[1] : SMALL[3], SMALL[0] : SMALL[2]] = canvas()[SMALL[1] : SMALL[3], SMALL[0] : SMALL[2]]
    left[OTHER[1] : OTHER[3], OTHER[0] : OTHER[2]] = BLUE
    assert np.array_equal(cleared[2], left)
    restored = prepared_frames(prepare_clip(gif((ALL, 0, 1), (SMALL, 2, 3), (OTHER, 2, 1))))
    assert np.array_equal(restored[1], canvas((ALL, RED), (SMALL, BLUE)))
    assert np.array_equal(restored[2], canvas((ALL, RED), (OTHER, BLUE)))


def test_a_frame_beyond_the_canvas_is_cut() -> None:
    data = gif(((40, 40, 70, 70), 0, 1), (ALL, 2, 1))
    shown = prepared_frames(prepare_clip(data))
    assert np.array_equal(shown[0], canvas(((40, 40, 56, 56), RED)))


def test_the_still_picture_of_an_animated_png_is_not_a_frame() -> None:
    frames = [Image.fromarray(numbered(i)) for i in (9, 0, 1, 2)]
    data = saved(frames, "PNG", [250] * 4, default_image=True)
    assert prepared_numbers(prepare_clip(data)) == [0, 1, 2]


def test_what_tools_store_in_an_animated_png_changes_nothing() -> None:
    text = png_chunk(b"tEXt", b"mxfile\0" + b"x" * 2 * 1024 * 1024)
    assert prepared_numbers(prepare_clip(insert_after_ihdr(moving("PNG", 4, rate=4), text))) == [0, 1, 2, 3]


def test_an_avif_sequence_is_a_clip() -> None:
    data = moving("AVIF", 8, rate=8)
    assert is_clip(data)
    assert prepared_numbers(prepare_clip(data)) == list(range(8))


@pytest.mark.parametrize("kind", [*KINDS, "AVIF"])
def test_only_what_moves_is_seen_as_a_clip(kind: str) -> None:
    assert is_clip(moving(kind, 2)) and not is_clip(moving(kind, 1))


@pytest.mark.parametrize("kind", ["WEBP", "PNG"])
def test_a_still_picture_as_a_clip_is_named_with_the_way_out(kind: str) -> None:
    with pytest.raises(MediaError, match=f"received a {kind} picture, which is not a clip.*image_url"):
        prepare_clip(moving(kind, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_was_cut_off_is_shown_as_far_as_it_goes(kind: str) -> None:
    whole = moving(kind, 40, rate=8)
    half = whole[: len(whole) // 2]
    try:
        prepared = prepare_clip(half)
    except MediaError as error:
        assert "damaged" in str(error)
    else:
        numbers = prepared_numbers(prepared)
        assert 5 < len(numbers) < 35 and numbers == sorted(numbers)


@pytest.mark.parametrize("kind", KINDS)
def test_limits_hold(kind: str) -> None:
    data = moving(kind, 8, rate=8)
    for limits, words in (
        (ClipLimits(n_frames=7), "more than 7 frames"),
        (ClipLimits(duration=0.9), "lasts 1.0 s"),
        (ClipLimits(frame_pixels=96 * 64 - 1), "96x64 pixels"),
        (ClipLimits(total_pixels=8 * 96 * 64 - 1), "8 frames of 96x64"),
    ):
        with pytest.raises(MediaError, match=words):
            prepare_clip(data, limits=limits)
    assert prepare_clip(data, limits=ClipLimits(1.0, len(data), 8, 96 * 64, 8 * 96 * 64)).n_frames == 8
