from tests.api.conftest import checkpoint, ids, pushes, server, vocab

__all__ = ["checkpoint", "ids", "pushes", "server", "vocab"]
