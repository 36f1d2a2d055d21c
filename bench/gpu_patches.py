"""The engine patches on a Hopper GPU: real kernels, real sizes, a mixed-precision K3 with and without them.

    python -m bench.gpu_patches projections
    python -m bench.gpu_patches engine CHECKPOINT

Needs vLLM for CUDA and, for `engine`, a ModelOpt mixed-precision K3 (random weights do). Put
`patches/sitecustomize` and the checkout on PYTHONPATH if the package is not installed. Prints one JSON object
a line. Figures and the commands they came from are in docs/findings/hopper.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HIDDEN = 7168
TP, RANK = 8, 3
GATE_ROWS = 96 * 128 // TP
PACKED = {"q_a": 1536, "kv_a": 576, "gate": GATE_ROWS}
TOKENS = (1, 64, 2048)
UNPATCHED = {"KIMI_K3_FP8_PB_GATE_GAP": "0", "KIMI_K3_VISION_DTYPE": "0"}


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


# One projection: the block-scaled kernel against an fp32 product of the dequantised weight


def block_quantised(rows: int, columns: int, generator: Any) -> tuple[Any, Any]:
    """A random (rows, columns) e4m3 weight and its (blocks, 1, blocks, 1) scale.

    Block amplitudes are log-normal with sigma 0.5, so neighbouring blocks differ as trained ones do.
    """
    import torch

    row_blocks, column_blocks = -(-rows // 128), columns // 128
    amplitude = torch.randn(
        row_blocks, 1, column_blocks, 1, generator=generator, device="cuda", dtype=torch.float32
    )
    amplitude = (0.5 * amplitude).exp() * columns**-0.5
    values = torch.randn(
        row_blocks, 128, column_blocks, 128, generator=generator, device="cuda", dtype=torch.float32
    )
    scale = values.abs().amax((1, 3), keepdim=True) * amplitude / 448
    weight = (values * amplitude / scale).view(row_blocks * 128, columns)[:rows]
    return weight.to(torch.float8_e4m3fn), scale.contiguous()


def dequantised(weight: Any, scale: Any) -> Any:
    blocks = scale.squeeze(1).squeeze(-1).repeat_interleave(128, 0)[: weight.shape[0]]
    return weight.float() * blocks.repeat_interleave(128, 1)


def milliseconds(run: Any) -> float:
    """Median of 30 runs on the GPU's clock, after 5 to warm up."""
    import torch

    times = []
    for _ in range(35):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[5:])[15]


def relative_error(actual: Any, expected: Any) -> float:
    return round(float((actual.float() - expected).norm() / expected.norm()), 5)


@contextmanager
def rank_of_eight() -> Iterator[None]:
    """Layers built inside are one tensor-parallel rank's, on the GPU, with the kernel that vLLM picks."""
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config

    from patches.probes import tensor_parallel_place

    with set_current_vllm_config(VllmConfig()), tensor_parallel_place(TP, RANK), torch.device("cuda"):
        yield


def build(layer_class: Any, shards: list[tuple[Any, Any]], **arguments: Any) -> Any:
    """A merged layer as a K3 on eight ranks builds it, loaded with `shards`."""
    from patches.probes import block_fp8_config

    with rank_of_eight():
        layer = layer_class(quant_config=block_fp8_config(), bias=False, prefix="projection", **arguments)
        for shard, (weight, scale) in enumerate(shards):
            layer.weight.weight_loader(layer.weight, weight, shard)
            layer.weight_scale.weight_loader(layer.weight_scale, scale, shard)
        layer.quant_method.process_weights_after_loading(layer)
    return layer


