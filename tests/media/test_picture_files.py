"""What real files hold beside plain pixels: text, profiles, transparent colours, crops, more frames."""

import struct
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from media.board import lay_on_board
from media.config import K3_MEDIA_CONFIG
from media.navit import from_patches
from media.picture import decode, prepare_picture
from media.types import MediaError, Picture
from tests.media.clips import moving
from tests.media.files import (
    encode,
    insert_after_ihdr,
    noise,
    oriented,
    png_chunk,
    with_crop,
)

BOARD = K3_MEDIA_CONFIG.board


def seen(picture: Picture) -> NDArray[np.uint8]:
    """What the model sees of a small picture, without the padding: (height, width, 3)."""
    _, grid_h, grid_w = picture.item.grid
    return from_patches(picture.item.patches, grid_h, grid_w)[: picture.height, : picture.width]


def refused(data: bytes, **options: int) -> str:
    with pytest.raises(MediaError) as caught:
        prepare_picture(data, **options)
    return str(caught.value)


# PNG: chunks beside the picture

_MEBIBYTE = 1024 * 1024
STORED = {
    "text": png_chunk(b"tEXt", b"mxfile\0" + b"x" * 2 * _MEBIBYTE),
    "packed text": png_chunk(b"zTXt", b"mxfile\0\0" + zlib.compress(bytes(200 * _MEBIBYTE))),
    "packed international text": png_chunk(
        b"iTXt", b"mxfile\0\1\0en\0\0" + zlib.compress(b"x" * 2 * _MEBIBYTE)
    ),
    "profile": png_chunk(b"iCCP", b"icc\0\0" + zlib.compress(bytes(2 * _MEBIBYTE))),
    "damaged profile": png_chunk(b"iCCP", b"icc\0\0" + b"not deflated"),
    "wrong checksum": png_chunk(b"tEXt", b"a\0b")[:-1] + b"?",
    "packed orientation that swells": png_chunk(
        b"zTXt", b"XML:com.adobe.xmp\0\0" + zlib.compress(bytes(200 * _MEBIBYTE))
    ),
    "huge orientation": png_chunk(b"tEXt", b"Raw profile type exif\0" + b"x" * 2 * _MEBIBYTE),
    "unknown": png_chunk(b"prVt", bytes(100)),
}


@pytest.mark.parametrize("chunk", STORED.values(), ids=STORED.keys())
def test_what_tools_store_in_a_png_changes_nothing(chunk: bytes) -> None:
    plain = encode(noise("RGBA", 60, 40), "PNG")
    end = plain.index(b"IEND") - 4
    want = prepare_picture(plain).item.patches
    for data in (insert_after_ihdr(plain, chunk), plain[:end] + chunk + plain[end:]):
        assert np.array_equal(prepare_picture(data).item.patches, want)


def test_what_decides_how_a_png_is_seen_is_kept() -> None:
    image = noise("P", 60, 40)
    data = encode(image, "PNG", transparency=bytes(range(0, 250, 10)), exif=oriented(6))
    stored = insert_after_ihdr(data, STORED["profile"])
    assert prepare_picture(data).width == 40
    assert np.array_equal(prepare_picture(stored).item.patches, prepare_picture(data).item.patches)
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a tiff:Orientation="6"/></x:xmpmeta>'
    for chunk in (b"\0\0\0\0" + xmp, b"\1\0\0\0" + zlib.compress(xmp)):
        text = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0" + chunk)
        assert prepare_picture(insert_after_ihdr(encode(noise("RGB", 60, 40), "PNG"), text)).width == 40


# Transparent colours


