import io
import re
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps

from media.config import K3_MEDIA_CONFIG, MediaConfig
from media.navit import from_patches
from media.picture import picture_identity, prepare_picture, set_pillow_limit
from media.types import MediaError
from tests.media import files, reference_picture
from tests.media.files import encode, noise

# Pillow warns about damage that it can live with, and about sizes that this module checks itself.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")


def seen(data: bytes, **options: Any) -> NDArray[np.uint8]:
    """What the model sees, padding included: (H, W, 3)."""
    picture = prepare_picture(data, **options)
    _, grid_h, grid_w = picture.item.grid
    return from_patches(picture.item.patches, grid_h, grid_w)


def assert_as_reference(data: bytes) -> None:
    picture = prepare_picture(data)
    patches, grid = reference_picture.patches(data)
    assert picture.item.grid == (1, *grid)
    assert np.array_equal(picture.item.patches, patches)


# The reference's values


@pytest.mark.parametrize("size", [(1, 1), (29, 28), (123, 45), (7200, 9), (11, 7300)])
@pytest.mark.parametrize(
    "mode, kind, options",
    [
        ("RGB", "PNG", {}),
        ("RGB", "JPEG", {}),
        ("RGB", "BMP", {}),
        ("RGB", "WEBP", {"lossless": True}),
        ("RGB", "TIFF", {}),
        ("RGB", "PPM", {}),
        ("RGB", "PNG", {"transparency": (10, 20, 30)}),
        ("RGBA", "PNG", {}),
        ("RGBA", "WEBP", {"lossless": True, "exact": True}),
        ("RGBA", "TIFF", {}),
        ("L", "PNG", {}),
        ("L", "JPEG", {}),
        ("L", "PNG", {"transparency": 7}),
        ("LA", "PNG", {}),
        ("LA", "TIFF", {}),
        ("P", "PNG", {}),
        ("P", "PNG", {"transparency": 5}),
        ("P", "PNG", {"transparency": bytes(range(256))}),
        ("P", "GIF", {}),
        ("P", "GIF", {"transparency": 9}),
        ("1", "PNG", {}),
        ("1", "PNG", {"transparency": 0}),
        ("CMYK", "JPEG", {}),
        ("CMYK", "TIFF", {}),
        ("YCbCr", "TIFF", {}),
        ("LAB", "TIFF", {}),
    ],
)
def test_every_mode_gives_exactly_the_reference_values(
    mode: str, kind: str, options: dict[str, Any], size: tuple[int, int]
) -> None:
    assert_as_reference(encode(noise(mode, *size), kind, **options))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "L"])
def test_a_large_picture_is_resized_as_by_the_reference(mode: str) -> None:
    assert_as_reference(encode(noise(mode, 4200, 3900), "BMP" if mode in ("RGB", "L") else "TIFF"))


def test_half_transparent_colour_has_the_published_values() -> None:
    flat = seen(encode(Image.new("RGBA", (20, 20), (200, 100, 50, 128)), "PNG"))
    assert tuple(flat[0, 0]) == (227, 177, 152)
    assert tuple(flat[0, 8]) == (190, 139, 114)


def test_a_fully_transparent_picture_is_the_chessboard_and_padding_is_black() -> None:
    board = seen(encode(Image.new("RGBA", (20, 20), (9, 9, 9, 0)), "PNG"))
    assert [int(board[y, x, 0]) for x, y in ((0, 0), (7, 7), (8, 0), (0, 8), (8, 8), (16, 8))] == [
        255, 255, 180, 180, 255, 180,
    ]  # fmt: skip
    assert not board[20:].any() and not board[:, 20:].any()


def test_the_board_is_laid_after_the_resize() -> None:
    board = seen(encode(Image.new("RGBA", (14_336, 20), (9, 9, 9, 0)), "PNG"))[:10, :7168, 0]
    want = [[reference_picture.board_at(x, y) for x in range(7168)] for y in range(10)]
    assert np.array_equal(board, want)


