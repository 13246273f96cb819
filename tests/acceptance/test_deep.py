"""The route for deep models, on models whose answers are known."""

from typing import Any

import families
import planted
import pytest
import torch

from imir_detect import detect_circuits, read_weights
from imir_detect.circuits.probe import Probe
from imir_detect.routes import Found, deep_route, too_deep
from imir_detect.weights.native import ModelSpec


def deep(model: Any, seed: int = 0) -> Found:
    weights = read_weights(model)
    context = min(64, weights.n_ctx, weights.vocab_size)
    probe = Probe(weights, torch.arange(weights.vocab_size), context, seed=seed)
    return deep_route(model, probe, None)


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
def test_planted_induction_is_found_with_its_feeder(norm: Any) -> None:
    found = deep(planted.induction(norm=norm))
    circuit = next(c for c in found.circuits if c.kind == "induction")
    assert circuit.heads == ((0, 0), (1, 0))
    assert "L0H0 -K-> L1H0" in [str(e) for e in circuit.edges]
    assert circuit.strength > 0.9
    assert found.heads[0].role == "previous_token"
    assert found.heads[2].role == "induction"


def test_other_planted_heads_are_told_apart() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.set_head(model, 1, 0, query=planted.S.token, key=planted.S.token, moves=None)
    kinds = {c.kind: c.heads for c in deep(model).circuits}
    assert kinds["previous_token"] == ((0, 0),)
    assert kinds["duplicate_token"] == ((1, 0),)
    assert "induction" not in kinds


def test_suppression_is_never_called_induction() -> None:
    model = planted.empty()
    planted.previous_token(model)
    planted.matching(model, gain=-1.0)
    kinds = {c.kind for c in deep(model).circuits}
    assert "suppression" in kinds
    assert "induction" not in kinds


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
def test_two_hops_are_one_circuit_whose_second_query_is_led_by_the_first_match(norm: Any) -> None:
    model = planted.empty(layers=3, norm=norm)
    planted.previous_token(model)
    planted.matching(model, 1, moves=(planted.S.token, planted.S.second))
    planted.set_head(
        model,
        2,
        0,
        query=planted.S.second,
        key=planted.S.first,
        moves=(planted.S.token, planted.S.logit),
    )
    found = deep(model)
    (circuit,) = [c for c in found.circuits if c.kind == "k_hop"]
    assert circuit.hops == 2
    assert circuit.heads == ((0, 0), (1, 0), (2, 0))
    assert {str(e) for e in circuit.edges if e.source != "embed"} == {
        "L0H0 -K-> L1H0",
        "L0H0 -K-> L2H0",
        "L1H0 -Q-> L2H0",
        "L2H0 -out-> output",
    }
    assert circuit.strength > 0.9
    assert [c.kind for c in found.circuits] == ["k_hop", "previous_token"]
    assert [h.role for h in found.heads if h.head == 0] == [
        "previous_token",
        "induction",
        "induction",
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", [{}, {"init_range": 1.0}, {"norm": "RMS"}], ids=str)
def test_fresh_models_get_no_circuit(seed: int, settings: dict[str, Any]) -> None:
    spec = ModelSpec(60, 24, n_layers=4, n_heads=4, d_model=32, position="rotary", **settings)
    assert [c.kind for c in deep(spec.boot(seed=seed)).circuits] == []


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel", "LlamaForCausalLM", "Gemma3ForCausalLM", "BloomForCausalLM"]
)
def test_fresh_models_of_wrapped_families_get_no_circuit(name: str) -> None:
    for seed in range(3):
        assert [c.kind for c in deep(families.wrapped(name, seed=seed)).circuits] == []


def test_trained_models_show_the_heads_that_summed_paths_show(shipped: dict[str, Any]) -> None:
    """Predicted attention on repeated tokens, head by head, against the exact route's."""
    for model, report in shipped.values():
        found = deep(model)
        for row, head in zip(report.heads, found.heads, strict=True):
            assert abs(row["previous_token"] - head.previous_token) < 0.15
            if row["induction"] > 0.5:
                assert head.induction > 0.3


def test_models_with_experts_take_this_route_and_say_so() -> None:
    model = families.wrapped("MixtralForCausalLM")
    assert too_deep(read_weights(model), 32)
    report = detect_circuits(model)
    assert report.meta["route"] == "extended embeddings"
    assert report.label == "none"
    assert any("extended embeddings" in text for text in report.limits)
    assert len(report.heads) == 8


def test_small_readable_models_do_not() -> None:
    assert not too_deep(read_weights(planted.induction()), 14)
    many_heads = ModelSpec(20, 8, n_layers=9, n_heads=8, d_model=16)
    assert too_deep(read_weights(many_heads.boot(seed=0)), 8)
    wide = read_weights(ModelSpec(20, 64, n_layers=4, n_heads=8, d_model=256).boot(seed=0))
    assert too_deep(wide, 64)  # 2 x 256 contexts x 64 places x 32 heads x 256 numbers
    assert not too_deep(wide, 8)


def test_what_a_route_says_is_the_same_twice() -> None:
    model = planted.induction()
    a, b = deep(model), deep(model)
    assert (a.circuits, a.heads, a.coordinates) == (b.circuits, b.heads, b.coordinates)


def test_bare_weights_take_this_route_too() -> None:
    model = planted.induction()
    own, bare = deep(model).circuits, deep(read_weights(model)).circuits
    assert [(c.kind, c.heads, c.edges) for c in own] == [(c.kind, c.heads, c.edges) for c in bare]
    assert abs(own[0].effects["match"] - bare[0].effects["match"]) < 1e-3


def test_the_page_says_that_a_deep_models_strength_comes_from_running_it() -> None:
    from imir_detect.report.sentences import circuit_sentences

    circuit = next(c for c in deep(planted.induction()).circuits if c.kind == "induction")
    said = " ".join(circuit_sentences(circuit))
    assert "The model, run on random contexts, answers so on" in said
    assert "by itself" not in said
