"""Clients that people use, against a live server. The engine is scripted where a reply's shape matters."""

from tests.api.conftest import checkpoint, ids, server, vocab  # noqa: F401
