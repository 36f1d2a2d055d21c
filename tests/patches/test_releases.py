"""Every patch on real vLLM releases: the defect without it, right numbers with it, hands off where fixed.

One child process a release measures everything (`scenarios.py`). The installed release runs in every test
run, the others (Python files of their wheels, fetched by pip) only in the full one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from tests.patches.releases import RELEASES, REPOSITORY, ReleaseUnavailable, release

INSTALLED = "installed"
CHILD_SECONDS = 600
TENSOR_PARALLEL_SIZES = ("1", "4", "8", "16")


@cache
def measured(version: str) -> dict:
    """What scenarios.py measures on a release, in a process of its own."""
    path = [str(REPOSITORY)]
    if version != INSTALLED:
        try:
            path.insert(0, str(release(version)))
        except ReleaseUnavailable as error:
            pytest.skip(str(error))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("K3_", "KIMI_K3_"))
    }
    environment |= {
        "PYTHONPATH": os.pathsep.join(path),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "CRITICAL",
        "OMP_NUM_THREADS": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.patches.scenarios"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert version in (INSTALLED, results["vllm"])
    return results


def older(version: str, than: str) -> bool:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(number) for number in text.split(".")[:2])

    return numbers(measured(version)["vllm"]) < numbers(than)


pytestmark = [pytest.mark.timeout(2 * CHILD_SECONDS)]
every_release = pytest.mark.parametrize(
    "version", [INSTALLED, *(pytest.param(version, marks=pytest.mark.slow) for version in RELEASES)]
)


@every_release
def test_report_has_the_states_that_this_release_calls_for(version):
    rows = {row["switch"]: row for row in measured(version)["table"]}
    early = older(version, than="0.29")
    assert {switch: row["state"] for switch, row in rows.items()} == {
        "KIMI_K3_MXFP8_KV_B_INPUT_CAST": "applied",
        "KIMI_K3_FIX_MM_PROMPT_UPDATES": "already fixed" if early else "not applicable",
        "KIMI_K3_NVFP4_PER_TOKEN": "off",
        "KIMI_K3_NVFP4_SITU_G1_SCALE": "applied" if early else "already fixed",
        "KIMI_K3_FP8_PB": "applied" if early else "already fixed",
        "KIMI_K3_FP8_PB_GATE_GAP": "not applicable" if early else "applied",
        "KIMI_K3_VISION_DTYPE": "applied",
        "KIMI_K3_PREFIX_BLOCK_COPY": "already fixed" if early else "applied",
    }
    parts = rows["KIMI_K3_FP8_PB"]["parts"]
    assert len(parts) == 6
    assert {part["state"] for part in parts.values()} == {"applied" if early else "already fixed"}
    assert all(row["evidence"] for row in [*rows.values(), *parts.values()])


@every_release
def test_gate_gap_makes_the_packed_gate_exact_on_every_rank(version):
    gap = measured(version)["gate_gap"]
    if older(version, than="0.29"):
        assert gap is None  # the gate is a layer of its own there
        return
    for size in TENSOR_PARALLEL_SIZES:
        half_of_the_gate = 96 * 128 // int(size) // 2
        assert gap["before"][size] == [[0, 0, half_of_the_gate]] * int(size)
        assert gap["after"][size] == [[0, 0, 0]] * int(size)
        assert gap["reloaded"][size] == [[0, 0, 0]] * int(size)
    assert measured(version)["gate_gap_bias"] == 0


@every_release
def test_block_fp8_is_patched_only_where_it_is_broken(version):
    block = measured(version)["block_fp8"]
    if older(version, than="0.29"):
        assert block["patched"] == [
            *("dispatch", "kv-b-input", "post-load", "partial-block", "shared-scale", "absorbed-weights")
        ]
    else:
        assert block["patched"] == []
        assert block["before"] == block["after"]


@every_release
def test_mixed_checkpoint_gives_k3_projections_the_block_method(version):
    block = measured(version)["block_fp8"]
    broken = older(version, than="0.29")
    for name in ("in_proj_qkvgfab", "fused_qkv_a_proj", "kv_b_proj", "o_proj"):
        assert (block["before"]["dispatch"][name] == "UnquantizedLinearMethod") == broken
        assert block["after"]["dispatch"][name] != "UnquantizedLinearMethod"
    assert block["after"]["dispatch"]["lm_head"] == "UnquantizedLinearMethod"


@every_release
def test_block_scaled_kv_b_gets_a_16_bit_latent(version):
    block = measured(version)["block_fp8"]
    assert block["before"]["kv-b-input"] == ("defect" if older(version, than="0.29") else "fixed")
    assert block["after"]["kv-b-input"] == "fixed"


@every_release
def test_kernels_post_load_hook_runs_once(version):
    block = measured(version)["block_fp8"]
    assert block["before"]["post-load"] == (0 if older(version, than="0.29") else 1)
    assert block["after"]["post-load"] == 1


@every_release
def test_partial_block_with_bias_is_exact_after_loading_twice(version):
    block = measured(version)["block_fp8"]
    before = block["before"]["partial-block"]
    if older(version, than="0.29"):
        assert "divisible by 128" in before
    else:
        assert before == 0
    assert block["after"]["partial-block"] == 0


@every_release
def test_kda_projection_loads_and_is_exact_on_every_rank(version):
    block = measured(version)["block_fp8"]
    for size in TENSOR_PARALLEL_SIZES:
        if older(version, than="0.29"):
            assert all(isinstance(found, str) for found in block["before"]["shared-scale"][size])
        assert block["after"]["shared-scale"][size] == [0] * int(size)


@every_release
def test_mla_absorbs_the_stored_weights(version):
    """0.29 and later absorb what the kernel computes; this kernel rounds scales up to powers of two."""
    block = measured(version)["block_fp8"]
    if older(version, than="0.29"):
        assert block["before"]["absorbed-weights"] > 500  # nothing at all came back
        assert block["after"]["absorbed-weights"] == 0
    else:
        assert 0 < block["before"]["absorbed-weights"] < 500


@every_release
def test_mxfp8_kv_b_gets_a_16_bit_latent_and_other_layers_are_left_alone(version):
    assert measured(version)["mxfp8_latent"] == {
        "before": "defect",
        "after": "fixed",
        "another layer's input": "torch.float8_e4m3fn",
    }


@every_release
def test_prompt_updates_on_a_synthetic_pre_release_processor(version):
    """No published release has this defect, so K3's override of the hook is removed where there is a hook."""
    expected = {"published": "absent"}
    if older(version, than="0.29"):
        expected = {"published": "fixed", "before": "defect", "after": "fixed"}
    assert measured(version)["prompt_updates"] == expected


