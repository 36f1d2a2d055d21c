"""What a decoding process is asked to do. Goes to it as a pickle, so nothing here may hold secrets."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass

from media.config import MediaConfig
from media.formats import CONVERT
from media.limits import ClipLimits
from media.picture import prepare_picture, set_pillow_limit
from media.process import channel
from media.types import Clip, Picture


class ServiceGone(BaseException):
    """Nobody waits for the answer; not an error of the file, so nothing that handles those may catch it."""


@dataclass(frozen=True, slots=True)
class PictureJob:
    config: MediaConfig
    detail: str
    pixel_limit: int

    @property
    def remedy(self) -> str:
        return "save it anew, e.g. as PNG"

    def run(self, data: bytes, sock: socket.socket) -> Picture:
        """Prepares the picture; asks the service first whether memory for its pixels may be taken."""

        def admit(n_pixels: int) -> None:
            try:
                channel.send(sock, json.dumps({"pixels": n_pixels}).encode())
                channel.receive(sock)
            except (EOFError, OSError) as error:
                raise ServiceGone from error

        set_pillow_limit(self.pixel_limit)
        return prepare_picture(data, self.config, self.detail, pixel_limit=self.pixel_limit, admit=admit)


@dataclass(frozen=True, slots=True)
class ClipJob:
    config: MediaConfig
    limits: ClipLimits | None

    @property
    def remedy(self) -> str:
        return CONVERT

    def run(self, data: bytes, sock: socket.socket) -> Clip:
        from media.clip import prepare_clip  # PyAV is large; most workers never see a video

        return prepare_clip(data, self.config, self.limits)


Job = PictureJob | ClipJob
