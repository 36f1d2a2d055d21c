"""Real picture files for the tests, made with real encoders."""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image


def noise(mode: str, width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture in which every pixel matters."""
    rng = np.random.default_rng(seed)
    if mode == "1":
        return Image.fromarray(rng.integers(0, 255, (height, width), dtype=np.uint8)).convert("1")
    if mode == "P":
        image = Image.fromarray(rng.integers(0, 255, (height, width), dtype=np.uint8), "P")
        image.putpalette(rng.integers(0, 255, 768, dtype=np.uint8).tobytes())
        return image
    n_bytes = 2 if mode == "I;16" else len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, (width, height), rng.bytes(width * height * n_bytes))


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def with_icc(profile: bytes, **options: Any) -> bytes:
    return encode(noise("RGB", 60, 40), "PNG", icc_profile=profile, **options)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header_only(width: int, height: int) -> bytes:
    """A PNG of 60 bytes that claims to be large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = png_chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + pixels + png_chunk(b"IEND", b"")


def insert_after_ihdr(png: bytes, chunk: bytes) -> bytes:
    return png[:33] + chunk + png[33:]


# One small file of every format that is accepted, for tests that go through all.
SAMPLES: dict[str, Callable[[], bytes]] = {
    "PNG": lambda: encode(noise("RGBA", 37, 23), "PNG"),
    "PNG palette": lambda: encode(noise("P", 37, 23), "PNG", transparency=bytes(range(0, 250, 10))),
    "PNG 16-bit": lambda: encode(noise("I;16", 37, 23), "PNG"),
    "APNG": lambda: encode(
        noise("RGB", 37, 23), "PNG", save_all=True, append_images=[noise("RGB", 37, 23, 1)]
    ),
    "JPEG": lambda: encode(noise("RGB", 37, 23), "JPEG", exif=oriented(6)),
    "JPEG progressive CMYK": lambda: encode(noise("CMYK", 37, 23), "JPEG", progressive=True),
    "WebP": lambda: encode(noise("RGBA", 37, 23), "WEBP"),
    "WebP lossless": lambda: encode(noise("RGBA", 37, 23), "WEBP", lossless=True),
    "GIF": lambda: encode(
        noise("P", 37, 23), "GIF", save_all=True, append_images=[noise("P", 37, 23, 1)], transparency=3
    ),
    "AVIF": lambda: encode(noise("RGBA", 37, 23), "AVIF"),
    "HEIC": lambda: encode(noise("RGB", 64, 64), "HEIF"),
    "TIFF": lambda: encode(noise("RGBA", 37, 23), "TIFF"),
    "TIFF LZW": lambda: encode(noise("RGB", 37, 23), "TIFF", compression="tiff_lzw"),
    "BMP": lambda: encode(noise("RGB", 37, 23), "BMP"),
    "ICO": lambda: encode(noise("RGBA", 32, 32), "ICO"),
    "JPEG 2000": lambda: encode(noise("RGB", 37, 23), "JPEG2000"),
    "PNG with stored text": lambda: insert_after_ihdr(
        encode(noise("L", 37, 23), "PNG"), png_chunk(b"zTXt", b"mxfile\0\0" + zlib.compress(bytes(10_000)))
    ),
    "WebP that moves": lambda: encode(
        noise("RGBA", 37, 23), "WEBP", save_all=True, append_images=[noise("RGBA", 37, 23, 1)]
    ),
    "GIF on a canvas": lambda: on_larger_canvas(encode(noise("P", 37, 23), "GIF"), 50, 40),
    "AVIF cropped": lambda: with_crop(encode(noise("RGB", 64, 64), "AVIF"), (10, 6, 40, 26)),
    "JPEG XL": lambda: encode(noise("RGBA", 37, 23), "JXL", lossless=True),
    "JPEG XL in boxes": lambda: encode(noise("RGB", 37, 23), "JXL", use_container=True, exif=oriented(6)),
    "PNM": lambda: encode(noise("RGB", 37, 23), "PPM"),
}


def on_larger_canvas(gif: bytes, width: int, height: int) -> bytes:
    """A GIF whose frames leave some of the canvas free."""
    return gif[:6] + struct.pack("<HH", width, height) + gif[10:]


def oriented(orientation: int) -> bytes:
    """An EXIF block that holds only an orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def with_crop(data: bytes, crop: tuple[int, int, int, int]) -> bytes:
    """A 64x64 AVIF or HEIC file with a clean aperture of (left, top, right, bottom) for its one picture."""
    left, top, right, bottom = crop
    numbers = (right - left, 1, bottom - top, 1, left + right - 64, 2, top + bottom - 64, 2)
    body = b"clap" + struct.pack(">IIIIiIiI", *numbers)
    if b"clap" in data:
        at = data.index(b"clap")
        return data[:at] + body + data[at + 36 :]
    out = bytearray(data)
    associated, container = data.index(b"ipma") - 4, data.index(b"ipco") - 4
    n_properties, at = 0, container + 8
    while at < associated:
        at, n_properties = at + int.from_bytes(data[at : at + 4], "big"), n_properties + 1
    out[associated + 18] += 1  # how many properties the picture has
    end = associated + int.from_bytes(data[associated : associated + 4], "big")
    out[end:end] = bytes([0x80 | (n_properties + 1)])
    out[associated:associated] = struct.pack(">I", 40) + body
    for name, by in ((b"ipma", 1), (b"ipco", 40), (b"iprp", 41), (b"meta", 41)):
        at = out.index(name) - 4
        out[at : at + 4] = struct.pack(">I", int.from_bytes(out[at : at + 4], "big") + by)
    moved = data.index(b"mdat") + 4
    for at in range(len(out) - 4):  # where the item's data starts
        if out[at : at + 4] == struct.pack(">I", moved) and at < out.index(b"iinf"):
            out[at : at + 4] = struct.pack(">I", moved + 41)
    return bytes(out)