def grey_png(levels: NDArray[np.uint8], depth: int, transparent: int) -> bytes:
    """A grey PNG of `depth` bits; levels: (height, width) of 0 to 2**depth - 1."""
    height, width = levels.shape
    bits = np.unpackbits(levels[..., None], axis=2)[..., 8 - depth :].reshape(height, -1)
    lines = b"".join(b"\0" + np.packbits(line).tobytes() for line in bits)
    chunks = [
        png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)),
        png_chunk(b"tRNS", struct.pack(">H", transparent)),
        png_chunk(b"IDAT", zlib.compress(lines)),
        png_chunk(b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("depth, transparent", [(d, t) for d in (1, 2, 4, 8) for t in (0, 1, 2**d - 1)])
def test_the_transparent_grey_of_a_png_of_any_depth_is_transparent(depth: int, transparent: int) -> None:
    levels = np.random.default_rng(depth).integers(0, 2**depth, (40, 60), np.uint8)
    grey = levels * (255 // (2**depth - 1))
    rgba = np.dstack([grey, grey, grey, np.where(levels == transparent, 0, 255).astype(np.uint8)])
    got = prepare_picture(grey_png(levels, depth, transparent))
    assert np.array_equal(seen(got), lay_on_board(rgba, BOARD))


def test_the_transparent_colour_of_a_deep_png_is_transparent() -> None:
    high = np.random.default_rng(1).integers(0, 4, (40, 60, 3), np.uint8) * 60
    deep = high.astype(">u2") * 257
    lines = b"".join(b"\0" + line.tobytes() for line in deep)
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60, 40, 16, 2, 0, 0, 0)),
            png_chunk(b"tRNS", struct.pack(">HHH", 60 * 257, 0, 120 * 257)),
            png_chunk(b"IDAT", zlib.compress(lines)),
            png_chunk(b"IEND", b""),
        ]
    )
    clear = (high == (60, 0, 120)).all(axis=2)
    assert clear.any()
    rgba = np.dstack([high, np.where(clear, 0, 255).astype(np.uint8)])
    assert np.array_equal(seen(prepare_picture(data)), lay_on_board(rgba, BOARD))


# Frames that are smaller than their canvas


def small_frame_gif(
    n_colours: int, box: tuple[int, int, int, int] = (10, 5, 40, 30)
) -> tuple[bytes, Image.Image]:
    """A GIF of 60x40 whose only frame fills `box`, and the frame."""
    width, height = box[2] - box[0], box[3] - box[1]
    frame = noise("P", width, height)
    frame = frame.point(lambda value: value % n_colours)
    data = bytearray(encode(frame, "GIF"))
    data[6:10] = struct.pack("<HH", 60, 40)
    at = data.index(b"\x2c" + struct.pack("<4H", 0, 0, width, height))
    data[at + 1 : at + 5] = struct.pack("<HH", *box[:2])
    return bytes(data), frame


@pytest.mark.parametrize("n_colours", [2, 200, 256])
def test_what_a_gifs_frame_leaves_of_the_canvas_is_transparent(n_colours: int) -> None:
    data, frame = small_frame_gif(n_colours)
    rgba = np.zeros((40, 60, 4), np.uint8)
    rgba[5:30, 10:40] = np.asarray(frame.convert("RGBA"))
    want = lay_on_board(rgba, BOARD)
    got = prepare_picture(data)
    assert (got.width, got.height) == (60, 40)
    assert np.array_equal(seen(got), want)


# Crops


@pytest.mark.parametrize(
    "kind, crop", list(product(["AVIF", "HEIF"], [(10, 6, 40, 26), (0, 0, 64, 2), (1, 3, 64, 64)]))
)
def test_the_crop_of_a_picture_is_honoured(kind: str, crop: tuple[int, int, int, int]) -> None:
    whole = encode(noise("RGB", 64, 64), kind, **({"chroma": 444} if kind == "HEIF" else {"quality": 90}))
    got = prepare_picture(with_crop(whole, crop))
    assert (got.width, got.height) == (crop[2] - crop[0], crop[3] - crop[1])
    want = np.asarray(decode(whole))[crop[1] : crop[3], crop[0] : crop[2]]
    assert np.array_equal(seen(got), want)


def test_a_crop_comes_before_the_turn() -> None:
    whole = encode(noise("RGB", 64, 64), "AVIF", quality=90, exif=oriented(6))
    got = prepare_picture(with_crop(whole, (10, 6, 40, 26)))
    assert (got.width, got.height) == (20, 30)
    want = np.rot90(np.asarray(decode(encode(noise("RGB", 64, 64), "AVIF", quality=90)))[6:26, 10:40], -1)
    assert np.array_equal(seen(got), want)


@pytest.mark.parametrize("crop", [(0, 0, 0, 10), (0, 0, 80, 80), (-5, 0, 20, 20)])
def test_a_crop_that_does_not_lie_in_the_picture_is_ignored(crop: tuple[int, int, int, int]) -> None:
    whole = encode(noise("RGB", 64, 64), "AVIF")
    assert prepare_picture(with_crop(whole, crop)).width == 64


