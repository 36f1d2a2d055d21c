import pytest

from gateway.xtml.vocabulary import Vocab
from tests.shared_data import shared
from tests.xtml.small_vocab import write_small_vocab


@pytest.fixture(scope="session")
def small_vocab(tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    """A vocabulary of a few hundred tokens with the names of K3's special tokens."""
    return Vocab.load(write_small_vocab(tmp_path_factory.mktemp("small-vocab")))


@pytest.fixture(scope="session")
def real_vocab() -> Vocab:
    """K3's own vocabulary; skips where it is not at hand."""
    return Vocab.load(shared("tokenizer"))