def test_the_board_is_laid_before_the_resize_where_the_checkpoint_says_so() -> None:
    config = MediaConfig(fill_stage="before_resize")
    data = encode(noise("RGBA", 7400, 30), "PNG")
    flat = Image.fromarray(reference_picture.on_board(Image.open(io.BytesIO(data))))
    assert np.array_equal(
        prepare_picture(data, config).item.patches, prepare_picture(encode(flat, "PNG")).item.patches
    )


def test_the_prompt_gets_the_original_size() -> None:
    picture = prepare_picture(encode(Image.new("L", (8000, 50)), "PNG"))
    assert (picture.width, picture.height) == (8000, 50)
    assert picture.item.n_tokens == 512


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
def test_exif_orientation_is_applied_once_before_measuring(kind: str, orientation: int) -> None:
    corner = Image.new("RGB", (64, 48), (0, 0, 0))
    corner.paste((255, 255, 255), (0, 0, 32, 24))
    data = encode(corner, kind, exif=files.oriented(orientation), quality=100)
    picture = prepare_picture(data)
    assert (picture.width, picture.height) == ((64, 48) if orientation < 5 else (48, 64))
    upright = corner.copy()
    upright.getexif()[0x0112] = orientation
    want = np.asarray(ImageOps.exif_transpose(upright), np.int16)
    got = seen(data)[: picture.height, : picture.width].astype(np.int16)
    assert np.abs(got - want).mean() < 4  # lossy encoders blur the corner's edge


def test_a_tiff_with_the_orientation_in_xmp_too_is_turned_once() -> None:
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    data = encode(noise("RGB", 40, 30), "TIFF", tiffinfo={0x0112: 6, 700: xmp})
    picture = prepare_picture(data)
    assert (picture.width, picture.height) == (30, 40)
    want = noise("RGB", 40, 30).transpose(Image.Transpose.ROTATE_270)
    assert np.array_equal(seen(data)[:40, :30], np.asarray(want))


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation: int) -> None:
    picture = prepare_picture(encode(noise("RGB", 40, 30), "JPEG", exif=files.oriented(orientation)))
    assert (picture.width, picture.height) == (40, 30)


@pytest.mark.parametrize(
    "exif",
    [b"Exif\0\0", b"Exif\0\0garbage", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"],
)
def test_broken_exif_does_not_spoil_a_picture(exif: bytes) -> None:
    data = encode(noise("RGB", 40, 30), "JPEG")
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]
    assert np.array_equal(
        prepare_picture(data).item.patches,
        prepare_picture(encode(noise("RGB", 40, 30), "JPEG")).item.patches,
    )


def test_exif_is_no_part_of_what_the_model_sees_but_of_the_identity() -> None:
    plain = prepare_picture(encode(noise("RGB", 40, 30), "PNG"))
    tagged = prepare_picture(encode(noise("RGB", 40, 30), "PNG", exif=files.oriented(1)))
    assert np.array_equal(plain.item.patches, tagged.item.patches)
    assert plain.item.identity != tagged.item.identity


# Deep grey


def ramp(dtype: type) -> NDArray[Any]:
    return np.linspace(0, 65_535, 64 * 32).reshape(32, 64).astype(dtype)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_16_bit_grey_keeps_its_high_byte_instead_of_being_clipped(kind: str) -> None:
    got = seen(encode(Image.fromarray(ramp(np.uint16)), kind))[:32, :64]
    assert np.array_equal(got, np.repeat((ramp(np.uint16) >> 8)[:, :, None], 3, 2))


