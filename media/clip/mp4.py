"""Whether the tables of an MP4 can be believed; read before libav sees the file.

An MP4 table may claim a thousand million frames in a few bytes, and libav makes room for them. Here each
claim is held against the file's size first.
"""

from __future__ import annotations

from media.boxes import boxes, inside
from media.types import MediaError

ENCRYPTED = "the clip's video track is encrypted: send it without copy protection"


def check_mp4(data: bytes, *, max_frames: int) -> None:
    """Raises MediaError for an MP4 or MOV file that is cut off, has no index, or one that cannot be true."""
    view = memoryview(data)
    missing: dict[bytes, int] = {}
    for kind, body, n_missing in boxes(view):
        missing[kind] = n_missing
        if kind == b"moov":
            for track in inside(body, b"trak"):
                _check_track(track, len(data), max_frames)
        elif kind == b"moof":
            for fragment in inside(body, b"traf"):
                for run in inside(fragment, b"trun"):
                    _check_run(run, len(data))
    if b"moov" not in missing:
        raise MediaError(
            f"the clip's index (its `moov` box) is missing in the {len(data)} bytes received: the recording "
            "or the transfer was broken off; send the whole file"
        )
    n_missing = max(missing[b"moov"], missing.get(b"mdat", 0))
    # A fragmented file is made to be broken off, as a live recording is: what is there can be used.
    if n_missing and b"moof" not in missing:
        raise MediaError(
            f"the clip is cut off: {n_missing} bytes are missing after the {len(data)} received; "
            "send the whole file"
        )


def _check_track(track: memoryview, n_bytes: int, max_frames: int) -> None:
    is_video = any(bytes(body[8:12]) == b"vide" for body in inside(track, b"mdia", b"hdlr"))
    if is_video and any(
        bytes(body[12:16]) == b"encv" for body in inside(track, b"mdia", b"minf", b"stbl", b"stsd")
    ):
        raise MediaError(ENCRYPTED)
    for sizes in inside(track, b"mdia", b"minf", b"stbl", b"stsz"):
        each, count = int.from_bytes(sizes[4:8], "big"), int.from_bytes(sizes[8:12], "big")
        if is_video and count > max_frames:
            raise MediaError(f"the clip's index claims {count} frames, the limit is {max_frames}")
        if count * (each or 4) > (n_bytes if each else len(sizes)):
            raise MediaError(
                f"the clip's index claims {count} samples, more than the {n_bytes} bytes received can hold"
            )


def _check_run(run: memoryview, n_bytes: int) -> None:
    flags, count = int.from_bytes(run[1:4], "big"), int.from_bytes(run[4:8], "big")
    n_fields = (flags & 0xF00).bit_count()
    if count * max(n_fields * 4, 1) > (len(run) if n_fields else n_bytes):
        raise MediaError(
            f"a fragment of the clip claims {count} samples, more than the {n_bytes} bytes received can hold"
        )
