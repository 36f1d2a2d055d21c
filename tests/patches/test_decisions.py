"""How switches, the checkpoint and probes together decide; on patches made for the test."""

from __future__ import annotations

import json

import pytest

import patches
from patches import registry
from patches.checkpoint import CheckpointFacts
from patches.patch import Finding, Part, Patch, wrap
from patches.report import Report, agree

SWITCH = "KIMI_K3_TEST"


class Suspect:
    """Code that is wrong until the patch is applied."""

    def __init__(self, verdict: str = "defect", curable: bool = True, probe_error: Exception | None = None):
        self.verdict = verdict
        self.curable = curable
        self.probe_error = probe_error
        self.n_applied = 0

    def probe(self) -> Finding:
        if self.probe_error:
            raise self.probe_error
        return Finding(self.verdict, f"looks {self.verdict}")

    def apply(self) -> None:
        self.n_applied += 1
        if self.curable:
            self.verdict = "fixed"


def a_patch(*suspects: Suspect, **changes) -> Patch:
    parts = tuple(Part(f"part-{n}", s.probe, s.apply) for n, s in enumerate(suspects))
    return Patch(
        **({"name": "test", "switch": SWITCH, "fixes": "a test", "fixed_since": None, "parts": parts,
            "excuse": lambda facts: None} | changes)
    )  # fmt: skip


@pytest.fixture
def decide(monkeypatch):
    """Runs apply_all with one patch, under an environment, as if in a fresh process."""

    def run(patch: Patch, facts: CheckpointFacts | None = None, **environment: str):
        for name in ("K3_MODEL", "K3_PATCHES", SWITCH):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(registry, "PATCHES", (patch,))
        return registry.apply_all(facts).outcomes[0]

    monkeypatch.setattr(registry, "_applied", {})
    monkeypatch.setattr(registry, "_report", None)
    return run


def test_defect_is_patched_and_probed_again(decide):
    suspect = Suspect()
    assert decide(a_patch(suspect)).state == "applied"
    assert suspect.n_applied == 1


def test_second_run_in_a_process_says_the_same_and_applies_nothing(decide):
    suspect = Suspect()
    patch = a_patch(suspect)
    assert decide(patch) == decide(patch)
    assert suspect.n_applied == 1


@pytest.mark.parametrize(("verdict", "state"), [("fixed", "already fixed"), ("absent", "not applicable")])
@pytest.mark.parametrize("value", ["auto", "1"])
def test_right_code_is_left_alone(decide, verdict, state, value):
    suspect = Suspect(verdict)
    assert decide(a_patch(suspect), **{SWITCH: value}).state == state
    assert suspect.n_applied == 0


def test_switch_0_probes_nothing(decide):
    suspect = Suspect(probe_error=RuntimeError("must not run"))
    assert decide(a_patch(suspect), **{SWITCH: "0"}).state == "off"


def test_checkpoint_without_the_case_probes_nothing_unless_forced(decide):
    facts = CheckpointFacts("plain")
    patch = a_patch(Suspect(), excuse=lambda facts: "no such layers" if facts else None)
    outcome = decide(patch, facts)
    assert (outcome.state, outcome.evidence) == ("not applicable", "no such layers")
    assert decide(patch, facts, **{SWITCH: "1"}).state == "applied"


def test_opt_in_patch_is_off_until_asked_for(decide):
    patch = a_patch(Suspect(), opt_in=True)
    assert decide(patch).state == "off"
    assert decide(patch, **{SWITCH: "1"}).state == "applied"


def test_opt_in_patch_that_is_asked_for_where_it_cannot_be_had_fails(decide):
    assert decide(a_patch(Suspect("absent"), opt_in=True), **{SWITCH: "1"}).state == "failed"


@pytest.mark.parametrize(
    "suspect", [Suspect(curable=False), Suspect(probe_error=AttributeError("'Layer' has no 'foo'"))]
)
def test_patch_without_effect_or_verdict_fails_and_strict_mode_stops(decide, suspect):
    patch = a_patch(suspect)
    assert decide(patch).state == "failed"
    with pytest.raises(patches.PatchError, match=SWITCH):
        decide(patch, K3_PATCHES="strict")


