"""Negative controls have no circuit, and scores are judged by what they say of them."""

from typing import Any

import numpy as np
import pytest

from imir_detect.benchmark.cases import Case, planted_case
from imir_detect.benchmark.controls import CONTROLS, control_case
from imir_detect.benchmark.meaning import calibration, controls, expected_error, item_scores
from imir_detect.benchmark.results import heatmap, leaderboard, pareto
from imir_detect.errors import InvalidArgumentError
from imir_detect.models.planted import PlantedSpec, build
from imir_detect.weights.store import parameters


@pytest.fixture(scope="module")
def twin() -> Case:
    return planted_case("induction", PlantedSpec("induction", norm="LN", seed=1), "zero")


@pytest.mark.parametrize("kind", CONTROLS)
def test_a_control_asks_the_same_and_has_no_circuit(twin: Case, kind: Any) -> None:
    other = build(PlantedSpec("duplicate_token", norm="LN", seed=2))
    case = control_case(twin, kind, other)
    assert case.name == f"induction~{kind}/zero/edge"
    assert (case.question, case.task) == (twin.question, twin.task)
    assert case.labels is not None
    assert (case.labels.positive, case.labels.negative) == (frozenset(), frozenset(case.items))
    assert case.facts["twin"] == twin.name
    model = case.patched(32, seed=3)
    assert float(model.right.double().mean()) <= 0.2


def test_a_reset_model_has_the_norms_of_its_twin_and_none_of_its_products(twin: Case) -> None:
    reset = parameters(control_case(twin, "reset").model)
    for name, tensor in parameters(twin.model).items():
        assert float(reset[name].norm()) == pytest.approx(float(tensor.norm()), rel=1e-5), name
    name = "layers.1.attn.o.weight"
    assert not np.allclose(reset[name].detach(), parameters(twin.model)[name].detach())


def test_a_control_that_answers_is_refused(twin: Case) -> None:
    with pytest.raises(InvalidArgumentError, match=r"got 1\.00 right; wanted at most 0\.2"):
        control_case(twin, "other", twin.model)


def row(model: str, method: str, scores: str, labels: str, **other: Any) -> dict[str, Any]:
    numbers = [float(text) for text in scores.split()]
    fixed = {"status": "ok", "granularity": "edge", "source": "planted", "kind": "x", "twin": None}
    fixed |= {"case": f"{model}/zero/edge", "model": model, "method": method, "auc": 1.0}
    return {**fixed, "top": max(numbers), "item_scores": scores, "item_labels": labels, **other}


def control_row(method: str, scores: str, twin: str = "a") -> dict[str, Any]:
    facts = {"source": "control", "kind": "reset", "twin": f"{twin}/zero/edge", "auc": None}
    return row(f"{twin}~reset", method, scores, "-" * len(scores.split()), **facts)


def test_controls_are_judged_by_the_top_score_and_by_the_cut_of_their_twin() -> None:
    rows = [
        row("a", "fixed", "5 4 1 9", "++-."),  # the cut is 4; what is not scored does not count
        control_row("fixed", "1 2 1 1"),
        row("a", "relative", "0.5 0.4 0.1 0", "++--"),
        control_row("relative", "0.9 0.4 0.3 0"),
    ]
    found = {(r["method"], r["kind"]): r for r in controls(rows)}
    assert found["fixed", "all"] == {
        "method": "fixed", "kind": "all", "controls": 1, "detection": 1.0, "false_share": 0.0
    }  # fmt: skip
    relative = found["relative", "reset"]
    assert (relative["detection"], relative["false_share"]) == (0.0, 0.5)


def test_controls_stay_out_of_ranks() -> None:
    assert leaderboard([control_row("fixed", "1 2")]) == []
    assert pareto([control_row("fixed", "1 2")]) == []
    assert heatmap([control_row("fixed", "1 2")])[0] == []


def test_scores_of_one_scale_are_calibrated_and_scores_of_many_are_not() -> None:
    rows = []
    for i, model in enumerate("abcd"):
        rows.append(row(model, "fixed", "3 3 1 1", "++--"))
        scale = 10.0**i
        rows.append(row(model, "shifting", f"{3 * scale} {3 * scale} {scale} {scale}", "++--"))
        rows.append(control_row("fixed", "1 1", model))
        rows.append(control_row("shifting", f"{scale} {scale}", model))
    by = {r["method"]: r for r in calibration(rows)}
    assert (by["fixed"]["ece"], by["fixed"]["pooled_auc"]) == (0.0, 1.0)
    assert by["shifting"]["ece"] > 0.2
    assert by["shifting"]["pooled_auc"] < 0.8
    assert (by["fixed"]["cases"], by["fixed"]["items"]) == (8, 24)


def test_expected_error_by_hand() -> None:
    # Two bins: chance 0.2 where 1 of 4 is right, 0.9 where 1 of 2 is: (4 x .05 + 2 x .4) / 6.
    chance = np.array([0.2] * 4 + [0.9] * 2)
    right = np.array([1.0, 0, 0, 0, 1, 0])
    assert expected_error(chance, right) == pytest.approx((4 * 0.05 + 2 * 0.4) / 6)


def test_items_that_are_not_scored_are_left_out() -> None:
    scores, labels = item_scores(row("a", "m", "1 2 3", "+.-"))
    assert (scores.tolist(), labels.tolist()) == ([1.0, 3.0], [1.0, 0.0])