@every_release
def test_per_token_activation_is_asked_for_or_is_an_engine_argument(version):
    found = measured(version)["per_token"]
    if older(version, than="0.32"):
        assert found == {"before": False, "after": True, "probe": "fixed"}
    else:
        assert "activation=QuantKey" in found["engine argument"]


@every_release
def test_situ_experts_apply_the_first_scale_once(version):
    found = measured(version)["situ_scale"]
    broken = older(version, than="0.29")
    assert found["verdict"] == ("defect" if broken else "fixed")
    assert found["before"] == ([6.0, 6.0, 6.0] if broken else [2.0, 2.0, 2.0])
    assert found["after"] == [2.0, 2.0, 2.0]


@every_release
def test_video_frames_stay_in_the_towers_dtype(version):
    found = measured(version)["vision"]
    assert found["before"]["dtypes"] == {"1": "torch.bfloat16", "2": "torch.float32", "4": "torch.float32"}
    assert "must have the same dtype" in found["before"]["wqkv"]
    assert set(found["after"]["dtypes"].values()) == {"torch.bfloat16"}
    assert found["after"]["wqkv"] == [16, 48]
    assert found["same as a tower that is cast"]


@every_release
def test_cache_block_is_copied_whole_wherever_its_layers_begin(version):
    """Without the patch, what the narrower view of an address leaves out: 92 % of K3's block are copied."""
    found = measured(version)["prefix_copy"]
    assert set(found["after"].values()) == {0}
    if older(version, than="0.29"):
        assert found["verdict"] == "fixed"
        assert found["before"] == found["after"]
        return
    assert found["verdict"] == "defect"
    # Two copies in two regions; bytes that are equal by chance are one in 256.
    missing = 2 * 2 * (768 * 1152 - 814_080)
    for layout in ("layers outermost", "kernel blocks"):
        assert 0.99 * missing < found["before"][layout] <= missing
    for layout in ("views inside views", "a tail behind the blocks", "with the raw allocation"):
        assert found["before"][layout] > 0
    for layout in ("one layer of each kind", "blocks outermost"):  # copied as a whole allocation
        assert found["before"][layout] == 0
    assert found["wrapped once"] and len(found["users"]) >= 2 and all(found["users"])


@every_release
def test_block_copy_that_is_mended_or_missing_is_left_alone(version):
    found = measured(version)["prefix_copy"]
    assert found["mended"] == "already fixed" and found["mended is left alone"]
    assert found["without it"] == "not applicable"
