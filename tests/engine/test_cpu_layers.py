"""The CPU layers against their definitions, on small random tensors."""

from __future__ import annotations

import pytest
import torch

from engine.plugin.cpu.attention_residuals import attention_residual
from engine.plugin.cpu.experts import situ
from engine.plugin.cpu.kda import CHUNK, causal_conv, decay, delta_rule_chunked, delta_rule_step, unit_length


def kda_inputs(n: int, heads: int = 3, width: int = 8, values: int = 6, strongest_decay: float = -5.0):
    generator = torch.Generator().manual_seed(n)
    q, k = (unit_length(torch.randn(n, heads, width, generator=generator)) for _ in range(2))
    v = torch.randn(n, heads, values, generator=generator)
    g = strongest_decay * torch.rand(n, heads, width, generator=generator)
    beta = torch.rand(n, heads, generator=generator)
    state = torch.randn(heads, values, width, generator=generator)
    return q, k, v, g, beta, state


@pytest.mark.parametrize("n", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3])
@pytest.mark.parametrize("strongest_decay", [-0.01, -5.0, -80.0])
def test_chunks_give_what_single_steps_give(n, strongest_decay):
    q, k, v, g, beta, state = kda_inputs(n, strongest_decay=strongest_decay)
    out, end = delta_rule_chunked(q, k, v, g, beta, state)
    stepped = state.unsqueeze(0)
    for i in range(n):
        part = slice(i, i + 1)
        read, stepped = delta_rule_step(q[part], k[part], v[part], g[part], beta[part], stepped)
        torch.testing.assert_close(out[part], read, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(end, stepped[0], rtol=1e-4, atol=1e-5)


def test_a_step_overwrites_what_its_key_held():
    """With full strength and no decay, reading the key just written gives the value just written."""
    _, k, v, g, _, state = kda_inputs(1)
    read, _ = delta_rule_step(k, k, v, torch.zeros_like(g), torch.ones(1, 3), state.unsqueeze(0))
    torch.testing.assert_close(read, v)


def test_the_convolution_continues_across_chunks():
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(11, 5, generator=generator), torch.randn(5, 4, generator=generator)
    past = torch.zeros(5, 3)
    whole, end = causal_conv(x, past, weight)
    first, carried = causal_conv(x[:2], past, weight)
    second, carried = causal_conv(x[2:], carried, weight)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(carried, end)
    padded = torch.nn.functional.pad(x.t(), (3, 0))
    expected = torch.nn.functional.conv1d(padded.unsqueeze(0), weight.unsqueeze(1), groups=5)[0].t()
    torch.testing.assert_close(whole, torch.nn.functional.silu(expected))


def test_decay_is_bounded_below_when_a_bound_is_given():
    raw = torch.linspace(-50, 50, 24).view(4, 2, 3)
    bounded = decay(raw, torch.zeros(2), torch.zeros(6), -5.0)
    assert bounded.min() >= -5.0
    assert bounded.max() <= 0.0
    free = decay(raw, torch.zeros(2), torch.zeros(6), None)
    torch.testing.assert_close(free, -torch.nn.functional.softplus(raw))


def mix_by_hand(sources, norm_weight, qk_weight, eps):
    normed = [norm_weight * s / (s.square().mean() + eps).sqrt() for s in sources]
    weights = torch.stack([qk_weight @ s for s in normed]).softmax(0)
    return sum(weight * source for weight, source in zip(weights, sources, strict=True))


def test_attention_residuals_mix_by_score_and_update_in_place():
    generator = torch.Generator().manual_seed(1)
    n, n_blocks, hidden, eps = 3, 4, 10, 1e-5
    prefix, delta = torch.randn(n, hidden, generator=generator), torch.randn(n, hidden, generator=generator)
    blocks = torch.randn(n, n_blocks, hidden, generator=generator)
    norm, score, out_norm = (torch.randn(hidden, generator=generator) for _ in range(3))
    total, bank = prefix + delta, blocks.clone()
    got = attention_residual(prefix, delta, blocks, norm, score, out_norm, 2, 2, eps, eps)
    torch.testing.assert_close(prefix, total)
    bank[:, 2] = total
    torch.testing.assert_close(blocks, bank)
    for row in range(n):
        mixed = mix_by_hand([*bank[row, :2], total[row]], norm, score, eps)
        expected = out_norm * mixed / (mixed.square().mean() + eps).sqrt()
        torch.testing.assert_close(got[row], expected)


def test_attention_residuals_of_the_first_layer_are_the_stream_itself():
    prefix, blocks = torch.randn(2, 6), torch.zeros(2, 1, 6)
    got = attention_residual(prefix, None, blocks, torch.ones(6), torch.ones(6), None, 0, 0, 1e-5, 0.0)
    torch.testing.assert_close(got, prefix)
    torch.testing.assert_close(blocks[:, 0], prefix)


def test_situ_bounds_both_factors():
    extreme = torch.tensor([[1e4, 1e4]])
    assert situ(extreme, 4.0, 25.0).item() == pytest.approx(100.0)
    assert situ(extreme, 4.0, None).item() == pytest.approx(4e4)
    assert situ(torch.tensor([[-1e4, 3.0]]), 4.0, 25.0).item() == pytest.approx(0.0, abs=1e-6)
