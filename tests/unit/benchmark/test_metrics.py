"""Metrics against hand-made numbers and scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from imir_detect.benchmark.contract import Budget, Scores, find_method
from imir_detect.benchmark.metrics import (
    auc,
    average_precision,
    circuit_metrics,
    interval,
    rank_metrics,
)
from imir_detect.benchmark.suites import make_case
from imir_detect.errors import InvalidArgumentError, UnknownNameError


def test_ties_count_half_and_in_the_stair_form_nothing() -> None:
    right, wrong = np.array([1.0, 1.0]), np.array([1.0, 0.0])
    assert auc(right, wrong) == 0.75
    assert auc(right, wrong, ties=0.0) == 0.5


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=4, max_size=30))
def test_area_and_precision_are_scikit_learns(rows: list[tuple[int, bool]]) -> None:
    score = np.array([s for s, _ in rows], dtype=float)
    label = np.array([x for _, x in rows])
    if label.all() or not label.any():
        return
    assert auc(score[label], score[~label]) == pytest.approx(roc_auc_score(label, score))
    assert average_precision(score[label], score[~label]) == pytest.approx(
        average_precision_score(label, score)
    )


def test_an_interval_holds_its_estimate_and_repeats() -> None:
    generator = np.random.default_rng(0)
    right, wrong = generator.normal(1, 1, 20), generator.normal(0, 1, 30)
    low, high = interval(auc, right, wrong)
    assert low < auc(right, wrong) < high
    assert (low, high) == interval(auc, right, wrong)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_case("induction-clean/zero/edge", tmp_path_factory.mktemp("models"))


def test_the_truth_is_perfect_by_every_metric(case: Any) -> None:
    scores = find_method("truth").run(case, budget=Budget())
    ranks = rank_metrics(case, case.labels, scores)
    assert ranks["auc"] == ranks["auc_stair"] == ranks["ap"] == ranks["recall"] == 1.0
    assert ranks["shd"] == 0.0
    circuit = circuit_metrics(case, case.labels, scores)
    assert circuit["faithfulness"] == pytest.approx(1.0, abs=1e-3)
    assert circuit["accuracy"] == 1.0
    assert circuit["kl"] < 1e-3


def test_the_inverse_of_the_truth_is_as_bad_as_can_be(case: Any) -> None:
    values = -find_method("truth").run(case, budget=Budget()).values
    ranks = rank_metrics(case, case.labels, Scores(values))
    assert ranks["auc"] == 0.0
    assert ranks["shd"] == 2 * len(case.labels.positive)
    assert circuit_metrics(case, case.labels, Scores(values))["accuracy"] < 0.5


def test_random_scores_are_at_one_half(case: Any) -> None:
    scores = find_method("random").run(case, budget=Budget(draws=400))
    assert rank_metrics(case, case.labels, scores)["auc"] == pytest.approx(0.5, abs=0.03)


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="must be finite; got 1 that are not"):
        Scores(torch.tensor([0.0, float("nan")]))


def test_unknown_names_say_what_there_is(tmp_path: Any) -> None:
    with pytest.raises(UnknownNameError, match="no such method; got 'nothing'; wanted acdc, "):
        find_method("nothing")
    with pytest.raises(UnknownNameError, match=r"cannot be imported; got ModuleNotFoundError"):
        find_method("no_such_module:score")
    with pytest.raises(UnknownNameError, match="no such case; got 'induction/one/edge'"):
        make_case("induction/one/edge", tmp_path)