def test_16_bit_grey_equals_the_same_picture_stored_as_16_bit_colour() -> None:
    grey = ramp(np.uint16)
    rows = b"".join(b"\0" + np.repeat(row, 3).astype(">u2").tobytes() for row in grey)
    header = struct.pack(">IIBBBBB", 64, 32, 16, 2, 0, 0, 0)
    colour = b"\x89PNG\r\n\x1a\n" + files.png_chunk(b"IHDR", header)
    colour += files.png_chunk(b"IDAT", zlib.compress(rows)) + files.png_chunk(b"IEND", b"")
    assert np.array_equal(seen(colour), seen(encode(Image.fromarray(grey), "PNG")))


def test_the_transparent_value_of_16_bit_grey_is_compared_at_16_bits() -> None:
    grey = np.full((20, 20), 0x8001, np.uint16)
    grey[:, :4] = 0x8000
    got = seen(encode(Image.fromarray(grey), "PNG", transparency=0x8000))
    assert tuple(got[0, 0]) == (255, 255, 255)
    assert tuple(got[0, 5]) == (0x80, 0x80, 0x80)


@pytest.mark.parametrize(
    "values, want",
    [
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 127, 255]),
        (np.array([[0.0, 100.0, 255.0]], np.float32), [0, 100, 255]),
        (np.array([[0.0, 256.0, 65_535.0]], np.float32), [0, 1, 255]),
        (np.array([[0.0, 5e5, 1e6]], np.float32), [0, 127, 255]),
        (np.array([[np.nan, -3.0, np.inf, 1.0]], np.float32), [0, 0, 0, 255]),
        (np.array([[-5, 7, 255]], np.int32), [0, 7, 255]),
        (np.array([[0, 512, 65_535]], np.int32), [0, 2, 255]),
        (np.array([[0, 2**30, 2**31 - 1]], np.int32), [0, 127, 255]),
    ],
)
def test_wide_grey_is_brought_to_8_bits_by_the_range_that_holds_it(
    values: NDArray[Any], want: list[int]
) -> None:
    got = seen(encode(Image.fromarray(values), "TIFF"))
    assert got[0, : len(want), 0].tolist() == want


# Colour


def without_adobe_marker(jpeg: bytes) -> bytes:
    at = jpeg.index(b"\xff\xee")
    (length,) = struct.unpack(">H", jpeg[at + 2 : at + 4])
    assert jpeg[at + 4 : at + 9] == b"Adobe"
    return jpeg[:at] + jpeg[at + 2 + length :]


def test_cmyk_jpeg_is_red_with_and_without_the_adobe_marker() -> None:
    red = encode(Image.new("CMYK", (40, 30), (0, 255, 255, 0)), "JPEG", quality=100)
    for data in (red, without_adobe_marker(red)):
        r, g, b = seen(data)[10, 10].tolist()
        assert r > 250 and g < 5 and b < 5


def test_colour_profiles_are_ignored_as_by_the_reference() -> None:
    plain = encode(noise("RGB", 60, 40), "PNG")
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for profile in (srgb, lab, b"not a profile"):
        assert np.array_equal(seen(files.with_icc(profile)), seen(plain))


def test_a_palette_with_alpha_is_not_resized_by_its_indices() -> None:
    image = Image.merge("PA", (noise("P", 7400, 30).copy(), Image.new("L", (7400, 30), 255)))
    data = encode(image, "TIFF")
    opened = Image.open(io.BytesIO(data))
    assert opened.mode == "PA"
    assert np.array_equal(seen(data), seen(encode(opened.convert("RGBA"), "PNG")))


# Several pictures in one file


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_of_several_frames_or_pages_the_first_is_seen(kind: str) -> None:
    first, second = Image.new("RGB", (30, 30), (250, 10, 10)), Image.new("RGB", (30, 30), (10, 10, 250))
    data = encode(first, kind, save_all=True, append_images=[second])
    r, _, b = seen(data)[15, 15].tolist()
    assert r > 200 and b < 60


# detail


