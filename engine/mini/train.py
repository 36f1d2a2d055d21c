"""Trains the mini K3 on one GPU: `python -m engine.mini.train --out DIR --seconds 1050`.

The learning rate follows the clock, not the step count: warm-up, constant, then linear to almost nothing at
`--seconds`. DIR gets the weights (bf16, in files below 16 MB), log.jsonl, and state.pt to go on from: the
same command started again continues where it was. Writes DIR/done when the time is over.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.mini import model as model_code
from engine.mini.batch import IGNORED, LABELS, Batch
from engine.mini.build import checkpoint_dir
from engine.mini.checkpoint import initial_tensors, tensor_dtype
from engine.mini.config import MiniConfig
from engine.mini.feeder import Feeder, batches
from engine.mini.model import TrainableK3
from engine.mini.optimizers import Muon, split_parameters

_CLASSES = {"color": 12, "shape": 8, "count": 7, "place": 9, "background": 13, "direction": 4}
_FILE_BYTES = 15_000_000
_UNCOUNTED_STEPS = 3
"""Steps after a start that stand outside the clock: kernels are compiled in them."""


@dataclass(frozen=True)
class Settings:
    """Tokens of a step are rows * row_length.

    seconds, warm_up, save_every, evaluate_every: seconds of training, which add up over restarts; the first
        steps after a start, in which kernels are compiled, do not count
    early_tasks: so many tasks at the beginning have more echoes
    """

    out: Path
    seconds: float = 1050.0
    rows: int = 96
    row_length: int = 1024
    workers: int = 14
    seed: int = 1
    muon_lr: float = 6e-3
    adam_lr: float = 3e-3
    warm_up: float = 25.0
    constant: float = 0.4
    auxiliary: float = 0.3
    early_tasks: int = 40_000
    save_every: float = 60.0
    evaluate_every: float = 60.0
    max_steps: int = 0
    compile: bool = False
    vocabulary: Path | None = None


class Training:
    """Model, optimisers, clock; `run` goes on until the time is over."""

    def __init__(self, settings: Settings, config: MiniConfig | None = None) -> None:
        self.settings = settings
        self.config = config or MiniConfig()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.folder = settings.vocabulary or checkpoint_dir()
        torch.manual_seed(settings.seed)
        self.model = TrainableK3(self.config, initial_tensors(self.config, settings.seed)).to(self.device)
        self.heads = nn.Linear(self.config.vit_hidden_size, sum(_CLASSES.values())).to(self.device)
        muon, matrices, vectors = split_parameters(self.model.named_parameters())
        vectors += list(self.heads.parameters())
        self.adam_parameters = matrices + vectors
        self.muon = Muon(muon, settings.muon_lr)
        self.adam = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
            lr=settings.adam_lr,
            betas=(0.9, 0.95),
            fused=self.device.type == "cuda",
        )
        self.step, self.elapsed, self.starts = 0, 0.0, 0
        settings.out.mkdir(parents=True, exist_ok=True)
        self._resume()
        if settings.compile:
            model_code.compile_elementwise()
        self.held_out = self._held_out()

    @property
    def progress(self) -> float:
        """0 to 1, by the clock (by steps if their number is set)."""
        if self.settings.max_steps:
            return self.step / self.settings.max_steps
        return self.elapsed / self.settings.seconds

    def rate(self) -> float:
        """The learning rates' factor now."""
        constant = self.settings.constant
        falling = 1.0 - max(0.0, self.progress - constant) / (1.0 - constant) * 0.99
        warm = self.progress * self.settings.seconds / self.settings.warm_up if self.settings.warm_up else 1.0
        return min(1.0, warm + 0.01, max(falling, 0.0))

    def run(self) -> None:
        s = self.settings
        n_early = 0 if self.step else s.early_tasks
        seed = f"{s.seed}-{self.starts}"
        feeder = Feeder(self.folder, seed, s.rows, s.row_length, s.workers, self.device, n_early)
        self.starts += 1
        last_save = last_evaluation = self.elapsed
        before, began, first = self.elapsed, time.monotonic(), self.step
        running: defaultdict[str, float] = defaultdict(float)
        n_running, logged = 0, self.elapsed
        while self.progress < 1.0:
            losses = self.train_step(feeder.next())
            n_running += 1
            for name, value in losses.items():
                running[name] += value  # tensors: read only when logged, so that the GPU is not waited for
            if self.step - first <= _UNCOUNTED_STEPS:
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                began = time.monotonic()
            self.elapsed = before + time.monotonic() - began
            if self.step % 20 == 0 or self.progress >= 1.0:
                means = {name: round(float(value) / n_running, 4) for name, value in running.items()}
                speed = n_running * s.rows * s.row_length / max(self.elapsed - logged, 1e-6)
                memory = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else 0.0
                self._log(rate=round(self.rate(), 4), **means, tokens_s=int(speed), gpu_gib=round(memory, 1))
                running.clear()
                n_running, logged = 0, self.elapsed
            if self.elapsed - last_evaluation > s.evaluate_every or self.progress >= 1.0:
                self._log(held_out=self.evaluate())
                last_evaluation = self.elapsed
            if self.elapsed - last_save > s.save_every or self.progress >= 1.0:
                self.save()
                last_save = self.elapsed
        feeder.close()
        (s.out / "done").touch()

    def train_step(self, batch: Batch) -> dict[str, Tensor]:
        """One update; the losses as tensors on the device."""
        factor = self.rate()
        for optimizer, rate in ((self.muon, self.settings.muon_lr), (self.adam, self.settings.adam_lr)):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
        with self._mixed_precision():
            hidden, pooled, loads = self.model(batch)
            chosen = (batch.targets.flatten() != IGNORED).nonzero()[:, 0]
            logits = self.model.logits(hidden.flatten(0, 1).index_select(0, chosen))
            auxiliary = self._auxiliary(self.heads(pooled), batch)
        targets = batch.targets.flatten()[chosen]
        weights = batch.weights.flatten()[chosen]
        losses = F.cross_entropy(logits.float(), targets, reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        share = self.settings.auxiliary * (1.0 if self.progress < 0.5 else 0.33)
        (loss + share * auxiliary).backward()
        for parameter in (*self.model.parameters(), *self.heads.parameters()):
            if parameter.grad is not None:  # a batch that overflows must not ruin the run
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        nn.utils.clip_grad_norm_(self.adam_parameters, 1.0)
        self.muon.step()
        self.adam.step()
        self.muon.zero_grad()
        self.adam.zero_grad()
        self._balance(loads, factor)
        self.step += 1
        return {"loss": loss.detach(), "auxiliary": auxiliary.detach()}

    def _mixed_precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _auxiliary(self, scores: Tensor, batch: Batch) -> Tensor:
        """Mean cross entropy of what the vision tower's pooled output says of each item."""
        parts = scores.float().split(list(_CLASSES.values()), -1)
        losses = [
            F.cross_entropy(part, batch.labels[:, LABELS.index(name)], ignore_index=IGNORED, reduction="sum")
            for name, part in zip(_CLASSES, parts, strict=True)
        ]
        return torch.stack(losses).sum() / (batch.labels != IGNORED).sum().clamp(min=1)

    @torch.no_grad()
    def _balance(self, loads: list[Tensor], factor: float) -> None:
        """Experts with less than their share of tokens become a little more likely to be chosen."""
        for index, load in enumerate(loads, start=1):
            gate = f"language_model.model.layers.{index}.block_sparse_moe.gate.e_score_correction_bias"
            self.model[gate].add_((load.mean() - load).sign(), alpha=1e-3 * factor)

    def _held_out(self) -> list[Batch]:
        s = self.settings
        source = batches(self.folder, "held-out", s.rows, s.row_length, held_out=True)
        return [next(source) for _ in range(2 if s.rows > 8 else 1)]

    @torch.no_grad()
    def evaluate(self) -> dict[str, str]:
        """`hits/all` by skill: whole completions guessed right, each token after the right ones before it."""
        hits: defaultdict[str, list[int]] = defaultdict(list)
        for held_out in self.held_out:
            batch = held_out.to(self.device)
            with self._mixed_precision():
                hidden, _, _ = self.model(batch)
                guesses = self.model.logits(hidden).argmax(-1)
            right = ((guesses == batch.targets) | (batch.targets == IGNORED)).cpu()
            for skill, row, start, end in held_out.spans:
                hits[skill].append(int(right[row, start:end].all()))
        return {skill: f"{sum(all_)}/{len(all_)}" for skill, all_ in sorted(hits.items())}

    def save(self) -> None:
        """The weights as they are now, and everything needed to go on; each file appears whole."""
        out = self.settings.out
        stored = {
            name: t.to(tensor_dtype(name)).cpu().contiguous() for name, t in self.model.tensors().items()
        }
        for number, part in enumerate(_parts(stored), start=1):
            save_file(part, out / f"part-{number}.tmp", metadata={"format": "pt", "step": str(self.step)})
            (out / f"part-{number}.tmp").rename(out / f"part-{number}.safetensors")
        state = {
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "clock": (self.step, self.elapsed, self.starts),
        }
        torch.save(state, out / "state.tmp")
        (out / "state.tmp").rename(out / "state.pt")

    def _resume(self) -> None:
        path = self.settings.out / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        for name in ("model", "heads", "muon", "adam"):
            getattr(self, name).load_state_dict(state[name])
        self.step, self.elapsed, self.starts = state["clock"]

    def _log(self, **fields: Any) -> None:
        line = json.dumps({"step": self.step, "seconds": round(self.elapsed, 1), **fields})
        with (self.settings.out / "log.jsonl").open("a") as log:
            log.write(line + "\n")
        print(line, flush=True)


def _parts(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """In order, each part below the size that one file may have."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size + tensor.nbytes > _FILE_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in Settings(Path()).__dict__.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, Path) or default is None:
            parser.add_argument(flag, type=Path, required=name == "out")
        else:
            parser.add_argument(flag, type=type(default), default=default)
    Training(Settings(**vars(parser.parse_args()))).run()


if __name__ == "__main__":
    main()