def test_parts_are_settled_one_by_one_and_the_gravest_state_is_the_patchs(decide):
    outcome = decide(a_patch(Suspect("fixed"), Suspect(), Suspect("absent")))
    assert outcome.state == "applied"
    assert [part.state for part in outcome.parts.values()] == ["already fixed", "applied", "not applicable"]


@pytest.mark.parametrize(("name", "value"), [(SWITCH, "yes"), ("K3_PATCHES", "lenient")])
def test_bad_switch_is_named_with_its_values(decide, name, value):
    with pytest.raises(patches.PatchError, match=f"{name}='{value}': must be"):
        decide(a_patch(Suspect()), **{name: value})


def test_unreadable_checkpoint_counts_as_unknown(decide, tmp_path):
    seen = []
    patch = a_patch(Suspect(), excuse=lambda facts: seen.append(facts))
    assert decide(patch, K3_MODEL=str(tmp_path)).state == "applied"
    assert seen == [None]


def test_facts_of_a_mixed_checkpoint(tmp_path):
    layers = {
        "language_model.model.layers.3.self_attn.kv_b_proj": {"quant_algo": "FP8_PB_WO"},
        "language_model.model.layers.3.block_sparse_moe.experts.0.w1": {"quant_algo": "NVFP4"},
    }
    quantization = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    config = {"vision_config": {"a": 1}, "quantization_config": quantization}
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = CheckpointFacts.read(tmp_path)
    assert facts.quantization == "modelopt"
    assert facts.algorithms == {"FP8_PB_WO", "NVFP4"}
    assert facts.kv_b_algorithms == {"FP8_PB_WO"}
    assert facts.has_vision


def test_facts_of_a_legacy_uniform_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    legacy = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MXFP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(legacy))
    facts = CheckpointFacts.read(tmp_path)
    assert facts.algorithms == facts.kv_b_algorithms == {"MXFP8"}
    assert not facts.has_vision


def test_compile_cache_key_changes_with_a_switch(monkeypatch):
    monkeypatch.delenv("KIMI_K3_VISION_DTYPE", raising=False)
    before = patches.cache_key()
    assert before.startswith(patches.VERSION)
    monkeypatch.setenv("KIMI_K3_VISION_DTYPE", "0")
    assert patches.cache_key() != before


def test_wrapping_twice_wraps_once():
    class Owner:
        def add(self, n):
            return n + 1

    def make(original):
        return lambda self, n: 10 * original(self, n)

    for _ in range(2):
        wrap(Owner, "add", "patch", make)
    assert Owner().add(1) == 20


def a_report(state="applied", version="v1", rank=None, parts=None):
    outcome = patches.Outcome("test", SWITCH, state, "evidence", "a test", None, parts or {})
    return Report(version, "0.33.0", "model", (outcome,)).to_json(rank)


def test_equal_ranks_agree():
    assert agree(a_report(), [a_report(rank=0), a_report(rank=1)]) == []


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ([], "no rank has reported"),
        (
            [a_report(rank=0), a_report("off", rank=1)],
            "rank 1: KIMI_K3_TEST is off, in the front end applied",
        ),
        ([a_report(version="v0", rank=0)], "rank 0: patch set v0, the front end has v1"),
        ([Report("v1", "", None, ()).to_json(rank=2)], "rank 2: patches were never applied"),
        ([a_report("failed", rank=0)], "rank 0: KIMI_K3_TEST failed: evidence"),
    ],
)
def test_disagreement_is_named(ranks, problem):
    assert any(found.startswith(problem) for found in agree(a_report(), ranks))


def test_overview_is_plain_json():
    overview = patches.overview(a_report(), [a_report(rank=0)])
    assert json.loads(json.dumps(overview))["agreed"] is True
