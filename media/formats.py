"""What a file is, by its first bytes: to choose the decoder, and to tell people what they sent."""

from __future__ import annotations

import re
from typing import Literal

from media.types import MediaError

# Pillow's names of the formats that are decoded. Formats that start other programs (EPS), have no magic
# number (TGA) or have decoders written in Python (QOI) are left out.
PICTURE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "HEIF", "TIFF", "BMP", "ICO", "JPEG2000", "PPM")
ACCEPTED_PICTURES = (
    "PNG, JPEG, WebP, GIF, AVIF, HEIC (with the extra `heic`), TIFF, BMP, ICO, JPEG 2000 and PNM"
)
ClipKind = Literal["mp4", "matroska", "gif"]
ACCEPTED_CLIPS = "MP4, MOV, MKV, WebM or GIF"
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
)
_OTHER_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"\xc5\xd0\xd3\xc6", "a PostScript document"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
    (b"8BPS", "a Photoshop document"),
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
    (b"\x47\x40", "an MPEG transport stream"),
    (b"#EXTM3U", "a playlist instead of the clip itself"),
)
_AVIF_BRANDS = {b"avif", b"avis"}
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_TEXT_SAMPLE = 4096
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<script", b"<h1")


def picture_format(data: bytes) -> str | None:
    """Pillow's name of the picture format that `data` starts as, one of PICTURE_FORMATS, or None."""
    for magic, name in _PICTURE_MAGIC:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if re.match(rb"P[1-6fF]\s", data[:3]):
        return "PPM"
    brands = _file_type_brands(data)
    if brands & _AVIF_BRANDS:
        return "AVIF"
    if brands & _HEIF_BRANDS:
        return "HEIF"
    return None


def clip_kind(data: bytes) -> ClipKind:
    """Raises MediaError that says what was received where it is not a clip that can be read."""
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    for magic, words in _OTHER_VIDEO:
        if data.startswith(magic):
            raise MediaError(f"received {words}; accepted clips: {ACCEPTED_CLIPS}; {CONVERT}")
    still = picture_format(data)
    if still is None and data[4:8] in _MP4_FIRST_BOXES:
        return "mp4"
    remedy = "; send it as an image_url" if still else f"; {CONVERT}" if data[8:12] == b"AVI " else ""
    raise MediaError(
        f"received {describe(data)}, which is not a clip; accepted clips: {ACCEPTED_CLIPS}{remedy}"
    )


def describe(data: bytes) -> str:
    """What `data` is, in words for an error message: "a PDF document", "an HTML page"."""
    if not data:
        return "an empty file"
    if (name := picture_format(data)) is not None:
        return f"{'an' if name[0] in 'AIH' and name != 'HEIF' else 'a'} {name} picture"
    for magic, words in _OTHER_MAGIC:
        if data.startswith(magic):
            return words
    if _file_type_brands(data):
        return "an MP4 or QuickTime video"
    if data[:4] == b"RIFF":
        return {b"AVI ": "an AVI video", b"WAVE": "a WAV audio file"}.get(data[8:12], "a RIFF file")
    return _describe_text(data[:_TEXT_SAMPLE]) or f"{len(data):,} bytes of no known picture format"


def _file_type_brands(data: bytes) -> set[bytes]:
    """Brands of the `ftyp` box that ISO base media files (MP4, HEIC, AVIF) start with."""
    if data[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(data[:4], "big"), len(data), 512)
    return {data[8:12]} | {data[start : start + 4] for start in range(16, end - 3, 4)}


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
