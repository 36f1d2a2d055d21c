"""WebM's alpha planes, which are a second VP8 or VP9 stream, are decoded within the limits."""

import io
from collections.abc import Callable, Iterable

import av
import numpy as np
import pytest
from av.codec.context import CodecContext
from av.packet import PacketSideData, packet_sidedata_type_from_literal
from numpy.typing import NDArray

from media.board import lay_on_board
from media.clip import prepare_clip
from media.clip.demux import opened, video_stream
from media.clip.frames import Decoded, to_picture, wanted_frames
from media.config import K3_MEDIA_CONFIG
from media.limits import ClipLimits
from media.types import MediaError
from tests.media.child import prepare_in_child
from tests.media.clips import clip, numbered, numbered_clip, prepared_frames, prepared_numbers

CODECS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
ADDITION = "matroska_block_additional"
ALPHA_ID = (1).to_bytes(8, "big")
PEAK_ABOVE_IMPORT = 100 * 1024**2  # bytes


def moving(number: int, width: int, height: int) -> NDArray[np.uint8]:
    """(height, width, 4) uint8: slopes of colour, and of alpha from 0 to 255."""
    y, x = np.mgrid[:height, :width]
    alpha = np.clip(2 * x + 3 * number - 20, 0, 255)
    return np.stack([2 * x + 5 * number, 3 * y + number, x + y, alpha], 2).astype(np.uint8)


def alpha_clip(codec: str, frames: Iterable[NDArray[np.uint8]]) -> bytes:
    options = {"auto-alt-ref": "0", "b": "2M"}
    return clip(
        frames, rate=8, container="webm", codec=CODECS[codec], pixel_format="yuva420p", options=options
    )


def numbered_alpha_clip(codec: str, width: int = 96, height: int = 64) -> bytes:
    """Eight frames, all opaque."""
    alpha = np.full((height, width), 255, np.uint8)
    return alpha_clip(codec, (np.dstack([numbered(i, width, height), alpha]) for i in range(8)))


def with_size(data: bytes, codec: str, stream: str, width: int, height: int) -> bytes:
    """The clip with another size in its first key frame of the `stream` "colour" or "alpha".

    VP8: 14 bits each, low byte first, after the start code (RFC 6386, 9.1). VP9 of profile 0: 16 bits each,
    less 1, four bits after the sync code (VP9 bitstream specification, 6.2).
    """
    start_code = {"vp8": b"\x9d\x01\x2a", "vp9": b"\x49\x83\x42"}[codec]
    at = data.index(start_code) + 3
    if stream == "alpha":
        at = data.index(start_code, at) + 3
    if codec == "vp8":
        return data[:at] + width.to_bytes(2, "little") + height.to_bytes(2, "little") + data[at + 4 :]
    around = int.from_bytes(data[at : at + 5], "big") & (0xF << 36 | 0xF)
    return data[:at] + (around | (width - 1) << 20 | (height - 1) << 4).to_bytes(5, "big") + data[at + 5 :]


def inter_frame(width: int, height: int) -> bytes:
    """A VP9 frame that is predicted from frames of other sizes, its own being explicit (6.2, 7.2.5)."""
    bits = (
        "10" + "00" + "0"  # frame marker, profile, shows no existing frame
        "1" + "1" + "0" + "00"  # inter, shown, not error resilient, resets nothing
        "00000001" + 3 * "0000"  # refreshes slot 0; three references to slot 0
        "000" + f"{width - 1:016b}{height - 1:016b}"  # of no reference's size
    )
    return int(bits.ljust(80, "0"), 2).to_bytes(10, "big") + bytes(30)


def remuxed(data: bytes, *more: bytes, additions: Callable[[int, bytes], bytes] | None = None) -> bytes:
    """The clips one after the other in one WebM with the mark for alpha.

    additions: gives packet `number` another alpha stream's packet for the one it has
    """
    file = io.BytesIO()
    with av.open(io.BytesIO(data)) as first, av.open(file, "w", format="webm") as output:
        track = output.add_stream_from_template(first.streams.video[0])
        track.metadata["alpha_mode"] = "1"
        number = 0
        for part in (data, *more):
            with av.open(io.BytesIO(part)) as source:
                start = number * 125
                for packet in source.demux(source.streams.video[0]):
                    if not packet.size:
                        continue
                    packet.pts, packet.dts, packet.stream = packet.pts + start, packet.dts + start, track
                    if additions is not None:
                        addition = bytes(packet.get_sidedata(ADDITION))
                        set_addition(packet, additions(number, addition.removeprefix(ALPHA_ID)))
                    output.mux(packet)
                    number += 1
    return file.getvalue()


def set_addition(packet: av.Packet, alpha: bytes) -> None:
    side_data = PacketSideData(packet_sidedata_type_from_literal(ADDITION), len(ALPHA_ID + alpha))
    side_data.update(ALPHA_ID + alpha)
    packet.set_sidedata(side_data)


@pytest.mark.parametrize("size", [(97, 65), (352, 288)])
@pytest.mark.parametrize("codec", CODECS)
def test_the_frames_are_those_of_the_decoder_that_reads_both_streams(codec: str, size: tuple[int, int]):
    data = alpha_clip(codec, (moving(i, *size) for i in range(12)))
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        libvpx = CodecContext.create(CODECS[codec], "r")
        expected = [f for p in container.demux(stream) for f in libvpx.decode(p if p.size else None)]
    assert [frame.format.name for frame in expected] == ["yuva420p"] * 12
    with opened(data, "matroska", max_pixels=size[0] * size[1]) as container:
        pts = [frame.pts for frame in expected]
        wanted = list(wanted_frames(container, video_stream(container), pts, pts))
    assert len(wanted) == 12 and not any(one.is_damaged for one in wanted)
    for one, frame in zip(wanted, expected, strict=True):
        picture = np.asarray(to_picture(one.shown, None))
        assert picture.shape == (size[1], size[0], 4) and np.ptp(picture[..., 3]) > 50
        assert np.array_equal(picture, np.asarray(to_picture(Decoded(frame, alpha=None), None)))


