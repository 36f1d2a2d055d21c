"""The launch profiles: arguments that vLLM has, and memory arithmetic that agrees with vLLM's."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.profiles import PROFILES
from engine.profiles.blackwell import cache_of
from engine.profiles.memory import Cache, CacheLayout, CacheShape, k3_nvfp4_weights
from gateway.cli import app
from tests.patches.releases import ReleaseUnavailable, release

NVFP4 = [name for name in PROFILES if name.startswith("b300")]


def argument_names(source: Path) -> set[str]:
    """Fields of EngineArgs and AsyncEngineArgs in a vLLM source tree, without importing it."""
    tree = ast.parse((source / "vllm/engine/arg_utils.py").read_text())
    return {
        statement.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in ("EngineArgs", "AsyncEngineArgs")
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def installed_source() -> Path:
    from importlib.util import find_spec

    return Path(find_spec("vllm").origin).parents[1]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_says_what_it_is(name: str) -> None:
    profile = PROFILES[name]
    for text in (profile.summary, profile.needs, profile.memory, profile.source):
        assert len(text) > 20
    assert profile.requires.vllm


@pytest.mark.parametrize("name", NVFP4)
def test_nvfp4_is_not_served_with_a_failed_patch(name: str) -> None:
    assert PROFILES[name].environment["K3_PATCHES"] == "strict"


def test_the_published_flags_of_eight_b300() -> None:
    arguments = PROFILES["b300x8"].merged()
    published = {
        "tensor_parallel_size": 8,
        "quantization": "modelopt_mixed",
        "moe_backend": "flashinfer_trtllm",
        "kv_cache_dtype": "fp8",
        "load_format": "fastsafetensors",
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 8192,
        "max_model_len": 196608,
        "max_num_seqs": 32,
        "gpu_memory_utilization": 0.90,
    }
    assert {name: arguments[name] for name in published} == published
    assert arguments["attention_config"] == {
        "mla_prefill_backend": "TRTLLM_RAGGED",
        "use_prefill_query_quantization": True,
    }


# Memory


@pytest.mark.parametrize(
    ("layout", "tokens"),
    [
        (CacheLayout(latent_bytes=1, tensor_parallel=8), 1536),
        (CacheLayout(latent_bytes=2, tensor_parallel=8), 768),
        (CacheLayout(latent_bytes=1, state_bytes=2, tensor_parallel=8), 768),
        (CacheLayout(latent_bytes=1, tensor_parallel=16), 768),
        (CacheLayout(latent_bytes=1, tensor_parallel=4), 2944),
        (CacheLayout(latent_bytes=1), 11392),
    ],
)
def test_tokens_of_a_block(layout: CacheLayout, tokens: int) -> None:
    """The sizes of docs/concepts/model.md#cache."""
    assert Cache(CacheShape(), layout, 0).tokens_per_page == tokens


def test_a_kda_state_at_eight_ranks() -> None:
    assert Cache(CacheShape(), CacheLayout(tensor_parallel=8), 0).state_size == 814_080


def test_the_weights_are_what_the_download_weighs() -> None:
    weights = k3_nvfp4_weights()
    assert weights.total == pytest.approx(1.6e12, rel=0.01)
    # Eight B200 of 180 GB have too little, eight B300 enough.
    assert weights.per_gpu(8) > 180e9
    assert cache_of(PROFILES["b300x8"].merged(), 180 * 10**9).n_blocks == 0


@pytest.mark.parametrize("name", NVFP4)
def test_a_gpu_profile_holds_its_longest_context(name: str) -> None:
    arguments = PROFILES[name].merged()
    cache = cache_of(arguments)
    assert cache.n_sequences(arguments["max_model_len"]) >= 1
    assert cache.n_tokens(arguments["max_num_seqs"]) > 16_384


@pytest.mark.parametrize(("tensor_parallel", "dtype"), [(8, "uint8"), (8, "bfloat16"), (4, "uint8")])
def test_blocks_are_those_that_vllm_makes(tensor_parallel: int, dtype: str) -> None:
    """vLLM's own grouping of K3's 93 layers, at real size, against the arithmetic."""
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups, get_kv_cache_groups
    from vllm.v1.kv_cache_interface import MambaSpec, MLAAttentionSpec

    layout = CacheLayout(latent_bytes=1 if dtype == "uint8" else 2, tensor_parallel=tensor_parallel)
    memory = 40 * 2**30
    cache = Cache(CacheShape(), layout, memory)
    heads = 96 // tensor_parallel
    page = cache.tokens_per_page * cache.latent_size
    latent = MLAAttentionSpec(
        block_size=cache.tokens_per_page, num_kv_heads=1, head_size=576, dtype=getattr(torch, dtype)
    )
    state = MambaSpec(
        block_size=cache.tokens_per_page,
        shapes=(*[(heads * 128, 3)] * 3, (heads, 128, 128)),
        dtypes=(*[torch.bfloat16] * 3, torch.float32),
        page_size_padded=page,
        mamba_cache_mode="align",
    )
    assert state.state_content_size_bytes == cache.state_size
    assert latent.page_size_bytes == page
    full = {*range(4, 93, 4), 93}
    specs = {f"layers.{n}": latent if n in full else state for n in range(1, 94)}
    vllm_config = VllmConfig()
    vllm_config.cache_config.kv_cache_layout = "LBNHC"
    groups = get_kv_cache_groups(vllm_config, specs)
    assert len(groups) == 1 + cache.n_state_groups
    config = get_kv_cache_config_from_groups(vllm_config, groups, memory)
    assert config.num_blocks == cache.n_blocks


