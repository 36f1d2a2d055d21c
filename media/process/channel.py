"""Messages over a Unix socket between the service and a decoding process, with an open file beside each."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from media.types import FileBytes

_LENGTH = struct.Struct(">I")
MAX_MESSAGE = 64 * 1024 * 1024


def send(sock: socket.socket, message: bytes, handle: int | None = None) -> None:
    """Raises OSError, TimeoutError."""
    header = _LENGTH.pack(len(message))
    if handle is None:
        sock.sendall(header)
    elif socket.send_fds(sock, [header], [handle]) != len(header):
        raise OSError("the message header was not sent whole")
    sock.sendall(message)


def receive(sock: socket.socket) -> tuple[bytes, int | None]:
    """A message and the file that came with it, which the caller closes.

    Raises EOFError when the other side is gone, OSError, TimeoutError.
    """
    header, handles, _, _ = socket.recv_fds(sock, _LENGTH.size, 1)
    handle = handles[0] if handles else None
    try:
        if len(header) < _LENGTH.size:
            header += _exactly(sock, _LENGTH.size - len(header))
        (length,) = _LENGTH.unpack(header)
        if length > MAX_MESSAGE:
            raise OSError("the message is too long")
        return _exactly(sock, length), handle
    except BaseException:
        if handle is not None:
            os.close(handle)
        raise


def _exactly(sock: socket.socket, n_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < n_bytes:
        part = sock.recv(n_bytes - len(data))
        if not part:
            raise EOFError("the other side closed the channel")
        data += part
    return bytes(data)


def shared_file(parts: Iterable[FileBytes | NDArray[np.uint8]]) -> int:
    """A handle on an unnamed file in memory that holds `parts`; readers map it. The caller closes it."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("k3-media", os.MFD_CLOEXEC)
    else:  # not Linux
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        for part in parts:
            view = part.data.cast("B") if isinstance(part, np.ndarray) else memoryview(part)
            while view:
                view = view[os.write(handle, view) :]
    except BaseException:
        os.close(handle)
        raise
    return handle