def test_low_detail_bounds_the_patches_and_high_is_auto() -> None:
    data = encode(noise("RGB", 1920, 1080), "BMP")
    low, high, auto = (prepare_picture(data, detail=d) for d in ("low", "high", "auto"))
    assert low.item.n_tokens == 264 and auto.item.n_tokens == 2691
    assert (low.width, low.height) == (1920, 1080)
    assert high.item.identity == auto.item.identity != low.item.identity
    patches, _ = reference_picture.patches(data, patch_limit=1024)
    assert np.array_equal(low.item.patches, patches)


def test_an_unknown_detail_is_an_error() -> None:
    with pytest.raises(MediaError, match="detail must be 'auto', 'low' or 'high', not 'xyz'"):
        prepare_picture(encode(noise("RGB", 4, 4), "PNG"), detail="xyz")


# What cannot be used


def refused(data: bytes, **options: Any) -> str:
    with pytest.raises(MediaError) as caught:
        prepare_picture(data, **options)
    message = str(caught.value)
    assert not re.search(r"\b0x|BytesIO|/", message)
    return message


@pytest.mark.parametrize("name", files.SAMPLES)
def test_every_accepted_format_is_read(name: str) -> None:
    picture = prepare_picture(files.SAMPLES[name]())
    assert picture.item.patches.any()


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "an empty file"),
        (b"<html><body>403 Forbidden", "an HTML page"),
        (b"<!-- c --><!DOCTYPE html><p>", "an HTML page"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04rest", "a ZIP archive"),
        (b'{"error": "gone"}', "JSON text"),
        (b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41", "an MP4 or QuickTime video"),
        (b"\x1a\x45\xdf\xa3rest", "a Matroska or WebM video"),
        (b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk", "encoded twice"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\x00\x01\x02\x03" * 50, "200 bytes of no known format"),
    ],
)
def test_what_is_no_picture_is_named(data: bytes, words: str) -> None:
    message = refused(data)
    assert words in message and "Accepted: PNG, JPEG" in message


@pytest.mark.parametrize("name", files.SAMPLES)
@pytest.mark.parametrize("part", [0.2, 0.45])  # less than the first of two frames
def test_a_truncated_file_is_an_error_and_not_filled_up(name: str, part: float) -> None:
    data = files.SAMPLES[name]()
    assert "received" in refused(data[: int(len(data) * part)])


def test_a_jpeg_that_lacks_its_last_lines_is_an_error() -> None:
    for progressive in (False, True):
        data = encode(noise("RGB", 400, 300), "JPEG", progressive=progressive)
        assert "JPEG" in refused(data[:-400])


def test_a_png_with_a_wrong_checksum_is_an_error() -> None:
    data = bytearray(encode(noise("RGB", 40, 30), "PNG"))
    data[data.index(b"IDAT") + 200] ^= 1
    assert "checksum" in refused(bytes(data))
    data = bytearray(encode(noise("RGB", 40, 30), "PNG"))
    data[20] ^= 1
    assert "received a PNG picture that cannot be decoded" in refused(bytes(data))


def test_heic_without_its_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("media.picture.prepare.HAS_HEIF", False)
    with pytest.raises(MediaError, match=r"extra `heic`"):
        prepare_picture(files.SAMPLES["HEIC"]())


# Bombs


def test_a_picture_over_the_pixel_limit_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # undone afterwards
    set_pillow_limit()

    def admit(n_pixels: int) -> None:
        raise AssertionError("decoded")

    for size in ((16_385, 16_384), (20_000, 20_000), (1, 300_000_000)):
        assert "more than this server's limit of 268,435,456" in refused(
            files.png_header_only(*size), admit=admit
        )
    assert "limit of 100;" in refused(encode(noise("RGB", 11, 10), "GIF"), pixel_limit=100)


def test_an_icon_that_is_larger_inside_than_outside_is_refused() -> None:
    inside = encode(Image.new("L", (300, 300)), "PNG")
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inside), 22) + inside
    assert prepare_picture(icon).width == 300
    assert "300x300 pixels" in refused(icon, pixel_limit=1000)


