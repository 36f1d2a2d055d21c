"""What a file is, by its first bytes: to choose the decoder, and to tell people what they sent."""

from __future__ import annotations

import re
from itertools import islice, takewhile
from typing import Literal

from media.gif import gif_frames
from media.png import chunks
from media.types import MediaError
from media.webp import is_moving_webp

# Pillow's names of the formats that are decoded. Formats that start other programs (EPS), have no magic
# number (TGA) or have decoders written in Python (QOI) are left out.
PICTURE_FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
    "GIF",
    "AVIF",
    "HEIF",
    "TIFF",
    "BMP",
    "ICO",
    "JPEG2000",
    "PPM",
    "JXL",
)
ACCEPTED_PICTURES = (
    "PNG, JPEG, WebP, GIF, AVIF, HEIC (with the extra `heic`), JPEG XL (with the extra `jxl`), TIFF, BMP, "
    "ICO, JPEG 2000 and PNM"
)
ClipKind = Literal["mp4", "matroska", "avi", "mpegts", "gif", "webp", "apng"]
ACCEPTED_CLIPS = "MP4, MOV, MKV, WebM, AVI, MPEG-TS, GIF, or an animated WebP or PNG"
CONVERT = "convert it, e.g. `ffmpeg -i INPUT -c:v libx264 -pix_fmt yuv420p clip.mp4`"

