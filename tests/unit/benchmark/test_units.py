"""Units: the planted ones are needed and enough, and methods rank them."""

from typing import Any

import pytest
import torch

from imir_detect.benchmark.cases import Case, planted_case
from imir_detect.benchmark.contract import Budget, find_method
from imir_detect.benchmark.methods.imir_units import needed_edges
from imir_detect.benchmark.metrics import circuit_metrics, rank_metrics
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.names import TOKEN_IDENTITY, Direction, Path, shift
from imir_detect.models.planted import PlantedSpec

SPECS = {
    "induction": PlantedSpec("induction", noise=0.02, distractors=1, seed=1),
    "layernorm": PlantedSpec("induction", norm="LN", noise=0.02, seed=2),
    "duplicate": PlantedSpec("duplicate_token", noise=0.02, distractors=2, seed=3),
    "in_weights": PlantedSpec("in_weights", noise=0.02, seed=4),
}


def units(name: str) -> Case:
    return planted_case(name, SPECS[name], "zero", "unit")


@pytest.mark.parametrize("name", SPECS)
def test_planted_units_are_enough_and_each_is_needed(name: str) -> None:
    case = units(name)
    assert case.labels is not None
    model = case.without_units(16, seed=5)
    right = frozenset(case.labels.positive)

    def margin(kept: frozenset[Any]) -> float:
        logits = model.run(case.mask_of(kept))
        return float(model.prompts.logit_diff(logits).mean())

    whole = margin(frozenset(case.items))
    assert margin(right) > 0.95 * whole > 0
    for unit in right:
        assert margin(frozenset(case.items) - {unit}) < 0.5 * whole


def test_the_induction_circuit_has_the_units_worked_out_on_paper() -> None:
    case = units("induction")
    assert case.labels is not None
    named = sorted(str(unit) for unit in case.labels.positive)
    heads = sorted({unit.head for unit in case.labels.positive if unit.head is not None})  # type: ignore[union-attr]
    (a, b), (c, d) = heads
    assert named == sorted(
        [
            f"L{a}H{b}[shift 1] q:direct k:direct",
            f"L{c}H{d}[identity] q:direct k:L{a}H{b}",
            f"out[identity] L{c}H{d}",
        ]
    )


def test_a_unit_needs_the_edges_along_its_paths() -> None:
    feeder, reader = (0, 1), (1, 0)
    assert needed_edges(Direction(feeder, Path(), shift(1))) == (
        Edge(EMBED, feeder, "Q"),
        Edge(EMBED, feeder, "K"),
    )
    assert needed_edges(Direction(reader, Path(), TOKEN_IDENTITY, Path((feeder,)))) == (
        Edge(EMBED, feeder, "V"),
        Edge(EMBED, reader, "Q"),
        Edge(feeder, reader, "K"),
    )
    assert needed_edges(Direction(None, Path((feeder, reader)), TOKEN_IDENTITY)) == (
        Edge(EMBED, feeder, "V"),
        Edge(feeder, reader, "V"),
        Edge(reader, OUTPUT, "out"),
    )


@pytest.mark.parametrize("method", ["truth", "imir", "edge-patching", "eap"])
def test_methods_rank_units(method: str) -> None:
    case = units("duplicate")
    assert case.labels is not None
    shown = case if method == "truth" else case.blind()
    scores = find_method(method).run(shown, budget=Budget(samples=8))
    found = rank_metrics(case, case.labels, scores)["auc"]
    # A slope sees what a saturated softmax would do a little further on, and that is little.
    assert found == 1.0 if method != "eap" else 0.5 < found <= 1.0
    if method == "truth":
        assert circuit_metrics(case, case.labels, scores)["accuracy"] == 1.0


def test_algorithm_1_keeps_the_planted_units() -> None:
    case = planted_case(
        "small", PlantedSpec("previous_token", layers=1, noise=0.02), "zero", "unit"
    )
    assert case.labels is not None
    scores = find_method("imir-eliminate").run(case.blind(), budget=Budget(samples=8))
    assert rank_metrics(case, case.labels, scores)["auc"] == 1.0
    assert {case.items[i] for i in scores.values.topk(2).indices} == case.labels.positive


def test_units_have_no_truth_under_other_ablations() -> None:
    with pytest.raises(InvalidArgumentError, match="got mean ablation of units; wanted zero"):
        planted_case("x", SPECS["induction"], "mean", "unit")


def test_methods_that_do_not_score_units_decline() -> None:
    for name in ("eap-ig-inputs", "math:sqrt"):  # the second: a function from outside
        support = find_method(name).supports(units("duplicate").blind())
        assert (support.ok, support.reason) == (False, "scores edges and heads, not units")


def test_a_mask_of_all_units_is_the_model() -> None:
    case = units("layernorm")
    units_model, edges = case.without_units(4), case.patched(4)
    difference = units_model.full_logits - edges.full_logits
    assert torch.allclose(difference, torch.zeros_like(difference), atol=1e-8)