async def test_the_mini_engine_has_as_many_blocks(engine, model_folder: Path) -> None:
    arguments = PROFILES["cpu-mini"].merged()
    config = json.loads((model_folder / "config.json").read_text())
    cache = Cache(
        CacheShape.from_config(config),
        CacheLayout.of_arguments(arguments),
        arguments["kv_cache_memory_bytes"],
    )
    assert cache.n_blocks == engine._llm.vllm_config.cache_config.num_gpu_blocks
    assert str(cache.n_blocks) in PROFILES["cpu-mini"].memory


def test_speculation_holds_a_state_a_token_unless_it_recomputes() -> None:
    drafting = {"speculative_config": {"num_speculative_tokens": 7}}
    assert CacheLayout.of_arguments(drafting).states_per_sequence == 9
    assert CacheLayout.of_arguments({**drafting, "use_replayssm": True}).states_per_sequence == 2


def literals(source: Path, file: str, name: str) -> set[str]:
    """The strings of a `Literal[...]` alias, or the names of an enum, in a vLLM source tree."""
    for node in ast.walk(ast.parse((source / file).read_text())):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return {leaf.value for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)}
        if isinstance(node, ast.ClassDef) and node.name == name:
            targets = [s.targets[0] for s in node.body if isinstance(s, ast.Assign)]
            fields = [s.target for s in node.body if isinstance(s, ast.AnnAssign)]
            return {target.id for target in [*targets, *fields] if isinstance(target, ast.Name)}
    raise AssertionError(f"{file} has no {name}")


def names_are_known(name: str, source: Path) -> None:
    """Arguments, and what stands inside them, against a vLLM source tree."""
    arguments = PROFILES[name].merged()
    assert set(arguments) <= argument_names(source)
    drafts = set(arguments.get("speculative_config", {}))
    assert drafts <= literals(source, "vllm/config/speculative.py", "SpeculativeConfig")
    attention = set(arguments.get("attention_config", {}))
    assert attention <= literals(source, "vllm/config/attention.py", "AttentionConfig")
    backends = literals(source, "vllm/v1/attention/backends/registry.py", "AttentionBackendEnum")
    assert {arguments.get("attention_backend", "FLASHINFER_MLA")} <= backends
    ways = literals(source, "vllm/config/parallel.py", "DCPCommBackend")
    assert {arguments.get("dcp_comm_backend", "a2a")} <= ways


@pytest.mark.parametrize("name", PROFILES)
def test_the_installed_vllm_knows_every_name(name: str) -> None:
    names_are_known(name, installed_source())


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("name", PROFILES)
def test_vllm_0_33_knows_every_name(name: str) -> None:
    try:
        names_are_known(name, release("0.33.0"))
    except ReleaseUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NVFP4)
def test_every_flag_of_the_recipes_has_a_reason(name: str) -> None:
    profile = PROFILES[name]
    newer = "throughput" in name or "by-streams" in name or "a2a" in name
    flags = set(profile.arguments) - {"max_model_len", "max_num_seqs"}
    assert not newer or flags <= set(profile.reasons)


def test_drafts_by_streams_follow_vllms_rules() -> None:
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    arguments = PROFILES["b300x8-dspark-by-streams"].merged()
    drafts = arguments["speculative_config"]
    lookup = build_dynamic_sd_schedule_lookup(
        drafts["num_speculative_tokens_per_batch_size"],
        arguments["max_num_seqs"],
        drafts["num_speculative_tokens"],
    )
    assert [lookup[n] for n in (1, 8, 9, 16, 17, 64)] == [7, 7, 3, 3, 0, 0]


# The command


def k3(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["profiles", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_the_list_names_every_profile() -> None:
    listed = k3()
    assert all(name in listed for name in PROFILES)
    assert [row["name"] for row in json.loads(k3("--json"))] == list(PROFILES)


def test_one_profile_with_an_override() -> None:
    described = json.loads(k3("b300x8", "--json", "--engine-arg", "max-num-seqs=4"))
    assert described["engine_args"]["max_num_seqs"] == 4
    assert described["engine_args"]["tensor_parallel_size"] == 8
    assert "* max_num_seqs = 4" in k3("b300x8", "--engine-arg", "max_num_seqs=4")


def test_profiles_side_by_side() -> None:
    text = k3("b300x8", "b300x8-dcp-a2a")
    assert 'dcp_comm_backend\n  b300x8          -\n  b300x8-dcp-a2a  "a2a"  (two exchanges' in text
    assert "\nquantization" not in text


def test_each_flag_is_explained() -> None:
    text = k3("b300x8-throughput")
    assert "max_num_batched_tokens = 16384\n      a long prompt takes half as many steps" in text
    assert "not set:\n  speculative_config\n" in text


def test_a_name_that_nobody_knows() -> None:
    assert "b300x8" in k3("b300", status=1)


def test_an_override_that_is_no_pair() -> None:
    assert "NAME=VALUE" in k3("b300x8", "--engine-arg", "max_num_seqs", status=1)
