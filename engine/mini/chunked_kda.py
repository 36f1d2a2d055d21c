"""Kimi Delta Attention in chunks of 16 tokens, differentiable: matrix products instead of a loop over tokens.

Within a chunk the delta rule is a triangular system, solved for all chunks at once. What a chunk does to the
state is then one affine map (S -> P S + R), so the only sequential part is one small product per chunk.

With gates of at least -5 the decay inside half a chunk stays above exp(-40): products of `exp(b - r)` and
`exp(r - b)` around the chunk's middle r are safe in float32. Everything here is float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 16


def chunked_kda(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, starts: Tensor) -> Tensor:
    """Outputs (rows, T, h, d) of the delta rule; T is a multiple of 16.

    q, k, v:   (rows, T, h, d); q scaled, q and k normed
    log_decay: (rows, T, h, d), in [-5, 0]
    beta:      (rows, T, h)
    starts:    (rows, T / 16) bool, true where a chunk begins with an empty state
    """
    q, k, v, log_decay = (_chunks(x) for x in (q, k, v, log_decay))  # (chunks, rows * h, 16, d)
    beta = _chunks(beta[..., None])  # (chunks, rows * h, 16, 1)
    b = log_decay.cumsum(2)
    middle = b[:, :, CHUNK // 2 - 1 : CHUNK // 2]
    k_up, k_down, q_up = k * (b - middle).exp(), k * (middle - b).exp(), q * (b - middle).exp()
    influence = (beta * (k_up @ k_down.mT)).tril(-1)  # of an earlier token on a later one's correction
    solve = _UnitLowerInverse.apply(influence)
    decay = b.exp()
    w = solve @ (beta * k * decay)
    u = solve @ (beta * v)
    end = b[:, :, -1:]
    k_end = (k * (end - b).exp()).mT  # (chunks, rows * h, d, 16)
    p = torch.diag_embed(end.exp().squeeze(2)) - k_end @ w
    r = k_end @ u
    heads = q.shape[1] // starts.shape[0]
    keep = (~starts).repeat_interleave(heads, 0).T[:, :, None, None].to(q.dtype)  # (chunks, rows * h, 1, 1)
    state = _Scan.apply(p[:-1] * keep[1:], r[:-1] * keep[1:])  # what each chunk begins with
    out = (q * decay) @ state + (q_up @ k_down.mT).tril() @ (u - w @ state)
    rows = starts.shape[0]
    return out.unflatten(1, (rows, heads)).permute(1, 0, 3, 2, 4).flatten(1, 2)


def _chunks(x: Tensor) -> Tensor:
    """(rows, T, h, d) -> (T / 16, rows * h, 16, d) float32"""
    return x.float().unflatten(1, (-1, CHUNK)).permute(1, 0, 3, 2, 4).flatten(1, 2)


class _UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A (..., n, n), row by row."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        inverse = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand_as(a).clone()
        for i in range(1, a.shape[-1]):
            inverse[..., i, :i] = -(a[..., i : i + 1, :i] @ inverse[..., :i, :i]).squeeze(-2)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ grads[0] @ inverse.mT).tril(-1)


class _Scan(torch.autograd.Function):
    """S[0] = 0, S[c + 1] = P[c] S[c] + R[c]; P, R (n - 1, m, d, d) -> S (n, m, d, d)."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, r: Tensor) -> Tensor:
        states = r.new_zeros(r.shape[0] + 1, *r.shape[1:])
        for c in range(r.shape[0]):
            torch.baddbmm(r[c], p[c], states[c], out=states[c + 1])
        ctx.save_for_backward(p, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        p, states = ctx.saved_tensors
        totals = grads[0].clone()
        for c in range(p.shape[0] - 1, -1, -1):
            totals[c].baddbmm_(p[c].mT, totals[c + 1])
        return totals[1:] @ states[:-1].mT, totals[1:]
