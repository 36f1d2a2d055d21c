"""Measures every patch's case on the vLLM that is on the path, without and with the patch; prints JSON.

Run in a process of its own (`python -m tests.patches.scenarios`), since what is patched stays patched; the
report of all patches is measured in a fork, which sees vLLM as it was imported. All
layers are vLLM's own, with real K3 row counts; the kernel is an exact dequantised matrix product.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import torch

from patches import (
    fp8_pb,
    fp8_pb_gate_gap,
    mm_prompt_updates,
    mxfp8_kv_b_input,
    nvfp4_per_token,
    nvfp4_situ_scale,
    prefix_block_copy,
    registry,
    vision_dtype,
)
from patches.probes import (
    BLOCK,
    BlockFp8Tensor,
    ExactKernel,
    bare_layer,
    block_fp8_config,
    block_fp8_method,
    engine_stage,
    integers,
    load_shards,
    load_tensor,
    loaded_layer,
    mixed_config,
    product,
    replaced,
)

TENSOR_PARALLEL_SIZES = (1, 4, 8, 16)
HEADS, HEAD_ROWS = 96, 128
Q_LORA, KV_LORA, ROPE = 1536, 512, 64

# K3's cache on one GPU in bf16: a KDA layer's state and an MLA layer's block, in bytes.
KDA_STATE_BYTES, MLA_TOKENS, MLA_TOKEN_BYTES = 814_080, 768, 2 * (KV_LORA + ROPE)
N_CACHE_BLOCKS, BLOCK_COPIES = 4, [(1, 2), (0, 3)]


def outcome(measure: Callable[[], Any]) -> Any:
    """What `measure` returns, or the error it raises as text: without a patch some cases do not load."""
    try:
        return measure()
    except (ValueError, RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def n_wrong(actual: Any, expected: Any) -> int:
    """Columns in which two (n, columns) products differ at all."""
    return int((actual != expected).any(0).sum())


def load_repeatedly(layer: Any, load: Callable[[], None], n_loads: int) -> None:
    """Load as vLLM's weight reload does: the parameters as they were created, then load and process."""
    as_created = {name: (param, param.data.clone()) for name, param in layer.named_parameters()}
    for _ in range(n_loads):
        for name, (param, data) in as_created.items():
            param.data = data.clone()
            layer.register_parameter(name, param)
        load()


# The MLA front projection [q_a | kv_a | gate]


def gate_tensors() -> list[BlockFp8Tensor]:
    rows = (Q_LORA, KV_LORA + ROPE, HEADS * HEAD_ROWS)
    return [BlockFp8Tensor(n, BLOCK, seed) for seed, n in enumerate(rows, start=1)]


def gate_wrong_columns(size: int, rank: int, tensors: list[BlockFp8Tensor], n_loads: int = 1) -> list[int]:
    """Wrong columns of q_a, kv_a and this rank's gate; loaded `n_loads` times, like a weight update."""
    from vllm.model_executor.layers import linear

    x = integers(2, BLOCK)
    gate = HEADS * HEAD_ROWS // size
    with engine_stage(tensor_parallel_size=size, tensor_parallel_rank=rank):
        layer = linear.KimiK3MergedQKVGateLinear(
            hidden_size=BLOCK,
            q_lora_rank=Q_LORA,
            kv_lora_rank=KV_LORA,
            qk_rope_head_dim=ROPE,
            total_num_heads=HEADS,
            v_head_dim=HEAD_ROWS,
            quant_config=block_fp8_config(),
            prefix="probe.fused_qkv_a_g_proj",
        )
        load_repeatedly(layer, lambda: load_shards(layer, tensors), n_loads)
        out = product(layer, x)
        if n_loads > 1:
            # Post-processing once more, without a load before it, must change nothing either.
            layer.quant_method.process_weights_after_loading(layer)
            assert torch.equal(product(layer, x), out)
    assert out.shape == (2, Q_LORA + KV_LORA + ROPE + gate)
    assert out.is_contiguous()
    parts = out.split([Q_LORA, KV_LORA + ROPE, gate], dim=-1)
    rows = [slice(None), slice(None), slice(rank * gate, (rank + 1) * gate)]
    expected = [x.float() @ t.dequantised()[r].T for t, r in zip(tensors, rows, strict=True)]
    return [n_wrong(a, e) for a, e in zip(parts, expected, strict=True)]


