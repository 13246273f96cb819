"""Theorem 2: the factor, its finite form, and what the theorem refuses."""

from __future__ import annotations

import math

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.assumptions import require
from imir_detect.theory.starvation import starvation, starvation_factor


def test_the_factor_by_hand() -> None:
    assert starvation_factor(0.0, 0.0) == 0.0
    assert starvation_factor(0.25, 0.5) == pytest.approx(0.25 + 0.75 * 0.5)
    # e^delta = V - 1: half of the probability, half of the gradient.
    assert starvation_factor(0.0, 0.0, math.log(9), 10) == pytest.approx(0.5)
    assert starvation_factor(0.2, 0.3, 0.0, 4) == pytest.approx(0.2 + 0.8 * (0.3 + 0.7 * 0.75))


@pytest.mark.parametrize(("f_r", "f_v"), [(0.0, 0.0), (0.5, 0.25)])
def test_measured_gradients_follow_it(f_r, f_v) -> None:
    task = AssociativeRecall(
        n_blocks=8, n_common=64, n_rare=64, rare_frequency=f_r, variability=f_v
    )
    for row in starvation(task, deltas=(4.0, 12.0), n=4096, chunks=8):
        if row["coordinate"] == "gamma":
            continue
        assert row["measured"] == pytest.approx(row["finite"], abs=0.02)
        assert row["error"] < 0.02
        if row["delta"] == 12.0:
            assert row["measured"] == pytest.approx(row["limit"], abs=0.02)
        else:  # delta = 4 is far from the limit: stating the theorem there would be false
            assert abs(row["measured"] - row["limit"]) > 0.2


def test_it_refuses_a_task_it_is_not_stated_for() -> None:
    with pytest.raises(InvalidArgumentError, match=r"theorem 2.*got zipf=1.0; wanted zipf=0.0"):
        starvation(AssociativeRecall(zipf=1.0))


def test_it_refuses_another_task_by_name() -> None:
    class Other:
        name = "other"

    with pytest.raises(InvalidArgumentError, match="stated for associative recall; got other"):
        require("theorem 2", Other())  # type: ignore[arg-type]


def test_errors_shrink_with_data() -> None:
    task = AssociativeRecall(n_common=64, n_rare=64, variability=0.5)
    few, many = (
        [float(r["error"]) for r in starvation(task, deltas=(12.0,), n=n, chunks=8)[:2]]
        for n in (512, 8192)
    )
    assert torch.tensor(many).mean() < 0.5 * torch.tensor(few).mean()
