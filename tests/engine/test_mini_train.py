"""The training script on a CPU, with a model small enough for that."""

import json

import pytest
import torch
from safetensors.torch import load_file

from engine.mini.batch import Packer
from engine.mini.build import checkpoint_dir
from engine.mini.checkpoint import tensor_shapes, write_checkpoint
from engine.mini.config import MiniConfig
from engine.mini.optimizers import orthogonal
from engine.mini.reference import MiniK3
from engine.mini.samples import SKILLS, encode_task
from engine.mini.skills.base import Source
from engine.mini.train import Settings, Training
from gateway.xtml import Vocab

TINY = MiniConfig(
    hidden_size=64, n_layers=3, full_attn_layers=(3,), attn_res_block_size=2, dense_intermediate_size=96,
    kda_heads=2, kda_head_dim=16, mla_heads=2, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16,
    qk_rope_head_dim=16, v_head_dim=16, n_experts=4, expert_hidden_size=32, expert_intermediate_size=32,
    vit_layers=1, vit_hidden_size=32, vit_intermediate_size=48, vit_heads=2, vit_qkv_size=32,
)  # fmt: skip


def training(out, steps, **changes):
    settings = {"rows": 1, "row_length": 256, "workers": 0, "max_steps": steps, "warm_up": 0.0, **changes}
    return Training(Settings(out=out, **settings), TINY)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Waiting threads cost more than they bring where the operations are this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    training(out, 3).run()
    return out


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_the_loss_falls(tmp_path):
    model = training(tmp_path, 10)
    batch = model.held_out[0]
    losses = [float(model.train_step(batch)["loss"]) for _ in range(10)]
    assert losses[-1] < losses[0] - 0.5


def test_every_parameter_has_a_gradient(tmp_path):
    """But the first layer's residual weights: with one source there is nothing to weigh."""
    model = training(tmp_path, 10, row_length=512)
    source, vocab = Source(1), Vocab.load(checkpoint_dir())
    packer = Packer(2, 512, pad_id=0)
    for skill in ("picture", "video", "echo"):
        packer.add(encode_task(SKILLS[skill][0](source), "low", vocab))
    batch = packer.flush()
    named = dict(model.model.named_parameters())
    learned = {n: p for n, p in named.items() if p.requires_grad and "0/self_attention_res" not in n}
    with torch.no_grad():  # projections of zero would hide the norms before them
        for name, parameter in learned.items():
            parameter.add_(0.1 if "res_proj" in name else 0.0)
    hidden, pooled, _ = model.model(batch)
    (model.model.logits(hidden).logsumexp(-1).sum() + pooled.sum()).backward()
    still = [name for name, p in learned.items() if p.grad is None or not p.grad.abs().sum()]
    assert not still


def test_the_weights_are_those_of_a_checkpoint(trained, tmp_path):
    tensors = {}
    for part in sorted(trained.glob("part-*.safetensors")):
        assert part.stat().st_size < 16_000_000
        tensors |= load_file(part)
    assert {name: tuple(t.shape) for name, t in tensors.items()} == tensor_shapes(TINY)
    write_checkpoint(tmp_path, TINY, tensors)
    assert MiniK3.load(tmp_path).logits([1, 2, 3]).isfinite().all()


def test_the_log_has_losses_and_held_out_scores(trained):
    log = log_of(trained)
    assert log[-1]["step"] == 3
    assert any("loss" in line for line in log)
    assert any(line["held_out"] for line in log if "held_out" in line)
    assert (trained / "done").exists()


def test_training_goes_on_where_it_was(tmp_path):
    first = training(tmp_path, 8)
    batch = first.held_out[0]
    for _ in range(2):
        first.train_step(batch)
    first.save()
    again = training(tmp_path, 8)
    assert again.step == 2
    both = [list(t.model.parameters()) for t in (first, again)]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    losses = [float(t.train_step(batch)["loss"]) for t in (first, again)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*both, strict=True))


def test_orthogonal_brings_singular_values_near_one():
    stack = torch.randn(3, 20, 50, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(stack).float())
    assert values.min() > 0.5
    assert values.max() < 1.4