def gate_projection(case: str, shards: list[tuple[Any, Any]], expected_weight: Any, x: Any) -> None:
    """Errors by region and times of the packed MLA front projection, 3648 x 7168 on a rank of eight."""
    from vllm.model_executor.layers.linear import KimiK3MergedQKVGateLinear

    layer = build(
        KimiK3MergedQKVGateLinear, shards, hidden_size=HIDDEN, q_lora_rank=1536, kv_lora_rank=512,
        qk_rope_head_dim=64, total_num_heads=96, v_head_dim=128,
    )  # fmt: skip
    widths = list(PACKED.values())
    out = layer.quant_method.apply(layer, x, None).split(widths, -1)
    expected = (x.float() @ expected_weight.T).split(widths, -1)
    errors = {name: relative_error(*pair) for name, *pair in zip(PACKED, out, expected, strict=True)}
    gate, gate_expected = (part[-1].reshape(-1, GATE_ROWS // 128, 2, 64) for part in (out, expected))
    for half, name in enumerate(("gate, first half of each block", "gate, second half of each block")):
        errors[name] = relative_error(gate[:, :, half], gate_expected[:, :, half])
    times = {}
    for n in TOKENS:
        rows = x[:1].expand(n, -1).contiguous()
        times[n] = round(milliseconds(lambda: layer.quant_method.apply(layer, rows, None)), 4)  # noqa: B023
    kernel = type(layer.quant_method.kernel).__name__
    say(case=case, kernel=kernel, rows=layer.weight.shape[0], relative_error=errors, milliseconds=times)


def kda_projection(generator: Any, x: Any) -> None:
    """[q | k | v | g | f_a | b | filler] on a rank of eight: aligned, so it must not need the gap."""
    import torch

    from patches.fp8_pb import _kda_projection_class

    widths, local = [12288] * 4 + [128, 96], [1536] * 4 + [128, 12]
    shards = [block_quantised(rows, HIDDEN, generator) for rows in widths]
    filler = -sum(local) % 128
    layer = build(
        _kda_projection_class(), shards, input_size=HIDDEN, output_sizes=[*widths, filler * TP],
        replicated_shard_id=4, tp_size=TP,
    )  # fmt: skip
    mine = [slice(RANK * n, (RANK + 1) * n) for n in local]
    mine[4] = slice(None)
    weight = torch.cat([dequantised(*s)[rows] for s, rows in zip(shards, mine, strict=True)])
    out = layer.quant_method.apply(layer, x, None)[:, : sum(local)]
    say(
        case="KDA in_proj",
        rows=layer.weight.shape[0],
        relative_error=relative_error(out, x.float() @ weight.T),
    )


def absorbed_weights(generator: Any) -> None:
    """kv_b_proj read back through its own kernel, as MLA does when it absorbs it."""
    import torch
    from vllm.model_executor.layers.linear import ColumnParallelLinear
    from vllm.model_executor.layers.quantization.utils.quant_utils import get_and_maybe_dequant_weights

    from patches.probes import block_fp8_config

    rows = 96 * (128 + 128)
    weight, scale = block_quantised(rows, 512, generator)
    with rank_of_eight():
        config = block_fp8_config()
        layer = ColumnParallelLinear(512, rows, bias=False, quant_config=config, prefix="kv_b_proj")
        layer.weight.weight_loader(layer.weight, weight)
        layer.weight_scale.weight_loader(layer.weight_scale, scale)
        layer.quant_method.process_weights_after_loading(layer)
        absorbed = get_and_maybe_dequant_weights(layer, out_dtype=torch.bfloat16)
    expected = dequantised(weight, scale)[RANK * rows // TP : (RANK + 1) * rows // TP]
    say(case="kv_b_proj as absorbed", relative_error=relative_error(absorbed, expected))


def projections() -> None:
    import torch

    from patches import fp8_pb_gate_gap

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_default_dtype(torch.bfloat16)
    generator = torch.Generator("cuda").manual_seed(1)
    say(gpu=torch.cuda.get_device_name(), torch=torch.__version__)
    with torch.no_grad():
        x = torch.randn(256, HIDDEN, generator=generator, device="cuda", dtype=torch.bfloat16)
        shards = [block_quantised(rows, HIDDEN, generator) for rows in (1536, 576, 96 * 128)]
        gate = slice(RANK * GATE_ROWS, (RANK + 1) * GATE_ROWS)
        weight = torch.cat([dequantised(*shards[0]), dequantised(*shards[1]), dequantised(*shards[2])[gate]])
        gate_projection("packed MLA projection, as vLLM has it", shards, weight, x)
        say(probe_without=fp8_pb_gate_gap.probe().evidence)
        fp8_pb_gate_gap.apply()
        gate_projection("packed MLA projection, with the gap", shards, weight, x)
        say(probe_with=fp8_pb_gate_gap.probe().evidence)
        kda_projection(generator, x)
        absorbed_weights(generator)


# A whole engine


async def serve_and_ask(model: str) -> None:
    """Start the engine, ask the ranks for their patches, generate text, then send a video chunk (t = 4)."""
    import numpy as np
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    import patches
    from engine.prompt import engine_input, kwargs_item
    from engine.types import EnginePrompt, PlacedMedia
    from media.types import MediaItem

    config = json.loads((Path(model) / "config.json").read_text())
    n_text_ids = int(config["bos_token_id"])
    begin = time.monotonic()
    arguments = {
        "dtype": "bfloat16", "enforce_eager": True, "max_model_len": 4096, "max_num_seqs": 8,
        "max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.2, "disable_log_stats": True, "seed": 0,
        "limit_mm_per_prompt": {"image": 2}, "additional_config": {"k3_patches": patches.cache_key()},
        "worker_extension_cls": "patches.worker.PatchReport",
        **json.loads(os.environ.get("ENGINE_ARGUMENTS", "{}")),
    }  # fmt: skip
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, **arguments))
    say(engine_up_seconds=round(time.monotonic() - begin, 1))
    try:
        front = patches.current_report().to_json()
        ranks = await engine.collective_rpc("k3_patch_report")
        say(
            states={row["switch"]: row["state"] for row in front["patches"]},
            problems=patches.agree(front, ranks),
        )

        async def ask(prompt: Any, name: str) -> None:
            sampling = SamplingParams(
                temperature=0, max_tokens=8, ignore_eos=True, logprobs=1, detokenize=False
            )
            async for step in engine.generate(prompt, sampling, request_id=name):
                last = step.outputs[0]
            logprobs = [round(next(iter(entry.values())).logprob, 4) for entry in last.logprobs]
            say(request=name, ids=list(last.token_ids), logprobs=logprobs)

        rng = random.Random(7)
        for n in (8, 40, 200):
            ids = [n_text_ids, *(rng.randrange(n_text_ids) for _ in range(n - 1))]
            await ask(engine_input(EnginePrompt(ids), ()), f"text-{n}")
        patch_bytes = np.random.default_rng(7).integers(0, 256, (4 * 8 * 8, 3, 14, 14), dtype=np.uint8)
        pad = int(config["media_placeholder_token_id"])
        for t in (1, 4):
            item = MediaItem(patch_bytes[: t * 64], (t, 8, 8), f"{t:064x}")
            ids = [n_text_ids, 1, 2, *[pad] * item.n_tokens, 3, 4]
            media = (PlacedMedia(3, item),)
            await ask(engine_input(EnginePrompt(ids, media), [kwargs_item(item)]), f"frames-{t}")
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}"[:300], engine_dead=engine.errored)
    engine.shutdown()


def engine_runs(model: str) -> None:
    """The same questions with every patch, and with the sixth and seventh off."""
    for case, switches in (("patched", {}), ("sixth and seventh off", UNPATCHED)):
        say(case=case, **switches)
        environment = os.environ | {"K3_MODEL": model, "K3_PATCHES": "strict"} | switches
        command = [sys.executable, "-m", "bench.gpu_patches", "ask", model]
        subprocess.run(command, env=environment, timeout=240)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["projections"]:
            projections()
        case ["engine", checkpoint]:
            engine_runs(checkpoint)
        case ["ask", checkpoint]:
            asyncio.run(serve_and_ask(checkpoint))
        case _:
            sys.exit(__doc__)
