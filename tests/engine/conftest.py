from __future__ import annotations

from pathlib import Path

import pytest

from gateway.xtml import Vocab


@pytest.fixture(scope="session")
def vocab(model_folder: Path) -> Vocab:
    return Vocab.load(model_folder)
