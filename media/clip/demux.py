"""Opens a clip and reads from its packets, without decoding, which frames are shown and when."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import av
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.stream import VideoStream

from media.clip.mp4 import ENCRYPTED
from media.formats import CONVERT, ClipKind
from media.types import MediaError

_DEMUXERS: dict[ClipKind, str] = {"mp4": "mov", "matroska": "matroska", "avi": "avi", "mpegts": "mpegts"}
_NOT_SHOWN = Disposition.attached_pic | Disposition.still_image | Disposition.timed_thumbnails

# A clip made for a clock of milliseconds (WebM, and what is remuxed from it) jitters by one.
_CLOCK = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class Timeline:
    """When the frames of a clip are shown.

    pts:       presentation times that rise strictly, in `time_base` seconds; frames that an edit list cuts
               off or that a codec hides are not among them
    duration:  seconds from the first frame to the end of the last
    rate:      frames per second where it is constant, None where it varies
    """

    pts: tuple[int, ...]
    time_base: Fraction
    duration: Fraction
    rate: float | None


@contextmanager
def opened(data: bytes, kind: ClipKind, *, max_pixels: int) -> Iterator[InputContainer]:
    """The demuxer over `data`; any libav error inside becomes a MediaError.

    max_pixels: a frame that has far more is refused by the decoder before memory is taken.
    """
    try:
        with av.open(
            io.BytesIO(data),
            mode="r",
            format=_DEMUXERS[kind],
            # Twice: coded frames are larger than what is shown, up to whole blocks of 128 x 128.
            options={"max_pixels": str(2 * max_pixels)},
            metadata_errors="replace",
            io_open=_refuse_reference,
        ) as container:
            yield container
    except (av.error.FFmpegError, UnicodeError) as error:
        raise MediaError(f"the clip cannot be read ({_reason(error)}); received {len(data)} bytes") from error
    except MemoryError as error:
        raise MediaError("the clip needs too much memory to decode") from error


def _refuse_reference(*_: object) -> io.BytesIO:
    raise PermissionError("a clip may not refer to other files")


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or "damaged metadata")


def video_stream(container: InputContainer) -> VideoStream:
    """The moving picture: no cover art, no thumbnails; the default track where there are several.

    Raises MediaError that says what the file holds instead.
    """
    streams = [s for s in container.streams.video if not s.disposition & _NOT_SHOWN]
    if not streams:
        held = sorted({_described(s) for s in container.streams})
        raise MediaError(f"the file has no video track; it holds {', '.join(held) or 'no track at all'}")
    # The still of an AVIF sequence is a track of one frame, and a default one too.
    stream = max(streams, key=lambda s: (bool(s.disposition & Disposition.default), s.frames != 1))
    if "enc_key_id" in stream.metadata:
        raise MediaError(ENCRYPTED)
    if stream.codec_context is None:
        raise MediaError(f"the clip's video codec is not known here; {CONVERT}")
    return stream


def _described(stream: av.stream.Stream) -> str:
    if stream.type == "video":
        return "a cover picture"
    name = stream.codec_context.name if stream.codec_context else "unknown codec"
    return f"{'an' if stream.type == 'audio' else 'a'} {stream.type} track ({name})"


def declared_duration(container: InputContainer, stream: VideoStream) -> Fraction | None:
    """Seconds that the file's header claims; None where it does not say."""
    if stream.duration and stream.time_base:
        return stream.duration * stream.time_base
    return Fraction(container.duration, av.time_base) if container.duration else None


def scan(container: InputContainer, stream: VideoStream, *, max_frames: int) -> Timeline:
    """Read the packets of `stream` to the end. Raises MediaError: no frame, too many, encrypted."""
    time_base = stream.time_base
    if not time_base:
        raise MediaError("the clip's video track has no clock (time base 0)")
    shown: dict[int, int] = {}
    for packet in container.demux(stream):
        if not packet.size:
            continue
        if packet.has_sidedata("encryption_info") or packet.has_sidedata("encryption_init_info"):
            raise MediaError(ENCRYPTED)
        when = packet.pts if packet.pts is not None else packet.dts
        if when is None or packet.is_discard or _is_hidden(packet, stream):
            continue
        shown[when] = packet.duration or 0
        if len(shown) > max_frames:
            raise MediaError(f"the clip has more than {max_frames} frames, which is the limit")
    if not shown:
        raise MediaError("the clip's video track holds no frame that is shown")
    pts = tuple(sorted(shown))
    average = stream.average_rate if stream.average_rate and stream.average_rate > 0 else None
    return timeline_of(pts, shown[pts[-1]], time_base, average)


def _is_hidden(packet: Packet[VideoStream], stream: VideoStream) -> bool:
    """A VP8 frame that only serves as reference: its show bit is 0 (RFC 6386, 9.1)."""
    return stream.codec_context.name == "vp8" and not memoryview(packet)[0] >> 4 & 1


def timeline_of(
    pts: tuple[int, ...], last_duration: int, time_base: Fraction, declared: Fraction | None
) -> Timeline:
    """The timeline of frames shown at `pts`, the last for `last_duration` (0 where that is not known).

    declared: the file's own average rate
    The rate is constant where each frame is within the clock's precision of its even place. Then the file's
    own average rate counts if it fits the frames, else the measured one: the last frame of an MP4 is often
    declared longer, which lowers the average and would shift every time stamp.
    """
    steps = len(pts) - 1
    if not steps:
        rate = declared or (1 / (last_duration * time_base) if last_duration else Fraction(1))
        return Timeline(pts, time_base, 1 / rate, float(rate))
    span = pts[-1] - pts[0]
    tolerance = max(_CLOCK / time_base, min(Fraction(1), Fraction(span, 4 * steps)))
    bound = int(tolerance * steps)
    even = all(abs((p - pts[0]) * steps - i * span) <= bound for i, p in enumerate(pts))
    if not even:
        duration = (span + (last_duration or Fraction(span, steps))) * time_base
        return Timeline(pts, time_base, duration, None)
    fits = declared is not None and abs(steps / declared / time_base - span) <= tolerance
    rate = declared if declared is not None and fits else steps / (span * time_base)
    return Timeline(pts, time_base, len(pts) / rate, float(rate))
