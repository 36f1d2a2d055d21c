"""Decodes the frames that are wanted and turns them into upright pictures in RGB.

Colour: swscale by the frame's own matrix and range; where the file does not say, BT.601 and limited range,
which is what ffmpeg and the libraries over it do. Interlaced frames are taken as they are, both fields woven.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.sidedata.sidedata import SideData
from av.sidedata.sidedata import Type as SideDataType
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from media.clip.alpha import AlphaDecoder, DamagedAlphaError, is_coded_apart, packed_picture, to_mask

# More threads hold more raw frames: each adds a few, 3 MB apiece at 1080p.
_MAX_THREADS = 4
_MAX_STRETCH = 8
# Colour matrices (ITU-T H.273, table 4) that swscale does not know, and what is taken instead.
_MATRICES = {10: 9, 14: 9}  # BT.2020 with constant luminance, and ICtCp, which is of BT.2100
_KNOWN_MATRICES = {0, 1, 2, 4, 5, 6, 7, 9}
_UNSAID = 2
_REORDERED = ("h264", "hevc")

# (a, b, c, d) of the display matrix, which takes (x, y) to (a*x + c*y, b*x + d*y), y downwards.
_TURNS: dict[tuple[int, int, int, int], Image.Transpose] = {
    (-1, 0, 0, 1): Image.Transpose.FLIP_LEFT_RIGHT,
    (1, 0, 0, -1): Image.Transpose.FLIP_TOP_BOTTOM,
    (-1, 0, 0, -1): Image.Transpose.ROTATE_180,
    (0, 1, -1, 0): Image.Transpose.ROTATE_270,
    (0, -1, 1, 0): Image.Transpose.ROTATE_90,
    (0, 1, 1, 0): Image.Transpose.TRANSPOSE,
    (0, -1, -1, 0): Image.Transpose.TRANSVERSE,
}
_SWAPS_SIDES = {
    Image.Transpose.ROTATE_90,
    Image.Transpose.ROTATE_270,
    Image.Transpose.TRANSPOSE,
    Image.Transpose.TRANSVERSE,
}


def _unknown_side_data(cls: type[SideDataType], value: object) -> SideDataType:
    kind: SideDataType = object.__new__(cls)
    kind._name_ = f"UNKNOWN_{value}"
    kind._value_ = value  # type: ignore[assignment]
    return kind


# libav knows more kinds of side data than PyAV's enum (EXIF, the view of a stereo clip), and a frame that
# carries one would raise ValueError when it is asked for any (docs/decisions.md#r24).
SideDataType._missing_ = classmethod(_unknown_side_data)  # type: ignore[assignment,method-assign]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A frame; `alpha` where its alpha plane comes in a frame of its own, of the same size (alpha.py)."""

    frame: VideoFrame
    alpha: VideoFrame | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sampled frame: its place among the sampled, what is shown then, and whether it came out damaged."""

    place: int
    shown: Decoded
    is_damaged: bool


def wanted_frames(
    container: InputContainer, stream: VideoStream, wanted_pts: Sequence[int], shown_pts: Sequence[int]
) -> Iterator[Wanted]:
    """The frames with these presentation times, which rise strictly, in order.

    shown_pts: the times of all frames that are shown

    A frame that cannot be decoded is given as the one shown before it, as a player would, and as damaged; one
    at the start as the first that can be. Yields nothing if nothing can be decoded.

    Packets that no wanted frame depends on are not decoded: all others of a codec without references between
    frames, and in H.264 those that no frame refers to (nal_ref_idc 0).
    """
    place = 0
    before: Decoded | None = None
    found = _decoded(container, stream, frozenset(wanted_pts))
    if container.format.name == "avi" and stream.codec_context.name in _REORDERED:
        found = _in_order(container, stream, shown_pts)
    for decoded in found:
        pts = decoded.frame.pts
        if pts is None:
            continue
        while place < len(wanted_pts) and wanted_pts[place] < pts:
            yield Wanted(place, before or decoded, is_damaged=True)
            place += 1
        if place < len(wanted_pts) and wanted_pts[place] == pts:
            yield Wanted(place, decoded, is_damaged=decoded.frame.is_corrupt)
            place += 1
        if place == len(wanted_pts):
            return
        before = decoded
    if before is not None:
        for rest in range(place, len(wanted_pts)):
            yield Wanted(rest, before, is_damaged=True)


def _decoded(container: InputContainer, stream: VideoStream, wanted: frozenset[int]) -> Iterator[Decoded]:
    decoder = stream.codec_context
    # What the container is opened with reaches the decoders that look at its first packets, not this one.
    max_pixels = container.options["max_pixels"]
    decoder.options = {"max_pixels": max_pixels}
    decoder.thread_count = min(_MAX_THREADS, os.cpu_count() or 1)
    if is_coded_apart(stream):
        # Threads that each take a frame would give it after later packets, no more beside its alpha.
        decoder.thread_type = "SLICE"
        alpha_decoder = AlphaDecoder(decoder.name, int(max_pixels))
        for packet in container.demux(stream):
            yield from _with_alpha(_decode(decoder, packet), alpha_decoder, packet)
        return
    decoder.thread_type = "AUTO"
    intra_only = decoder.codec.intra_only
    skips_unreferenced = decoder.name == "h264"
    for packet in container.demux(stream):
        is_wanted = not packet.size or packet.pts is None or packet.pts in wanted
        if intra_only and not is_wanted:
            continue
        if skips_unreferenced:
            decoder.skip_frame = "DEFAULT" if is_wanted else "NONREF"
        for frame in _decode(decoder, packet):
            yield Decoded(frame, alpha=None)


def _in_order(container: InputContainer, stream: VideoStream, shown_pts: Sequence[int]) -> Iterator[Decoded]:
    """All frames, which get the presentation times in the order they come in.

    AVI has no such times; what libav makes up for codecs that reorder frames is not in order.
    """
    for decoded, pts in zip(_decoded(container, stream, frozenset(shown_pts)), shown_pts, strict=False):
        decoded.frame.pts = pts
        yield decoded


def _with_alpha(
    frames: list[VideoFrame], alpha_decoder: AlphaDecoder, packet: Packet[VideoStream]
) -> list[Decoded]:
    """Frames whose alpha is damaged, or of another size than they are, are left out."""
    try:
        alpha = alpha_decoder.decode(packet)
    except DamagedAlphaError:
        return []
    return [
        Decoded(frame, alpha)
        for frame in frames
        if alpha is None or (alpha.width, alpha.height) == (frame.width, frame.height)
    ]


def _decode(decoder: VideoCodecContext, packet: Packet[VideoStream]) -> list[VideoFrame]:
    """A packet that is damaged gives no frame; who asked for it sees it missing."""
    try:
        return decoder.decode(packet if packet.size else None)
    except (av.error.InvalidDataError, av.error.EOFError):
        return []


@dataclass(frozen=True, slots=True)
class Display:
    """How decoded frames are shown.

    turn:          what sets them upright; None if they are
    width, height: pixels as shown: upright, and with pixels made square by stretching the coded width
    """

    turn: Image.Transpose | None
    width: int
    height: int

    @classmethod
    def of(cls, frame: VideoFrame, sample_aspect_ratio: Fraction | None) -> Display:
        width, height = shown_size(frame.width, frame.height, sample_aspect_ratio)
        turn = _turn(frame)
        return cls(turn, height, width) if turn in _SWAPS_SIDES else cls(turn, width, height)


def shown_size(width: int, height: int, sample_aspect_ratio: Fraction | None) -> tuple[int, int]:
    """The size with square pixels, before any turn; an aspect that is missing or absurd counts as 1."""
    stretch = sample_aspect_ratio or Fraction(1)
    if not Fraction(1, _MAX_STRETCH) <= stretch <= _MAX_STRETCH:
        stretch = Fraction(1)
    return max(1, round(width * stretch)), height


def _turn(frame: VideoFrame) -> Image.Transpose | None:
    for data in frame.side_data:
        if isinstance(data, SideData) and data.type == SideDataType.DISPLAYMATRIX:
            a, b, _, c, d = np.frombuffer(bytes(data), np.int32, count=5).tolist()
            if abs(a) + abs(d) < abs(b) + abs(c):
                return _TURNS.get((0, _sign(b), _sign(c), 0))
            return _TURNS.get((_sign(a), 0, 0, _sign(d)))
    return None


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def is_known_matrix(colorspace: int) -> bool:
    """Whether colours by this matrix are converted exactly; others are shown approximately."""
    return colorspace in _KNOWN_MATRICES


def to_picture(decoded: Decoded, turn: Image.Transpose | None) -> Image.Image:
    """An upright picture in coded pixels, not yet stretched: RGB, or RGBA where there is alpha."""
    frame = decoded.frame
    if not is_known_matrix(frame.colorspace):
        frame.colorspace = _MATRICES.get(frame.colorspace, _UNSAID)
    has_alpha = any(component.is_alpha for component in frame.format.components)
    mode, pixel_format = ("RGBA", "rgba") if has_alpha else ("RGB", "rgb24")
    picture = packed_picture(frame.reformat(format=pixel_format, threads=1), mode)
    if decoded.alpha is not None:
        picture.putalpha(to_mask(decoded.alpha))
    return picture if turn is None else picture.transpose(turn)