def gate_gap() -> Any:
    from vllm.model_executor.layers import linear

    if not hasattr(linear, "KimiK3MergedQKVGateLinear"):
        return None
    tensors = gate_tensors()

    def every_rank(n_loads: int) -> dict[str, list[list[int]]]:
        return {
            str(size): [gate_wrong_columns(size, rank, tensors, n_loads) for rank in range(size)]
            for size in TENSOR_PARALLEL_SIZES
        }

    before = every_rank(n_loads=1)
    fp8_pb_gate_gap.apply()
    fp8_pb_gate_gap.apply()
    return {"before": before, "after": every_rank(n_loads=1), "reloaded": every_rank(n_loads=2)}


def gate_gap_bias() -> Any:
    """Wrong columns with a bias added in the linear method; the patch must be in."""
    from vllm.model_executor.layers import linear

    if not hasattr(linear, "KimiK3MergedQKVGateLinear"):
        return None
    tensors = [BlockFp8Tensor(n, BLOCK, seed) for seed, n in enumerate((128, 192, 256), start=1)]
    x, bias = integers(2, BLOCK), torch.arange(576, dtype=torch.float32)
    with engine_stage():
        layer = linear.KimiK3MergedQKVGateLinear(
            hidden_size=BLOCK, q_lora_rank=128, kv_lora_rank=128, qk_rope_head_dim=64, total_num_heads=2,
            v_head_dim=128, quant_config=block_fp8_config(), prefix="probe.fused_qkv_a_g_proj",
        )  # fmt: skip
        load_shards(layer, tensors)
        out = layer.quant_method.apply(layer, x, bias).float()
    return n_wrong(out, x.float() @ torch.cat([t.dequantised() for t in tensors]).T + bias)


# The KDA front projection [q | k | v | g | f_a | b | filler]


def kda_tensors() -> list[BlockFp8Tensor]:
    rows = [HEADS * HEAD_ROWS] * 4 + [HEAD_ROWS, HEADS]
    return [BlockFp8Tensor(n, BLOCK, seed) for seed, n in enumerate(rows, start=1)]


