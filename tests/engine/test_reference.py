"""The plain-PyTorch K3: properties that any K3 has, whatever its weights."""

import numpy as np
import pytest
import torch

from engine.mini.checkpoint import initial_tensors
from engine.mini.config import MiniConfig
from engine.mini.reference import MiniK3
from engine.mini.vocabulary import special_id

CONFIG = MiniConfig()
PAD = special_id("<|media_pad|>", CONFIG.n_ranks)


@pytest.fixture(scope="module")
def model():
    tensors = initial_tensors(CONFIG, seed=1)
    source = torch.Generator().manual_seed(2)
    for name, tensor in tensors.items():
        # What is zero at the start would hide mistakes.
        if name.endswith(("res_proj.weight", "A_log", "e_score_correction_bias")):
            tensor.copy_(torch.randn(tensor.shape, generator=source) * 0.3)
    return MiniK3(CONFIG.to_json(), tensors)


def random_ids(n, seed=0):
    return torch.randint(CONFIG.n_ranks, (n,), generator=torch.Generator().manual_seed(seed))


def random_patches(grid, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (int(np.prod(grid)), 3, 14, 14), dtype=np.uint8)


def test_logits_have_one_row_per_token(model):
    assert model.logits(random_ids(9)).shape == (9, CONFIG.vocab_size)


def test_a_token_changes_nothing_before_it(model):
    ids = random_ids(30)
    other = ids.clone()
    other[20] = (other[20] + 1) % CONFIG.n_ranks
    same, changed = (model.logits(ids) - model.logits(other)).abs().amax(-1).split([20, 10])
    assert same.max() < 1e-5
    assert changed.min() > 1e-4


def test_token_order_matters(model):
    ids = random_ids(12)
    assert (model.logits(ids)[-1] - model.logits(ids.flip(0))[-1]).abs().max() > 1e-3


def test_media_features_replace_the_placeholders_and_nothing_else(model):
    ids = random_ids(20)
    ids[5:9] = PAD
    media = [(5, random_patches((1, 4, 4)), (1, 4, 4))]
    with_picture, without = model.logits(ids, media), model.logits(ids)
    assert (with_picture[:5] - without[:5]).abs().max() < 1e-5
    assert (with_picture[5:] - without[5:]).abs().amax(-1).min() > 1e-4


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
def test_a_chunk_takes_as_many_tokens_as_one_frame(model, frames):
    grid = (frames, 4, 6)
    assert model.media_features(random_patches(grid), grid).shape == (6, CONFIG.hidden_size)


def test_order_of_frames_matters(model):
    grid = (4, 4, 4)
    patches = random_patches(grid)
    backwards = patches.reshape(4, 16, 3, 14, 14)[::-1].reshape(patches.shape).copy()
    assert np.abs(model.media_features(patches, grid) - model.media_features(backwards, grid)).max() > 1e-3


def test_position_of_a_patch_matters(model):
    patches = random_patches((1, 4, 4))
    moved = np.roll(patches, 4, axis=0)
    difference = model.media_features(patches, (1, 4, 4)).sum(0) - model.media_features(moved, (1, 4, 4)).sum(
        0
    )
    assert difference.abs().max() > 1e-3
