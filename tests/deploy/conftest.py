"""The live server with a scripted engine is the API tests' own."""

import socket

import pytest

from tests.api.conftest import checkpoint, ids, pushes, server, vocab

__all__ = ["checkpoint", "ids", "pushes", "server", "vocab"]


@pytest.fixture
def free_port() -> int:
    """A port that nothing listens on; for programs that cannot be given port 0."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
