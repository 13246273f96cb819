"""Outcomes: labels by hand, and cells where the data leave no doubt who wins."""

from __future__ import annotations

import pytest

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.competition import (
    Course,
    Outcome,
    predicted_outcome,
    trained_outcome,
)

KNOBS = {"n_blocks": 3, "n_common": 16, "n_rare": 8, "query_never_first": True}
SHORT = Course(steps=400, batch=64, record_every=200, probe=256)


def test_labels_by_hand() -> None:
    def label(icl: float, iwl: float) -> str:
        return Outcome(({"step": 0.0, "icl": icl, "iwl": iwl},)).label

    assert [label(0.9, 0.1), label(0.1, 0.9), label(0.9, 0.9), label(0.1, 0.5)] == [
        "icl",
        "iwl",
        "both",
        "none",
    ]
    rows = ({"step": 0.0, "icl": 0.8, "iwl": 0.0}, {"step": 1.0, "icl": 0.35, "iwl": 1.0})
    assert Outcome(rows).lost("icl") == pytest.approx(0.45)
    assert Outcome(rows).lost("iwl") == 0.0
    assert Outcome(rows).on_border
    assert not Outcome(rows[:1]).on_border


@pytest.mark.parametrize("outcome", [predicted_outcome, trained_outcome])
def test_rare_tokens_alone_make_icl_and_an_absent_answer_makes_iwl(outcome) -> None:
    fresh = AssociativeRecall(rare_frequency=1.0, **KNOBS)
    assert outcome(fresh, SHORT).label == "icl"
    fixed = AssociativeRecall(rare_frequency=0.0, present=0.0, **KNOBS)
    assert outcome(fixed, SHORT).label == "iwl"


def test_the_history_starts_untrained_and_ends_at_the_last_step() -> None:
    found = predicted_outcome(AssociativeRecall(rare_frequency=1.0, **KNOBS), SHORT)
    # 1.4 times 400 steps, recorded every 200 and at the end.
    assert [row["step"] for row in found.history] == [0.0, 200.0, 400.0, 560.0]
    assert found.history[0]["iwl"] == 0.0


def test_guards() -> None:
    with pytest.raises(InvalidArgumentError, match="this course cannot run"):
        Course(steps=0)
    with pytest.raises(InvalidArgumentError, match=r"got .*stretch=0.9"):
        Course(stretch=0.9)
    with pytest.raises(InvalidArgumentError, match=r"competition.*got directed=True"):
        predicted_outcome(AssociativeRecall(directed=True))
