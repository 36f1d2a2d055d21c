"""The trained weights in the repository are the ones that the model card names."""

import hashlib
import json
import re

from safetensors import safe_open

from engine.mini.build import WEIGHTS, checkpoint_dir
from engine.mini.checkpoint import tensor_shapes
from engine.mini.config import MiniConfig

PARTS = sorted(WEIGHTS.glob("*.safetensors"))


def test_the_card_has_the_hash_of_each_file():
    listed = dict(
        reversed(p) for p in re.findall(r"^(\w{64})  (\S+)$", (WEIGHTS / "README.md").read_text(), re.M)
    )
    assert listed == {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in PARTS}


def test_the_weights_are_those_of_the_last_line_of_the_log():
    steps = set()
    for part in PARTS:
        with safe_open(part, "pt") as tensors:
            steps.add(int(tensors.metadata()["step"]))
    last = json.loads((WEIGHTS / "log.jsonl").read_text().splitlines()[-1])
    assert steps == {last["step"]}


def test_the_built_checkpoint_has_them():
    trained = {}
    for part in PARTS:
        with safe_open(part, "pt") as tensors:
            trained |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    assert {name: tuple(tensor.shape) for name, tensor in trained.items()} == tensor_shapes(MiniConfig())
    with safe_open(checkpoint_dir() / "model.safetensors", "pt") as built:
        assert all(built.get_tensor(name).equal(tensor) for name, tensor in trained.items())
