"""The shipped models: the label read from weights is the label measured, relation given or not."""

from typing import Any

import pytest

from imir_detect import detect_circuits, make_task, shipped_card
from imir_detect.training.behaviour import measured_label
from imir_detect.training.loop import evaluate
from imir_detect.zoo import HOME, SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_the_label_is_the_measured_one(name: str, shipped: dict[str, Any]) -> None:
    card = shipped_card(name)
    model, report = shipped[name]
    task = make_task("recall", **card["task"]["knobs"])
    measured = evaluate(model, task, n=1024, seed=5)
    assert measured_label(measured) == name
    assert report.label == name
    assert detect_circuits(model, relation=task.relation).label == name


def test_with_a_task_prediction_and_measurement_stand_side_by_side(shipped: dict[str, Any]) -> None:
    card = shipped_card("icl")
    model, _ = shipped["icl"]
    task = make_task("recall", **card["task"]["knobs"])
    given = detect_circuits(model, task=task)
    assert given.measured["icl_accuracy"] > 0.95
    assert given.measured["iwl_accuracy"] < 0.2
    by_relation = detect_circuits(model, relation=task.relation, context=task.competitors)
    assert given.probabilities == by_relation.probabilities  # the task was run and changed nothing
    assert by_relation.measured == {}


def test_ablating_the_circuit_is_what_hurts(shipped: dict[str, Any]) -> None:
    model, _ = shipped["iwl"]
    (check,) = detect_circuits(model, verify="ablate").measured["ablation"].values()
    assert check["ablated"] < 0.5 * check["intact"]


def test_the_four_models_stay_under_a_megabyte() -> None:
    size = sum(file.stat().st_size for name in SHIPPED for file in (HOME / name).iterdir())
    assert size < 1_000_000
