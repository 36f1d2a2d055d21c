from tests.api.conftest import checkpoint, ids, server, vocab

__all__ = ["checkpoint", "ids", "server", "vocab"]
