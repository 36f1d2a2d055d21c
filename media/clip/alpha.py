"""The alpha plane that WebM keeps beside the picture: a second VP8 or VP9 stream, in the blocks' additions.

libvpx reads both streams at once, but takes memory for whatever size a bitstream claims: 6 GB for a file of
1 kB. Looking at the sizes beforehand is not enough, because libvpx also decodes frames that no index lists,
each where the one before happens to end. libav's own decoders hold to `max_pixels`, but leave the alpha out.
So each stream gets one of those.
"""

from __future__ import annotations

import av
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange
from av.video.stream import VideoStream
from PIL import Image

# libav puts the addition's id (BlockAddID) before its bytes; 1 is the alpha's.
_N_ID_BYTES = 8
_ALPHA_ID = 1


class DamagedAlphaError(Exception):
    """A frame has an alpha plane that cannot be decoded."""


def is_coded_apart(stream: VideoStream) -> bool:
    """Whether the alpha of `stream` is a stream of its own: AlphaMode of the WebM track.

    libav gives it as a tag, in capitals where the file was copied by ffmpeg.
    """
    marks = (value for name, value in stream.metadata.items() if name.lower() == "alpha_mode")
    return stream.codec_context.name in ("vp8", "vp9") and "1" in marks


class AlphaDecoder:
    """Decodes the alpha planes of a stream's packets, one after the other and without delay.

    codec:      "vp8" or "vp9", as the stream's
    max_pixels: a plane that has more is refused before memory is taken
    """

    def __init__(self, codec: str, max_pixels: int) -> None:
        decoder = CodecContext.create(codec, "r")
        assert isinstance(decoder, VideoCodecContext)
        decoder.options = {"max_pixels": str(max_pixels)}
        self._decoder = decoder

    def decode(self, packet: Packet[VideoStream]) -> VideoFrame | None:
        """The alpha that belongs to `packet`, in the frame's Y plane; None where it has none: opaque.

        Raises DamagedAlphaError; av.error.ArgumentError for too many pixels.
        """
        addition = bytes(packet.get_sidedata("matroska_block_additional"))
        if int.from_bytes(addition[:_N_ID_BYTES], "big") != _ALPHA_ID:
            return None
        try:
            frames = self._decoder.decode(av.Packet(addition[_N_ID_BYTES:]))
        except (av.error.InvalidDataError, av.error.EOFError) as error:
            raise DamagedAlphaError from error
        if not frames:
            raise DamagedAlphaError
        return frames[-1]


def to_mask(alpha: VideoFrame) -> Image.Image:
    """The Y plane as it is, in 8 bits: alpha uses the full range whatever the bitstream says."""
    full = ColorRange.JPEG
    gray = alpha.reformat(format="gray", src_color_range=full, dst_color_range=full, threads=1)
    return packed_picture(gray, "L")


def packed_picture(frame: VideoFrame, mode: str) -> Image.Image:
    """The one plane of a packed frame as a picture of Pillow's `mode`, without a copy."""
    plane = frame.planes[0]
    return Image.frombuffer(
        mode,
        (frame.width, frame.height),
        plane,  # type: ignore[arg-type]  # any buffer will do
        "raw",
        mode,
        plane.line_size,
        1,
    )