@pytest.mark.parametrize("stream", ["colour", "alpha"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_size_that_only_the_bitstream_claims_is_refused_and_takes_no_memory(
    codec: str, stream: str, tmp_path
):
    data = numbered_alpha_clip(codec)
    assert with_size(data, codec, stream, 96, 64) == data
    (tmp_path / "clip.webm").write_bytes(with_size(data, codec, stream, 16383, 16383))
    outcome, taken = prepare_in_child(tmp_path / "clip.webm")
    assert outcome.startswith("refused")
    assert taken < PEAK_ABOVE_IMPORT


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_the_same_for_both_streams(codec: str):
    data, limits = numbered_alpha_clip(codec), ClipLimits(frame_pixels=96 * 64)
    assert prepared_numbers(prepare_clip(data, limits=limits)) == list(range(8))
    large = numbered_alpha_clip(codec, 2 * 96, 2 * 64)
    with pytest.raises(MediaError, match=r"cannot be read .Invalid argument"):
        prepare_clip(remuxed(data, large), limits=limits)
    with pytest.raises(MediaError, match=r"cannot be read .Invalid argument"):
        prepare_clip(with_size(data, codec, "alpha", 2 * 96, 2 * 64), limits=limits)


def test_a_predicted_frame_may_not_grow_beyond_the_limit():
    """VP9 can change the size between key frames, to as much as 16 times each side of the reference."""

    def grown(number: int, alpha: bytes) -> bytes:
        return inter_frame(16 * 96, 16 * 64) if number == 4 else alpha

    data = remuxed(numbered_alpha_clip("vp9"), additions=grown)
    with pytest.raises(MediaError, match=r"cannot be read .Invalid argument"):
        prepare_clip(data, limits=ClipLimits(frame_pixels=96 * 64))


def test_a_frame_behind_another_in_its_packet_takes_no_memory(tmp_path):
    """libvpx decodes what follows a frame in its packet, whether an index lists it or not."""

    def hiding(number: int, alpha: bytes) -> bytes:
        return alpha + with_size(alpha + alpha, "vp9", "alpha", 16383, 16383)[len(alpha) :]

    data = numbered_alpha_clip("vp9")
    hidden = remuxed(data, additions=lambda number, alpha: alpha if number else hiding(number, alpha))
    (tmp_path / "clip.webm").write_bytes(hidden)
    outcome, taken = prepare_in_child(tmp_path / "clip.webm")
    assert outcome == "frames 8"
    assert taken < PEAK_ABOVE_IMPORT


def test_a_clip_that_ffmpeg_copied_is_transparent_too():
    rgba = np.full((64, 96, 4), (200, 100, 50, 0), np.uint8)
    data = remuxed(alpha_clip("vp9", [rgba] * 8))
    with av.open(io.BytesIO(data)) as container:
        assert "ALPHA_MODE" in container.streams.video[0].metadata
    board = lay_on_board(rgba, K3_MEDIA_CONFIG.board)
    for frame in prepared_frames(prepare_clip(data)):
        assert np.abs(frame[:64, :96].astype(int) - board).max() <= 6


@pytest.mark.parametrize("codec", CODECS)
def test_a_size_that_changes_in_mid_clip_changes_for_the_alpha_too(codec: str):
    data = remuxed(numbered_alpha_clip(codec), numbered_alpha_clip(codec, 192, 128))
    prepared = prepare_clip(data)
    assert (prepared.width, prepared.height, prepared.notes) == (96, 64, ())
    assert prepared_numbers(prepared) == [*range(8), *range(8)]


@pytest.mark.parametrize("codec", CODECS)
def test_frames_without_alpha_in_a_clip_that_has_some_are_opaque(codec: str):
    """As browsers record and show them."""
    rgba = np.full((64, 96, 4), (200, 100, 50, 0), np.uint8)
    opaque = numbered_clip(8, rate=8, container="webm", codec=CODECS[codec])
    prepared = prepare_clip(remuxed(alpha_clip(codec, [rgba] * 8), opaque))
    assert prepared.n_frames == 16 and not prepared.notes
    board = lay_on_board(rgba, K3_MEDIA_CONFIG.board)
    frames = [frame[:64, :96] for frame in prepared_frames(prepared)]
    assert np.abs(frames[0].astype(int) - board).max() <= 6
    assert prepared_numbers(prepare_clip(remuxed(opaque))) == list(range(8))
    assert np.abs(frames[15].astype(int) - numbered(7)).mean() < 10


def test_a_frame_whose_alpha_is_damaged_is_shown_as_the_one_before():
    data = remuxed(
        numbered_alpha_clip("vp9"), additions=lambda number, alpha: b"noise" if number == 7 else alpha
    )
    prepared = prepare_clip(data)
    assert prepared_numbers(prepared) == [0, 1, 2, 3, 4, 5, 6, 6]
    assert prepared.notes == ("1 of 8 sampled frames are damaged",)


@pytest.mark.parametrize("codec", CODECS)
def test_alpha_of_another_size_than_its_frames_is_damage(codec: str):
    with pytest.raises(MediaError, match="damaged: none of its frames"):
        prepare_clip(with_size(numbered_alpha_clip(codec), codec, "alpha", 128, 64))
