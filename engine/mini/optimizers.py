"""Muon for the matrices inside the network, AdamW for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal by Newton-Schulz steps; matrices of a shape go together.

    Three-dimensional parameters are stacks of matrices, each orthogonalised alone. The update's size is
    0.2 * sqrt(longer side) per unit of `lr`, which is about AdamW's.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.05
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape[-2:]].append(parameter)
            for shape, parameters in by_shape.items():
                self._step_shape(shape, parameters, group)

    def _step_shape(self, shape: torch.Size, parameters: list[nn.Parameter], group: dict[str, float]) -> None:
        grads = [p.grad for p in parameters]
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, grads)
        ahead = torch._foreach_add(grads, momenta, alpha=group["momentum"])
        stacks = [a.view(-1, *shape) for a in ahead]
        update = orthogonal(torch.cat(stacks))
        size = group["lr"] * 0.2 * max(shape) ** 0.5
        parts = [
            part.view_as(p).to(p.dtype)
            for part, p in zip(update.split([len(s) for s in stacks]), parameters, strict=True)
        ]
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, parts, alpha=-size)


def orthogonal(stack: Tensor, steps: int = 5) -> Tensor:
    """About the nearest orthogonal matrix of each (n, rows, columns) matrix; in bfloat16 on a GPU."""
    x = stack.bfloat16() if stack.is_cuda else stack
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


_ADAM_NAMES = (
    "embed_tokens",
    "lm_head",
    "gate/weight",
    "b_proj",
    "conv1d",
    "pos_emb",
    "patch_embed",
    "res_proj",
)


def split_parameters(
    named: Iterable[tuple[str, nn.Parameter]],
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """(matrices for Muon, matrices for AdamW, vectors for AdamW)"""
    muon, matrices, vectors = [], [], []
    for name, parameter in named:
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2 or "conv1d" in name:
            vectors.append(parameter)
        elif any(part in name for part in _ADAM_NAMES):
            matrices.append(parameter)
        else:
            muon.append(parameter)
    return muon, matrices, vectors
