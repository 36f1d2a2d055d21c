"""A process that decodes what strangers send: `python -m media.process.worker`, started by `pool`.

It has no secrets in its environment and a limit on its memory, and may be killed at any time.
Requests are pickled jobs from the service; replies are JSON, so that a decoder that was taken over cannot
make the service run code.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from typing import Any

from media.packing import pack
from media.process import channel
from media.process.jobs import Job, ServiceGone
from media.types import MediaError

_STDERR = 2
# Below the service: where all processors are busy with pictures, its event loop must not wait for them.
_NICE = 5


def main(handle: int, memory_limit: int) -> None:
    """Serve jobs until the service closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    sock = socket.socket(fileno=handle)
    _reply(sock, {"ready": True})
    # Decoding libraries print complaints about damaged files.
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
    while True:
        try:
            message, file = channel.receive(sock)
            assert file is not None
            _serve(sock, pickle.loads(message), file)
        except (EOFError, OSError, ServiceGone):  # or it does not want this answer any more
            return


def _serve(sock: socket.socket, job: Job, file: int) -> None:
    """Answer one job. Raises OSError and ServiceGone where the service is gone."""
    try:
        answer, result = _answer(sock, job, file)
    finally:
        os.close(file)
    _reply(sock, answer, result)
    if result is not None:
        os.close(result)


def _answer(sock: socket.socket, job: Job, file: int) -> tuple[dict[str, Any], int | None]:
    """What to say of a file, and the handle of its patches.

    Whatever a decoder raises is about the file (docs/decisions.md#r24).
    """
    try:
        length = os.fstat(file).st_size
        data = b""
        if length:
            with mmap.mmap(file, length, access=mmap.ACCESS_READ) as mapped:
                data = bytes(mapped)
        media = job.run(data, sock)
    except MediaError as error:
        return {"error": str(error)}, None
    except MemoryError:
        return {"error": "the file needs too much memory to decode"}, None
    except Exception as error:
        words = f"the file cannot be decoded: its decoder failed with {type(error).__name__}; {job.remedy}"
        return {"error": words, "trace": traceback.format_exc()[-4000:]}, None
    header, arrays = pack(media)
    try:
        return {"media": header}, channel.shared_file(arrays)
    except OSError as error:
        return {"no_room": error.strerror or "no room"}, None


def _reply(sock: socket.socket, message: dict[str, Any], handle: int | None = None) -> None:
    channel.send(sock, json.dumps(message).encode(), handle)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