# More than one frame


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "AVIF"])
def test_a_moving_picture_is_noted(kind: str) -> None:
    still, moves = moving(kind, 1), moving(kind, 3)
    assert prepare_picture(still).notes == ()
    (note,) = prepare_picture(moves).notes
    assert "only its first frame is seen; send it as a video_url" in note


def test_further_pages_are_noted() -> None:
    pages = [noise("RGB", 30, 20, seed) for seed in range(3)]
    assert prepare_picture(encode(pages[0], "TIFF")).notes == ()
    (note,) = prepare_picture(encode(pages[0], "TIFF", save_all=True, append_images=pages[1:])).notes
    assert "only the first page is seen" in note


# JPEG XL


def jxl_pictures() -> Iterator[tuple[str, bytes]]:
    pytest.importorskip("pillow_jxl")
    yield "RGB", encode(noise("RGB", 60, 40), "JXL", lossless=True)
    yield "RGBA", encode(noise("RGBA", 60, 40), "JXL", lossless=True)
    yield "L", encode(noise("L", 641, 483), "JXL", lossless=True)


def test_jpeg_xl_is_read(tmp_path: Path) -> None:
    for mode, data in jxl_pictures():
        size = (641, 483) if mode == "L" else (60, 40)
        want = prepare_picture(encode(noise(mode, *size), "PNG"))
        assert np.array_equal(prepare_picture(data).item.patches, want.item.patches)
    photo = encode(noise("RGB", 60, 40), "JPEG", exif=oriented(6))
    (tmp_path / "photo.jpg").write_bytes(photo)
    with Image.open(tmp_path / "photo.jpg") as image:
        image.save(tmp_path / "photo.jxl", lossless_jpeg=True)
    got = prepare_picture((tmp_path / "photo.jxl").read_bytes())
    assert got.width == 40 and np.array_equal(got.item.patches, prepare_picture(photo).item.patches)


def test_a_jpeg_xl_picture_of_too_many_pixels_is_refused_before_it_is_decoded() -> None:
    asked: list[int] = []
    for _, data in jxl_pictures():
        asked.clear()
        prepare_picture(data, admit=asked.append)
        (n_pixels,) = asked
        assert f"more than this server's limit of {n_pixels - 1:,}" in refused(data, pixel_limit=n_pixels - 1)


def test_jpeg_xl_without_its_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("media.picture.prepare.HAS_JXL", False)
    assert "JPEG XL picture, which this server cannot read without the extra `jxl`" in refused(b"\xff\x0a123")


# What is named


def raw_file(tags: dict[int, int]) -> bytes:
    """A TIFF picture with tags as cameras set them."""
    image = noise("RGB", 16, 12)
    return encode(image, "TIFF", tiffinfo={**tags})


def test_files_of_cameras_are_named() -> None:
    assert "a camera RAW file (DNG)" in refused(raw_file({50706: b"\1\4\0\0"}))  # type: ignore[dict-item]
    assert "a camera RAW file (NEF, ARW or the like)" in refused(raw_file({254: 1, 330: 8}))
    assert "a camera RAW file (CR3)" in refused(b"\0\0\0\x18ftypcrx \0\0\0\1crx isom")
    assert prepare_picture(raw_file({254: 0})).width == 16


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_too_many_pixels_of_avif_and_heic_are_named(kind: str) -> None:
    data = encode(noise("RGB", 64, 64), kind)
    words = "pixels, more than this server's limit"
    assert f"the picture has 64x64 {words}" in refused(data, pixel_limit=64 * 64 - 1)
    at = data.index(b"ispe") + 8
    claims = data[:at] + struct.pack(">II", 60_000, 60_000) + data[at + 8 :]
    assert f"the picture has 60000x60000 {words}" in refused(claims)


def test_a_video_as_a_picture_is_named_with_the_way_out() -> None:
    for data in (
        b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41",
        b"\x1a\x45\xdf\xa3rest",
        b"RIFF\0\0\0\0AVI LIST",
        (b"\x47\x40\x00\x10" + bytes(184)) * 3,
    ):
        assert "video_url" in refused(data)
    assert "an MPEG-4 audio file" in refused(b"\0\0\0\x18ftypM4A \0\0\0\1M4A isom")
    assert "compact form (brand mif3)" in refused(b"\0\0\0\x10ftypmif3avif")
