"""A picture file in, what the vision tower reads out. Synchronous; `store` is for servers.

See docs/format.md#pictures.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageChops

from media.config import K3_MEDIA_CONFIG, MediaConfig
from media.formats import ACCEPTED_PICTURES, describe, is_clip_format, is_moving_picture, picture_format
from media.gif import gif_frames
from media.limits import DEFAULT_PIXEL_LIMIT
from media.navit import target_size, to_patches
from media.picture.heif import HeifFacts, heif_facts
from media.picture.jpeg import scan_jpeg
from media.picture.jxl import jxl_size
from media.png import cleaned, transparent_grey
from media.render import render
from media.types import MediaError, MediaItem, Picture
from media.webp import with_alpha_flag

try:
    import pillow_heif
except ImportError:  # the extra `heic` is not installed
    HAS_HEIF = False
else:
    pillow_heif.register_heif_opener(thumbnails=False)
    HAS_HEIF = True
try:
    import pillow_jxl  # noqa: F401  # registers itself with Pillow
except ImportError:  # the extra `jxl` is not installed
    HAS_JXL = False
else:
    HAS_JXL = True

Detail = Literal["auto", "low", "high"]

# About 256 tokens: a 1920x1080 screenshot is shown at 598x336 (264 tokens) instead of in full (2,691).
LOW_DETAIL_PATCHES = 1024
# Each scan of a progressive JPEG goes over the whole picture and may be a few bytes long.
MAX_JPEG_SCANS = 100
# What libjpeg puts where data is missing: level 128, which CMYK shows inverted.
_JPEG_GREY = (127, 128)
_MORE_JPEG_DATA = bytes(range(1, 128)) * 8

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def set_pillow_limit(n_pixels: int = DEFAULT_PIXEL_LIMIT) -> None:
    """Set Pillow's own pixel limit, which is lower than DEFAULT_PIXEL_LIMIT, for the whole process.

    For processes that open pictures only through this module, which checks the exact limit itself; Pillow
    refuses twice the number, also for pictures inside pictures (ICO).
    """
    Image.MAX_IMAGE_PIXELS = n_pixels


def prepare_picture(
    data: bytes,
    config: MediaConfig = K3_MEDIA_CONFIG,
    detail: str = "auto",
    *,
    pixel_limit: int = DEFAULT_PIXEL_LIMIT,
    admit: Callable[[int], object] | None = None,
) -> Picture:
    """Decode a picture file and prepare it as the reference does (docs/format.md#picture-size).

    detail:      "low" bounds the image patches at LOW_DETAIL_PATCHES; "high" and "auto" are the
                 checkpoint's own limits
    pixel_limit: pictures of more pixels are refused before they are decoded
    admit:       called with the number of pixels after the header was read and before memory is taken
    Raises MediaError. Pillow's own limit of 179 megapixels holds too unless `set_pillow_limit` was called.
    """
    patch_limit = patch_limit_of(detail, config)
    image, notes = _decoded(data, pixel_limit, admit)
    width, height = image.size
    size = target_size(width, height, patch_limit=patch_limit, side_limit=config.side_limit)
    with _decoder_errors(data):
        rgb = render(image, size, config)
    identity = picture_identity(hashlib.sha256(data).hexdigest(), config, detail)
    item = MediaItem(to_patches(rgb, size), (1, size.grid_h, size.grid_w), identity)
    return Picture(width, height, item, notes)


def patch_limit_of(detail: str, config: MediaConfig) -> int:
    """Image patches that a picture of this `detail` may have. Raises MediaError."""
    if detail == "low":
        return min(LOW_DETAIL_PATCHES, config.patch_limit)
    if detail in ("auto", "high"):
        return config.patch_limit
    raise MediaError(f"detail must be 'auto', 'low' or 'high', not {str(detail)[:20]!r}")


def picture_identity(file_sha256: str, config: MediaConfig, detail: str, salt: str = "") -> str:
    """The media identity (hex sha256) of a prepared picture: equal only where all values are equal.

    "auto" and "high" are one, since they give the same values. `salt` separates tenants.
    """
    shown = "low" if detail == "low" else "full"
    text = f"picture\0{file_sha256}\0{config.version}\0{shown}\0{salt}"
    return hashlib.sha256(text.encode()).hexdigest()


def decode(
    data: bytes, *, pixel_limit: int = DEFAULT_PIXEL_LIMIT, admit: Callable[[int], object] | None = None
) -> Image.Image:
    """The first frame or page of a picture file, upright, at most 8 bits a channel. Raises MediaError."""
    return _decoded(data, pixel_limit, admit)[0]


def _decoded(
    data: bytes, pixel_limit: int, admit: Callable[[int], object] | None
) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture, and notes on what of the file is not seen."""
    name = _checked_format(data)
    if name == "JPEG" and (n_scans := scan_jpeg(data).n_scans) > MAX_JPEG_SCANS:
        raise MediaError(f"received a JPEG picture of {n_scans:,} scans; real ones have about ten")
    facts = heif_facts(data) if name in ("AVIF", "HEIF") else HeifFacts()
    announced = jxl_size(data) if name == "JXL" else facts.size
    if announced is not None:  # these decoders have limits of their own, or decode when they open a file
        _check_pixels(*announced, pixel_limit)
    if name == "JXL" and admit is not None:
        admit(announced[0] * announced[1] if announced else pixel_limit)
    with _decoder_errors(data):
        image: Image.Image = Image.open(io.BytesIO(_readable(data, name)), formats=[name])
    _check_pixels(*image.size, pixel_limit)
    if name != "JXL" and admit is not None:
        admit(image.width * image.height)
    with _decoder_errors(data):
        notes = _unseen(image, name, data)
        image.load()
        _check_pixels(*image.size, pixel_limit)  # an icon or HEIC picture may turn out larger than announced
        if name == "JPEG":
            _check_jpeg_end(data, image)
        if name == "PNG":
            _mend_png_transparency(image, data)
        if name == "GIF":
            image = _on_canvas(image, data)
        if name == "AVIF" and facts.crop is not None and image.size == facts.size:
            image = image.crop(facts.crop)  # HEIC pictures come cropped
        return _eight_bit(_upright(image, name), name), notes


def _checked_format(data: bytes) -> str:
    """Pillow's name of the format. Raises MediaError where it is none that can be decoded here."""
    name = picture_format(data)
    if name is None:
        remedy = "; send it as a video_url" if is_clip_format(data) else ""
        raise MediaError(
            f"received {describe(data)} where a picture was expected{remedy}. Accepted: {ACCEPTED_PICTURES}"
        )
    if (name == "HEIF" and not HAS_HEIF) or (name == "JXL" and not HAS_JXL):
        words, extra = ("HEIC", "heic") if name == "HEIF" else ("JPEG XL", "jxl")
        raise MediaError(
            f"received a {words} picture, which this server cannot read without the extra `{extra}` "
            f"(pip install '.[{extra}]'); send JPEG or PNG instead"
        )
    return name


def _readable(data: bytes, name: str) -> bytes:
    """The file without what its decoder should not see."""
    return {"PNG": cleaned, "WEBP": with_alpha_flag}.get(name, lambda whole: whole)(data)


def _unseen(image: Image.Image, name: str, data: bytes) -> tuple[str, ...]:
    """Notes on frames and pages behind the first."""
    if is_moving_picture(data):
        return ("the picture moves, but only its first frame is seen; send it as a video_url to show all",)
    if name == "TIFF" and image.tag_v2.next:  # type: ignore[attr-defined]
        return ("only the first page is seen; send the others as pictures of their own",)
    return ()


def _mend_png_transparency(image: Image.Image, data: bytes) -> None:
    """Bring the transparent colour to the 8 bits that Pillow brings the pixels to."""
    key = image.info.get("transparency")
    if isinstance(key, tuple):
        is_deep = data[24] == 16
        image.info["transparency"] = tuple(value >> 8 if is_deep else value & 0xFF for value in key)
    elif image.mode == "L" and isinstance(key, int):
        grey = transparent_grey(data)
        image.info["transparency"] = key & 0xFF if grey is None else grey


def _on_canvas(image: Image.Image, data: bytes) -> Image.Image:
    """A GIF whose first frame is smaller than its canvas; what it leaves free is transparent.

    See docs/decisions.md#r26.
    """
    frame = next(gif_frames(data), None)
    if frame is None or "transparency" in image.info:  # Pillow has filled up with the transparent colour
        return image
    box = (*frame.box[:2], min(frame.box[2], image.width), min(frame.box[3], image.height))
    if box == (0, 0, *image.size):
        return image
    seen = Image.new("L", image.size)
    seen.paste(255, box)
    used = {index for _, index in image.crop(box).getcolors(256) or []}
    free = next((index for index in range(256) if index not in used), None)
    if image.mode == "P" and free is not None:
        image.paste(free, mask=ImageChops.invert(seen))
        image.info["transparency"] = free
        return image
    with_alpha = image.convert("LA" if image.mode == "L" else "RGBA")
    with_alpha.putalpha(seen)
    return with_alpha


def _check_pixels(width: int, height: int, pixel_limit: int) -> None:
    if width * height > pixel_limit:
        raise MediaError(
            f"the picture has {width}x{height} pixels, "
            f"more than this server's limit of {pixel_limit:,}; send a smaller one"
        )


def _upright(image: Image.Image, name: str) -> Image.Image:
    """Apply the EXIF orientation. Readers of TIFF, HEIC and JPEG XL have done it already."""
    if name in ("TIFF", "HEIF") or (name == "JXL" and not getattr(image, "jpeg", False)):
        return image
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # EXIF is a minefield of its own; a picture with broken EXIF is still a picture
        turn = None
    return image if turn is None else image.transpose(turn)


def _eight_bit(image: Image.Image, name: str) -> Image.Image:
    """Bring 16-bit, 32-bit and float grey to 8 bits, and a palette with alpha to RGBA; others are left alone.

    Pillow would clip deep grey to 255 on conversion. 16 bits keep the high byte, as Pillow does for 16-bit
    colour. Wider values have no agreed range: the smallest of 0..255 and 0..65535 (for floats also 0..1)
    that holds the picture's largest value is taken, else 0..maximum.
    Resizing palette indices with alpha (PA) as if they were colours would give noise, hence RGBA.
    """
    if image.mode == "PA":
        return image.convert("RGBA")
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    values = np.asarray(image)
    if image.mode.startswith("I;16") or (name == "PPM" and image.mode == "I"):  # PNM is scaled to 16 bits
        grey = (np.clip(values, 0, 65535) >> 8).astype(np.uint8)
    else:
        grey = _scaled_to_bytes(values)
    plain = Image.fromarray(grey)
    key = image.info.get("transparency")
    if isinstance(key, int):
        plain.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return plain


def _scaled_to_bytes(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Grey values of a type without an agreed range, to bytes; not-a-number and negative values become 0."""
    numbers = np.nan_to_num(values.astype(np.float64), nan=0.0, neginf=0.0, posinf=0.0)
    largest = float(numbers.max())
    if np.issubdtype(values.dtype, np.floating) and largest <= 1.0:
        scale = 255.0
    elif largest <= 255.0:
        scale = 1.0
    elif largest <= 65535.0:
        scale = 1 / 256
    else:
        scale = 255.0 / largest
    return np.clip(numbers * scale, 0, 255).astype(np.uint8)


def _check_jpeg_end(data: bytes, image: Image.Image) -> None:
    """Refuse a JPEG that was cut off and given an end marker: libjpeg fills up with grey and says nothing.

    Bytes after the last picture data change nothing in a whole picture, but are read as data in one that was
    cut. Costs a second decode, and only where the last pixel is the grey of missing data. Raises MediaError.
    """
    corner = image.getpixel((image.width - 1, image.height - 1))
    values = corner if isinstance(corner, tuple) else (corner,)
    if any(value not in _JPEG_GREY for value in values):
        return
    end = scan_jpeg(data).end
    more = data[:end] + _MORE_JPEG_DATA + data[end:]
    with Image.open(io.BytesIO(more), formats=["JPEG"]) as again:
        again.load()
        if ImageChops.difference(again, image).getbbox() is not None:
            raise MediaError("received a JPEG picture that is cut off: its lower part is missing")


@contextlib.contextmanager
def _decoder_errors(data: bytes) -> Iterator[None]:
    """Turn whatever a decoder trips over (hostile bytes raise nearly any exception) into a MediaError."""
    try:
        yield
    except MediaError:
        raise
    except MemoryError as error:
        raise MediaError(f"received {describe(data)} that needs too much memory to decode") from error
    except Image.DecompressionBombError as error:
        raise MediaError(f"received {describe(data)} of too many pixels; send a smaller one") from error
    except Exception as error:
        raise MediaError(f"received {describe(data)} that cannot be decoded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The decoder's own words, without object addresses, paths and unprintable characters."""
    text = re.sub(r"<[^>]*>|\bb?'[^']*'|\b0x[0-9a-fA-F]+|(?<!\w)/\S+", "...", str(error))
    text = "".join(c for c in text if c.isascii() and c.isprintable())[:120].strip(" .")
    return text or "the file is damaged or incomplete"