def kda_wrong_columns(size: int, rank: int, tensors: list[BlockFp8Tensor]) -> int:
    """Wrong columns of one rank's projection, built, filled up and loaded as K3's KDA layer does it."""
    layer_class = fp8_pb._kda_projection_class()
    widths = [HEADS * HEAD_ROWS] * 4 + [HEAD_ROWS, HEADS]
    local = [w // size for w in widths[:4]] + [HEAD_ROWS, HEADS // size]
    knows_filler = "padding_size" in inspect.signature(layer_class.__init__).parameters
    filler = -sum(local) % (BLOCK if knows_filler else 16)
    x = integers(2, BLOCK)
    with engine_stage(tensor_parallel_size=size, tensor_parallel_rank=rank):
        layer = layer_class(
            BLOCK,
            [*widths, *([filler * size] if filler else [])],
            4,
            size,
            **({"padding_size": filler} if knows_filler else {}),
            bias=False,
            quant_config=block_fp8_config(),
            prefix="probe.in_proj_qkvgfab",
        )
        load_shards(layer, tensors)
        out = product(layer, x)[:, : sum(local)]
    rows = [slice(rank * n, (rank + 1) * n) for n in local]
    rows[4] = slice(None)
    expected = torch.cat([t.dequantised()[r] for t, r in zip(tensors, rows, strict=True)])
    return n_wrong(out, x.float() @ expected.T)


def kda_projection() -> dict[str, list[Any]]:
    tensors = kda_tensors()
    return {
        str(size): [outcome(lambda: kda_wrong_columns(size, rank, tensors)) for rank in range(size)]  # noqa: B023
        for size in TENSOR_PARALLEL_SIZES
    }


# Block-scaled FP8, part by part


def dispatched() -> dict[str, str]:
    """The linear method that each of K3's projections gets from a mixed-precision checkpoint."""
    from vllm.model_executor.layers.linear import ReplicatedLinear
    from vllm.models.kimi_k3.nvidia.model import KimiLinearModel

    kda = ["q_proj", "k_proj", "v_proj", "g_proj", "b_proj", "f_a_proj", "f_b_proj", "o_proj"]
    mla = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"]
    config = mixed_config(**dict.fromkeys(kda + mla, "FP8_PB_WO"))
    config.packed_modules_mapping = KimiLinearModel.packed_modules_mapping
    names = ["in_proj_qkvgfab", "fused_qkv_a_proj", "kv_b_proj", "o_proj", "lm_head"]
    with engine_stage():
        return {
            name: type(
                config.get_quant_method(ReplicatedLinear.__new__(ReplicatedLinear), f"probe.{name}")
            ).__name__
            for name in names
        }


def partial_block() -> Any:
    """Wrong columns of a block and a half of rows, with a bias, loaded twice."""
    tensor = BlockFp8Tensor(BLOCK + BLOCK // 2, BLOCK, seed=1)
    x, bias = integers(2, BLOCK), torch.arange(192, dtype=torch.float32)
    with engine_stage():
        method = block_fp8_method()
        layer = bare_layer(method, *tensor.weight.shape)
        load_repeatedly(layer, lambda: load_tensor(layer, tensor), n_loads=2)
        out = method.apply(layer, x, bias).float()
    return n_wrong(out, x.float() @ tensor.dequantised().T + bias)


def absorbed() -> float:
    """Largest error of the weights that K3's MLA absorbs, through a kernel that moves its scales."""
    from vllm.model_executor.layers.attention import mla_attention

    tensor = BlockFp8Tensor(2 * BLOCK, BLOCK, seed=1)
    with engine_stage(ExactKernel(requantises=True)):
        layer = loaded_layer(block_fp8_method(), tensor, prefix="model.layers.3.self_attn.kv_b_proj")
        weights = mla_attention.get_and_maybe_dequant_weights(layer, out_dtype=torch.float32)
    return float((weights.float() - tensor.dequantised()).abs().max())


def n_post_loads() -> int:
    with engine_stage() as kernel:
        loaded_layer(block_fp8_method(), BlockFp8Tensor(BLOCK, BLOCK, seed=1))
    return kernel.n_post_loads


def latent_dtype(probe: Callable[[], Any]) -> str:
    return probe().verdict


def block_fp8_parts() -> dict[str, Any]:
    return {
        "dispatch": dispatched(),
        "kv-b-input": latent_dtype(fp8_pb.probe_kv_b_input),
        "post-load": n_post_loads(),
        "partial-block": outcome(partial_block),
        "shared-scale": kda_projection(),
        "absorbed-weights": absorbed(),
    }


def block_fp8() -> dict[str, Any]:
    before = block_fp8_parts()
    # As apply_all does it: only the parts whose probe finds the defect, all probes first.
    defects = [part for part in fp8_pb.PATCH.parts if part.probe().verdict == "defect"]
    for part in defects * 2:
        part.apply()
    return {"patched": [part.name for part in defects], "before": before, "after": block_fp8_parts()}


# The others


def mxfp8_latent() -> dict[str, str]:
    before = latent_dtype(mxfp8_kv_b_input.probe)
    mxfp8_kv_b_input.apply()
    other = mxfp8_kv_b_input._RecordingKernel()
    layer = mxfp8_kv_b_input._mxfp8_layer(other)
    layer.prefix = "model.layers.3.mlp.down_proj"
    layer.quant_method.apply(layer, torch.zeros(1, 128).to(torch.float8_e4m3fn), None)
    return {
        "before": before,
        "after": latent_dtype(mxfp8_kv_b_input.probe),
        "another layer's input": str(other.seen),
    }


def prompt_updates() -> Any:
    """No published release has the defect: the pre-release state is made by taking K3's own override away."""
    from vllm.multimodal.processing import BaseMultiModalProcessor

    if not hasattr(BaseMultiModalProcessor, "_hf_processor_applies_updates"):
        return {"published": mm_prompt_updates.probe().verdict}
    from vllm.models.kimi_k3.common.mm_preprocess import KimiK3MultiModalProcessor

    published = mm_prompt_updates.probe().verdict
    override = KimiK3MultiModalProcessor._hf_processor_applies_updates
    del KimiK3MultiModalProcessor._hf_processor_applies_updates
    try:
        before = mm_prompt_updates.probe().verdict
        mm_prompt_updates.apply()
        after = mm_prompt_updates.probe().verdict
    finally:
        KimiK3MultiModalProcessor._hf_processor_applies_updates = override
    return {"published": published, "before": before, "after": after}


def per_token() -> dict[str, Any]:
    """Whether ModelOpt's NVFP4 experts are built with per-token activation, as the factory sees it."""
    from vllm.model_executor.layers.fused_moe.oracle import nvfp4
    from vllm.model_executor.layers.quantization import modelopt

    if nvfp4_per_token.is_engine_argument():
        from vllm.config.quantization import resolve_quantization_config

        argument = nvfp4_per_token.ENGINE_ARGUMENT["quantization_config"]
        return {"engine argument": repr(resolve_quantization_config("modelopt_mixed", argument))}
    asked: list[bool] = []

    class Experts:
        def __init__(self, per_token_activation=False, **_):
            asked.append(per_token_activation)

    stage = {
        "maybe_make_prepare_finalize": lambda *_, **__: SimpleNamespace(activation_format=None),
        "mk": SimpleNamespace(
            FusedMoEExpertsMonolithic=tuple,
            FusedMoEActivationFormat=SimpleNamespace(BatchedExperts="batched"),
            FusedMoEKernel=lambda *_, **__: None,
        ),
    }

    def build() -> bool:
        with replaced(nvfp4, **stage):
            modelopt.make_nvfp4_moe_kernel(
                moe_quant_config=None,
                moe_config=SimpleNamespace(in_dtype=torch.bfloat16),
                experts_cls=Experts,
                backend=nvfp4.NvFp4MoeBackend.FLASHINFER_TRTLLM,
            )
        return asked[-1]

    before = build()
    nvfp4_per_token.apply()
    nvfp4_per_token.apply()
    return {"before": before, "after": build(), "probe": nvfp4_per_token.probe().verdict}


def situ_scale() -> dict[str, Any]:
    def scales() -> list[float]:
        """Output scale after building, loading and loading again; alpha 3, output scale 2."""
        experts_class = nvfp4_situ_scale._experts_class()
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation

        moe = SimpleNamespace(
            is_act_and_mul=True, activation=MoEActivation.SITU, activation_situ_beta=4.0,
            activation_situ_linear_beta=25.0, routing_method=None, experts_per_token=1, hidden_dim=128,
            intermediate_size_per_partition=128, hidden_dim_unpadded=None, num_local_experts=1,
            moe_parallel_config=SimpleNamespace(ep_rank=0), in_dtype=torch.bfloat16,
        )  # fmt: skip
        quant = SimpleNamespace(
            g1_alphas=torch.tensor([3.0]), a2_gscale=torch.tensor([2.0]), gemm1_clamp_limit=None,
            gemm1_alpha=None, gemm1_beta=None,
        )  # fmt: skip
        with replaced(torch.accelerator, current_device_index=lambda: "cpu"):
            experts = experts_class(moe, quant)
        found = [float(experts.g1_scale_c)]
        _, layer = nvfp4_situ_scale.situ_experts(3.0, 2.0)
        for _ in range(2):
            experts.process_weights_after_loading(layer)
            registered = dict(layer.named_parameters())["g1_scale_c"]
            assert experts.g1_scale_c is registered
            found.append(float(registered))
        return found

    before = scales()
    verdict = nvfp4_situ_scale.probe().verdict
    if verdict == "defect":
        nvfp4_situ_scale.apply()
        nvfp4_situ_scale.apply()
    return {"verdict": verdict, "before": before, "after": scales()}


def vision() -> dict[str, Any]:
    """dtype of t frames through the position embedding, and whether a bf16 product takes it."""
    x = torch.randn(16, 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    to_qkv = torch.nn.Linear(16, 48, dtype=torch.bfloat16)

    def frames(embedding: Any, n_frames: int) -> Any:
        return embedding(x[: 4 * n_frames], [[n_frames, 2, 2]])

    def fresh() -> Any:
        torch.manual_seed(3)
        return vision_dtype.position_embedding(torch.bfloat16)

    def measure() -> dict[str, Any]:
        return {
            "dtypes": {n: str(frames(fresh(), n).dtype) for n in (1, 2, 4)},
            "wqkv": outcome(lambda: list(to_qkv(frames(fresh(), 4)).shape)),
        }

    whole_tower_cast = frames(fresh().to(torch.bfloat16), 4)
    before = measure()
    vision_dtype.apply()
    vision_dtype.apply()
    same = torch.equal(frames(fresh(), 4), whole_tower_cast)
    return {"before": before, "after": measure(), "same as a tower that is cast": same}


# The cache block that a prefix hit inside it copies


def laid_out(size: int, *views: tuple[int, int, int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """An allocation of random bytes, and views (offset, block stride, bytes) of its 4 blocks."""
    allocation = torch.randint(256, (size,), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    return allocation, [
        allocation.as_strided((N_CACHE_BLOCKS, 1, 1, n_bytes), (stride, n_bytes, n_bytes, 1), offset)
        for offset, stride, n_bytes in views
    ]


def cache_layouts() -> dict[str, tuple[torch.Tensor, list[torch.Tensor], list[tuple[int, int]]]]:
    """An allocation, its layers' views, and the (offset, stride) of the pages that make up a block."""
    n = N_CACHE_BLOCKS
    page, state = MLA_TOKENS * MLA_TOKEN_BYTES, KDA_STATE_BYTES
    alone, (kda, mla) = laid_out(n * page, (0, page, state), (0, page, page))
    layouts = {"one layer of each kind": (alone, [kda, mla], [(0, page)])}
    packed, views = laid_out(n * 300, (0, 300, 80), (100, 300, 80), (0, 300, 100), (100, 300, 200))
    layouts["blocks outermost"] = (packed, views, [(0, 300)])
    if not copies_views():
        return layouts
    # As on a GPU: three KDA views at an address, then the MLA view; here two such regions.
    regions = [k * n * page for k in range(2)]
    three_and_one = [(at, page, size) for size in (state, state, state, page) for at in regions]
    apart, views = laid_out(2 * n * page, *three_and_one)
    bf16 = [view.view(torch.bfloat16) if view.shape[-1] == page else view for view in views]
    layouts["layers outermost"] = (apart, bf16, [(at, page) for at in regions])
    both, views = laid_out(2 * n * page, *three_and_one)
    # A CPU's MLA view counts kernel blocks of 16 tokens.
    split = [
        view.view(n, MLA_TOKENS // 16, 1, -1).flatten(0, 1).unsqueeze(1) if view.shape[-1] == page else view
        for view in views
    ]
    layouts["kernel blocks"] = (both, split, [(at, page) for at in regions])
    nested, views = laid_out(2 * n * 100, (0, 100, 40), (40, 100, 30), (0, 100, 100), (10, 100, 20),
                             (n * 100, 100, 60), (n * 100, 100, 100))  # fmt: skip
    layouts["views inside views"] = (nested, views, [(0, 100), (n * 100, 100)])
    # ROCm pads the allocation; two kinds divide a block differently.
    tail, views = laid_out(n * 300 + 50, (0, 300, 100), (100, 300, 40), (0, 300, 160), (160, 300, 140))
    layouts["a tail behind the blocks"] = (tail, views, [(0, 300)])
    raw, views = laid_out(2 * n * 100, (0, 100, 40), (0, 100, 100), (n * 100, 100, 100))
    layouts["with the raw allocation"] = (raw, [*views, raw], [(0, 100), (n * 100, 100)])
    return layouts


def copies_views() -> bool:
    """From 0.29 on blocks are copied by view; before, an allocation is always an array of blocks."""
    from vllm.v1.worker import utils

    return hasattr(utils, "allocate_kv_cache")


def wrong_cache_bytes() -> dict[str, int]:
    """Bytes of each layout's allocation that are wrong after block 1 was copied to 2 and 0 to 3."""
    from vllm.v1.worker import gpu_model_runner

    found = {}
    for name, (allocation, views, pages) in cache_layouts().items():
        expected = allocation.clone()
        for source, destination in BLOCK_COPIES:
            for offset, stride in pages:
                to, at = (offset + block * stride for block in (destination, source))
                expected[to : to + stride] = allocation[at : at + stride]
        with prefix_block_copy.without_pinned_memory():
            gpu_model_runner.copy_kv_cache_blocks_inplace(views, N_CACHE_BLOCKS, BLOCK_COPIES)
        found[name] = int((allocation != expected).sum())
    return found


def prefix_copy() -> dict[str, Any]:
    from vllm.v1.worker import gpu_model_runner, utils
    from vllm.v1.worker.gpu import model_runner

    users = [gpu_model_runner, model_runner]
    if importlib.util.find_spec("vllm.distributed.kv_transfer.kv_connector.v1.hisparse"):
        from vllm.distributed.kv_transfer.kv_connector.v1.hisparse import worker

        users.append(worker)
    name = prefix_block_copy.FUNCTION
    stock = getattr(utils, name)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the probe pins memory")

    def whole(kv_caches: Any, num_blocks: int, copies: Any) -> None:
        """A mended upstream: every view is copied."""
        for cache in kv_caches:
            source, destination = torch.tensor(copies).unbind(1)
            cache[destination] = cache[source]

    with replaced(utils, async_tensor_h2d=never):
        found: dict[str, Any] = {"verdict": prefix_block_copy.probe().verdict}
    with replaced(utils, **{name: whole}):
        found["mended"] = registry._decide(prefix_block_copy.PATCH, None).state
        found["mended is left alone"] = getattr(utils, name) is whole
    delattr(utils, name)
    found["without it"] = registry._decide(prefix_block_copy.PATCH, None).state
    setattr(utils, name, stock)
    found["before"] = wrong_cache_bytes()
    if found["verdict"] == "defect":
        prefix_block_copy.apply()
        once = getattr(utils, name)
        prefix_block_copy.apply()
        found["wrapped once"] = getattr(utils, name) is once and once.__wrapped__ is stock
        found["users"] = [getattr(user, name) is once for user in users]
    return found | {"after": wrong_cache_bytes()}


def table() -> list[dict[str, Any]]:
    """The report for a checkpoint that has every case, decided twice in this process."""
    from patches import CheckpointFacts, apply_all

    every_case = CheckpointFacts(
        "every-case", "modelopt", frozenset({"FP8_PB_WO", "NVFP4", "MXFP8"}), frozenset({"MXFP8"}), True
    )
    report = apply_all(every_case)
    assert apply_all(every_case) == report
    return json.loads(json.dumps(report.rows()))


SCENARIOS: dict[str, Callable[[], Any]] = {
    "gate_gap": gate_gap,
    "gate_gap_bias": gate_gap_bias,
    "block_fp8": block_fp8,
    "mxfp8_latent": mxfp8_latent,
    "prompt_updates": prompt_updates,
    "per_token": per_token,
    "situ_scale": situ_scale,
    "vision": vision,
    "prefix_copy": prefix_copy,
}


def main() -> None:
    import vllm

    # Most of the time goes into this import: once, before the fork. No operation has run by then, so torch
    # has no threads yet that a fork would lose.
    from vllm.model_executor.layers.quantization import modelopt  # noqa: F401

    results: dict[str, Any] = {"vllm": vllm.__version__}
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as fork, torch.no_grad():
        report = fork.submit(table)
        results |= {name: measure() for name, measure in SCENARIOS.items()}
        results["table"] = report.result()
    print("\n" + json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
