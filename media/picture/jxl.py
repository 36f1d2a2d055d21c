"""The size of a JPEG XL picture, from its first bytes (ISO/IEC 18181-1, size header)."""

from __future__ import annotations

from fractions import Fraction

from media.boxes import boxes

_CODESTREAM = b"\xff\x0a"
# (width / height) by the three bits of `ratio`; 0: the width is written out.
_RATIOS = (None, *map(Fraction, ("1", "6/5", "4/3", "3/2", "16/9", "5/4", "2")))
_LENGTH_BITS = (9, 13, 18, 30)


def jxl_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) as coded, before any turn; None where the file does not begin as one."""
    stream = _codestream(data)
    if stream[:2] != _CODESTREAM or len(stream) < 12:
        return None
    bits = _Bits(int.from_bytes(stream[2:16], "little"))
    is_small = bits.take(1)
    height = _length(bits, is_small)
    ratio = _RATIOS[bits.take(3)]
    return (_length(bits, is_small) if ratio is None else int(height * ratio)), height


def _length(bits: _Bits, is_small: int) -> int:
    return (bits.take(5) + 1) * 8 if is_small else bits.take(_LENGTH_BITS[bits.take(2)]) + 1


def _codestream(data: bytes) -> bytes:
    """The first bytes of the codestream, bare or in boxes."""
    if data[:2] == _CODESTREAM:
        return data[:16]
    for kind, body, _ in boxes(memoryview(data)):
        if kind == b"jxlc":
            return bytes(body[:16])
        if kind == b"jxlp":  # a part of it, after the part's number
            return bytes(body[4:20])
    return b""


class _Bits:
    """Bits of a little-endian number, lowest first."""

    def __init__(self, value: int) -> None:
        self._value = value

    def take(self, n: int) -> int:
        taken = self._value & ((1 << n) - 1)
        self._value >>= n
        return taken