_PICTURE_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"BM", "BMP"),
    (b"\0\0\1\0", "ICO"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"\xff\x0a", "JXL"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JXL"),
)
_OTHER_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"\xc5\xd0\xd3\xc6", "a PostScript document"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"8BPS", "a Photoshop document"),
    (b"FUJIFILMCCD-RAW", "a camera RAW file (RAF)"),
    (b"IIRO", "a camera RAW file (ORF)"),
    (b"IIRS", "a camera RAW file (ORF)"),
    (b"MMOR", "a camera RAW file (ORF)"),
    (b"IIU\0", "a camera RAW file (RW2)"),
    (b"FOVb", "a camera RAW file (X3F)"),
    (b"qoif", "a QOI picture"),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (b"OggS", "an Ogg audio or video file"),
    (b"ID3", "an MP3 audio file"),
    (b"fLaC", "a FLAC audio file"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"version https://git-lfs.github.com", "a Git LFS pointer instead of the file itself"),
)
_MP4_FIRST_BOXES = {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot", b"styp", b"moof", b"uuid"}
_OTHER_VIDEO = (
    (b"FLV\x01", "an FLV video"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a Windows Media file"),
    (b"\x00\x00\x01\xba", "an MPEG program stream"),
    (b"\x00\x00\x01\xb3", "an MPEG video stream"),
    (b"\x00\x00\x00\x01", "a raw H.264 or H.265 stream"),
    (b"#EXTM3U", "a playlist instead of the clip itself"),
)
_TS_SYNC, _TS_PACKET = 0x47, 188
_OTHER_BRANDS = {
    b"crx ": "a camera RAW file (CR3)",
    b"mif3": "a HEIF or AVIF picture in the compact form (brand mif3)",
    b"M4A ": "an MPEG-4 audio file",
    b"M4B ": "an MPEG-4 audio file",
}
_AVIF_BRANDS = {b"avif", b"avis"}
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
# Brands of files that hold a picture and a moving one (AVIF and HEIC sequences).
_SEQUENCE_BRANDS = {b"avis", b"hevc", b"hevx", b"msf1"}
# Tags of TIFF and DNG: what its first picture is, where others are, and which DNG it is.
_TAG_SUBFILE_TYPE, _TAG_SUB_IFDS, _TAG_DNG_VERSION = 254, 330, 50706
_HEAD = 64 * 1024  # bytes; what tells a file's kind stands before them
_TEXT_SAMPLE = 4096
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<script", b"<h1")


def picture_format(data: bytes) -> str | None:
    """Pillow's name of the picture format that `data` starts as, one of PICTURE_FORMATS, or None."""
    for magic, name in _PICTURE_MAGIC:
        if data.startswith(magic):
            return None if name == "TIFF" and _raw_kind(data) else name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if re.match(rb"P[1-6fF]\s", data[:3]):
        return "PPM"
    brands = _file_type_brands(data)
    if brands & _OTHER_BRANDS.keys():
        return None
    if brands & _AVIF_BRANDS:
        return "AVIF"
    if brands & _HEIF_BRANDS:
        return "HEIF"
    return None


def clip_kind(data: bytes) -> ClipKind:
    """What reads `data` as a clip. Raises MediaError that says what was received where nothing does."""
    kind = _clip_kind(data)
    if kind is not None:
        return kind
    for magic, words in _OTHER_VIDEO:
        if data.startswith(magic):
            raise MediaError(f"received {words}; accepted clips: {ACCEPTED_CLIPS}; {CONVERT}")
    remedy = "; send it as an image_url" if picture_format(data) else f"; {CONVERT}"
    raise MediaError(
        f"received {describe(data)}, which is not a clip; accepted clips: {ACCEPTED_CLIPS}{remedy}"
    )


def is_clip_format(data: bytes) -> bool:
    """Whether `data` starts as a clip that is not a picture as well."""
    return _clip_kind(data) in ("mp4", "matroska", "avi", "mpegts")


def is_moving_picture(data: bytes) -> bool:
    """Whether `data` is a picture of more than one frame: animated GIF, WebP or PNG, or an AVIF sequence."""
    if picture_format(data) == "GIF":
        return len(list(islice(gif_frames(data), 2))) > 1
    return picture_format(data) is not None and _clip_kind(data) is not None


def _clip_kind(data: bytes) -> ClipKind | None:
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    if data[:4] == b"RIFF":
        return "avi" if data[8:12] == b"AVI " else "webp" if is_moving_webp(data) else None
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        before = takewhile(lambda chunk: chunk.kind != b"IDAT", chunks(data))
        return "apng" if any(chunk.kind == b"acTL" for chunk in before) else None
    # Bare packets, or each with a time stamp of four bytes before it (M2TS).
    if any(_is_transport_stream(data, start, _TS_PACKET + start) for start in (0, 4)):
        return "mpegts"
    brands = _file_type_brands(data)
    if brands & _SEQUENCE_BRANDS and b"moov" in data[:_HEAD]:
        return "mp4"
    if picture_format(data) is None and data[4:8] in _MP4_FIRST_BOXES and not brands & _OTHER_BRANDS.keys():
        return "mp4"
    return None


def _is_transport_stream(data: bytes, start: int, step: int) -> bool:
    syncs = data[start : start + 3 * step : step]
    return len(syncs) > 1 and set(syncs) == {_TS_SYNC}


def describe(data: bytes) -> str:
    """What `data` is, in words for an error message: "a PDF document", "an HTML page"."""
    if not data:
        return "an empty file"
    if (name := picture_format(data)) is not None:
        words = "JPEG XL" if name == "JXL" else name
        return f"{'an' if name[0] in 'AI' else 'a'} {words} picture"
    if raw := _raw_kind(data):
        return f"a camera RAW file ({raw})"
    for magic, words in _OTHER_MAGIC:
        if data.startswith(magic):
            return words
    brands = _file_type_brands(data)
    for brand, words in _OTHER_BRANDS.items():
        if brand in brands:
            return words
    if brands or _clip_kind(data) == "mp4":
        return "an MP4 or QuickTime video"
    if data[:4] == b"RIFF":
        return {b"AVI ": "an AVI video", b"WAVE": "a WAV audio file"}.get(data[8:12], "a RIFF file")
    if _clip_kind(data) == "mpegts":
        return "an MPEG transport stream"
    return _describe_text(data[:_TEXT_SAMPLE]) or f"{len(data):,} bytes of no known format"


def _file_type_brands(data: bytes) -> set[bytes]:
    """Brands of the `ftyp` box that ISO base media files (MP4, HEIC, AVIF) start with."""
    if data[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(data[:4], "big"), len(data), 512)
    return {data[8:12]} | {data[start : start + 4] for start in range(16, end - 3, 4)}


def _raw_kind(data: bytes) -> str | None:
    """The kind of a camera's RAW file that is made like TIFF: its first picture is only a thumbnail."""
    if data[:4] not in (b"II*\0", b"MM\0*"):
        return None
    if data[8:10] == b"CR":
        return "CR2"
    order: Literal["little", "big"] = "little" if data[:1] == b"I" else "big"
    start = int.from_bytes(data[4:8], order)
    n_tags = int.from_bytes(data[start : start + 2], order)
    tags: dict[int, bytes] = {}
    for at in range(start + 2, min(start + 2 + 12 * n_tags, len(data) - 11), 12):
        tags[int.from_bytes(data[at : at + 2], order)] = data[at + 8 : at + 12]
    if _TAG_DNG_VERSION in tags:
        return "DNG"
    is_thumbnail = int.from_bytes(tags.get(_TAG_SUBFILE_TYPE, b""), order) & 1
    return "NEF, ARW or the like" if is_thumbnail and _TAG_SUB_IFDS in tags else None


def _after_prolog(sample: bytes) -> bytes:
    """Markup without what may stand before its first element: byte order mark, comments, declarations."""
    rest = sample.removeprefix(b"\xef\xbb\xbf").lstrip()
    for _ in range(8):
        if rest.startswith(b"<!--"):
            _, _, rest = rest.partition(b"-->")
        elif rest.startswith(b"<?") or rest.lower().startswith(b"<!doctype svg"):
            _, _, rest = rest.partition(b">")
        else:
            break
        rest = rest.lstrip()
    return rest


def _describe_text(sample: bytes) -> str | None:
    markup = _after_prolog(sample).lower()
    if markup.startswith(b"<svg"):
        return "an SVG drawing"
    if markup.startswith(_HTML_STARTS):
        return "an HTML page"
    if b"\0" in sample:
        return None
    try:
        text = sample.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 3:  # not just a character cut at the sample's end
            return None
        text = sample[: error.start].decode("utf-8").strip()
    if not text:
        return "blank text"
    if text[0] in "{[":
        return "JSON text"
    if text.startswith("<"):
        return "an XML document"
    if text.startswith("data:"):
        return "the text of a data URL instead of the file itself"
    if len(text) > 40 and re.fullmatch(r"[A-Za-z0-9+/=_\s-]+", text):
        return "base64 text instead of the file itself (was it encoded twice?)"
    return "plain text"
