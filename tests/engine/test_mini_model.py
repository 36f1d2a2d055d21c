"""The trainable model computes what the reference computes."""

import numpy as np
import pytest
import torch

from engine.mini.batch import Encoded, Packer
from engine.mini.checkpoint import initial_tensors
from engine.mini.chunked_kda import chunked_kda
from engine.mini.config import MiniConfig
from engine.mini.model import TrainableK3
from engine.mini.reference import MiniK3
from engine.mini.vocabulary import special_id
from media.types import MediaItem

CONFIG = MiniConfig()
PAD = special_id("<|media_pad|>", CONFIG.n_ranks)


@pytest.fixture(scope="module")
def tensors():
    tensors = initial_tensors(CONFIG, seed=1)
    source = torch.Generator().manual_seed(2)
    for name, tensor in tensors.items():
        if name.endswith(("res_proj.weight", "A_log", "e_score_correction_bias")):
            tensor.copy_(torch.randn(tensor.shape, generator=source) * 0.3)
        if "norm" in name:
            tensor.mul_(1 + torch.randn(tensor.shape, generator=source) * 0.2)
    return tensors


def item(grid, seed):
    shape = (int(np.prod(grid)), 3, 14, 14)
    return MediaItem(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8), grid, str(seed))


def sample(n, seed, grids=()):
    ids = np.random.default_rng(seed).integers(0, CONFIG.n_ranks, n)
    media, offset = [], 3
    for number, grid in enumerate(grids):
        medium = item(grid, 100 * seed + number)
        ids[offset : offset + medium.n_tokens] = PAD
        media.append((offset, medium, {}))
        offset += medium.n_tokens + 2
    return Encoded("test", ids.tolist(), n - 4, media)


def test_packed_rows_give_the_logits_of_each_conversation_alone(tensors):
    samples = [
        sample(37, 1),
        sample(50, 2, [(1, 4, 4), (1, 6, 8)]),
        sample(16, 3),
        sample(60, 4, [(4, 4, 4), (3, 4, 4), (2, 4, 6)]),
        sample(21, 5, [(1, 16, 16)] and [(1, 2, 2)]),
    ]
    packer = Packer(2, 128, pad_id=0)
    assert [packer.add(s) for s in samples] == [None] * len(samples)
    batch = packer.flush()
    model = TrainableK3(CONFIG, tensors)
    with torch.no_grad():
        hidden, _, _ = model(batch)
        logits = model.logits(hidden)
    reference = MiniK3(CONFIG.to_json(), tensors)
    assert len(batch.spans) == len(samples)
    for (_, row, start, end), expected in zip(batch.spans, _in_row_order(samples, batch), strict=True):
        media = [(offset, m.patches, m.grid) for offset, m, _ in expected.media]
        alone = reference.logits(expected.ids, media).log_softmax(-1)
        packed = logits[row, start - expected.n_prompt + 1 : end + 1].log_softmax(-1)
        assert (alone - packed).abs().max() < 1e-3


def _in_row_order(samples, batch):
    by_ids = {tuple(s.ids): s for s in samples}
    for _, row, start, end in batch.spans:
        yield next(
            s
            for ids, s in by_ids.items()
            if s.n_prompt <= start + 1
            and tuple(batch.ids[row, start + 1 - s.n_prompt : end + 1].tolist()) == ids
        )


def kda_inputs(length, seed=0):
    source = torch.Generator().manual_seed(seed)
    q, k, v, raw = (torch.randn(2, length, 3, 8, generator=source, dtype=torch.float32) for _ in range(4))
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    decay = -5 * torch.sigmoid(raw * 4)
    beta = torch.rand(2, length, 3, generator=source)
    starts = torch.zeros(2, length // 16, dtype=torch.bool)
    starts[:, 0] = True
    starts[1, 2] = True
    return [q, k, v, decay, beta], starts


def token_by_token(q, k, v, log_decay, beta, starts):
    rows, length, heads, width = q.shape
    state = q.new_zeros(rows, heads, width, width)
    outputs = []
    for t in range(length):
        if t % 16 == 0:
            state = state * (~starts[:, t // 16])[:, None, None, None]
        state = state * log_decay[:, t].exp()[..., None]
        correction = beta[:, t, :, None] * (v[:, t] - torch.einsum("rhk,rhkv->rhv", k[:, t], state))
        state = state + torch.einsum("rhk,rhv->rhkv", k[:, t], correction)
        outputs.append(torch.einsum("rhk,rhkv->rhv", q[:, t], state))
    return torch.stack(outputs, 1)


def test_chunked_kda_and_its_gradients_equal_the_token_loop():
    inputs, starts = kda_inputs(64)
    inputs = [x.requires_grad_() for x in inputs]
    grad = torch.randn(2, 64, 3, 8, generator=torch.Generator().manual_seed(5))
    results = []
    for function in (chunked_kda, token_by_token):
        out = function(*inputs, starts)
        results.append([out, *torch.autograd.grad(out, inputs, grad)])
    for chunked, loop in zip(*results, strict=True):
        assert (chunked - loop).abs().max() < 1e-4 * max(1.0, loop.abs().max().item())


def test_chunked_kda_survives_the_strongest_and_the_weakest_decay():
    inputs, starts = kda_inputs(64)
    inputs[1] = torch.nn.functional.normalize(torch.ones_like(inputs[1]), dim=-1)  # equal keys
    inputs[4] = torch.ones_like(inputs[4])
    for decay in (-5.0, -1e-4):
        inputs[3] = torch.full_like(inputs[3], decay)
        expected = token_by_token(*inputs, starts)
        assert (chunked_kda(*inputs, starts) - expected).abs().max() < 1e-3


def test_trainable_model_gives_back_the_checkpoints_tensors(tensors):
    back = TrainableK3(CONFIG, tensors).tensors()
    assert set(back) == set(tensors)
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_a_conversation_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="65 tokens"):
        Packer(1, 64, pad_id=0).add(sample(65, 1))