def test_pillows_own_limit_holds_in_processes_that_did_not_raise_it() -> None:
    assert "too many pixels" in refused(files.png_header_only(16_000, 16_000))


def test_the_caller_is_asked_before_memory_is_taken() -> None:
    asked: list[int] = []
    prepare_picture(encode(noise("RGB", 40, 30), "PNG"), admit=asked.append)
    assert asked == [1200]


def test_metadata_bombs_are_refused_or_ignored() -> None:
    png = encode(noise("RGB", 40, 30), "PNG")
    plain = prepare_picture(png).item.patches
    bomb = zlib.compress(b"a" * 200_000_000, 9)
    for chunk in (
        files.png_chunk(b"zTXt", b"Comment\0\0" + bomb),
        files.png_chunk(b"iCCP", b"icc\0\0" + bomb),
        files.png_chunk(b"iTXt", b"Comment\0\1\0\0\0" + bomb),
    ):
        try:
            picture = prepare_picture(files.insert_after_ihdr(png, chunk))
        except MediaError:
            continue
        assert np.array_equal(picture.item.patches, plain)


def test_a_tiff_with_absurd_tags_is_an_error() -> None:
    header = b"II*\0\x08\0\0\0"
    entries = [(256, 4, 1, 2**31), (257, 4, 1, 2**31), (258, 3, 2**30, 8), (273, 4, 2**30, 8)]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *e) for e in entries)
    assert "received a TIFF picture" in refused(header + directory + b"\0\0\0\0")


def test_the_identity_depends_on_content_settings_and_detail_only() -> None:
    data = encode(noise("RGB", 40, 30), "PNG")
    identity = prepare_picture(data).item.identity
    other_settings = MediaConfig(patch_limit=1000)
    assert prepare_picture(bytes(data)).item.identity == identity
    assert prepare_picture(data + b"\0").item.identity != identity
    assert prepare_picture(data, other_settings).item.identity != identity
    assert picture_identity("00", K3_MEDIA_CONFIG, "auto", "a") != picture_identity(
        "00", K3_MEDIA_CONFIG, "auto", "b"
    )


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"subsampling": 2}, {"restart_marker_blocks": 4}], ids=str)
def test_a_jpeg_that_was_cut_and_given_an_end_is_an_error(mode: str, options: dict[str, int]) -> None:
    whole = encode(noise(mode, 200, 150), "JPEG", **options)
    for share in (0.3, 0.6, 0.95):
        with pytest.raises(MediaError, match="cut off"):
            prepare_picture(whole[: int(len(whole) * share)] + b"\xff\xd9")


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 4}], ids=str)
@pytest.mark.parametrize("mode, grey", [("L", 128), ("RGB", (128,) * 3), ("CMYK", (127,) * 4)])
def test_a_jpeg_that_is_grey_is_no_error(
    mode: str, grey: int | tuple[int, ...], options: dict[str, int]
) -> None:
    for width in range(100, 117):
        assert prepare_picture(encode(Image.new(mode, (width, 90), grey), "JPEG", **options)).width == width


def test_a_jpeg_of_endless_scans_is_refused_unread() -> None:
    data = encode(noise("L", 64, 64), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    with pytest.raises(MediaError, match="scans; real ones"):
        prepare_picture(data[:-2] + scan * 50_000 + data[-2:])


def test_what_follows_a_jpeg_does_not_count() -> None:
    """Phones put a short film behind the photo; there any two bytes occur."""
    data = encode(noise("RGB", 64, 64), "JPEG") + b"\xff\xda\xff\xd9" * 1_000
    assert prepare_picture(data).width == 64
    cut = encode(noise("RGB", 200, 150), "JPEG")[:9_000] + b"\xff\xd9" + b"\xff\xda\xff\xd9" * 1_000
    with pytest.raises(MediaError, match="cut off"):
        prepare_picture(cut)
