"""Coordinates of planted models, and a tracker that records when asked."""

from __future__ import annotations

import sys

import planted
import pytest
import torch

from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.coordinates.table import coordinate_table
from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.training.tracking import CoordinateTracker, four_coordinates
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights


def test_a_planted_induction_circuit_has_alpha_beta_gamma_and_no_delta() -> None:
    relation = torch.arange(14).view(-1, 2).flip(1).flatten()
    found = four_coordinates(read_weights(planted.induction()), relation=relation)
    idle = four_coordinates(read_weights(planted.empty()), relation=relation)
    assert min(found[k] for k in ("alpha", "beta")) > 5
    assert found["gamma"] == pytest.approx(1.0 + 1 / 13, rel=0.1)
    assert abs(found["delta"]) < 0.2
    assert idle == {"alpha": 0.0, "beta": 0.0, "gamma": 0.0, "delta": 0.0}


def test_a_planted_association_has_delta_alone() -> None:
    relation = torch.tensor([1, 0, 3, 2, *[-1] * 10])
    model = planted.association({0: 1, 1: 0, 2: 3, 3: 2})
    found = four_coordinates(read_weights(model), relation=relation)
    assert found["delta"] > 3
    assert max(abs(found[k]) for k in ("alpha", "beta", "gamma")) < 1e-9


@pytest.mark.parametrize("norm", [None, "LN"])
def test_it_reads_what_the_coordinate_table_reads(norm) -> None:
    weights = read_weights(ModelSpec(12, 9, d_model=16, norm=norm, init_range=0.4).boot(seed=1))
    relation = torch.tensor([1, 0, *[-1] * 10])
    tokens = torch.randint(12, (4, 9), generator=torch.Generator().manual_seed(0))
    table = coordinate_table(
        weights, sum_paths(weights, tokens), relation=relation, tokens=torch.arange(12), seed=0
    )
    rows = {(r.unit, r.layer, r.path, r.selection): r.effect for r in table}
    found = four_coordinates(weights, relation=relation)
    shifts = [rows["shift", layer, "direct", "shift 1"] for layer in (0, 1)]
    assert found["alpha"] == pytest.approx(max(shifts))
    assert found["beta"] == pytest.approx(rows["match", 1, "q:direct k:L0H0", "identity"])
    copies = [rows["copy", i, f"L{i}H0", "identity"] for i in (0, 1)]
    assert found["gamma"] == pytest.approx(max(copies))


def test_the_tracker_records_every_so_many_steps_and_leaves_the_model_alone() -> None:
    model = ModelSpec(8, 6, d_model=8).boot(seed=0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    tracker = CoordinateTracker(model, every=2)
    assert [tracker(step, loss=1.0) for step in range(4)] == [True, False, True, False]
    assert [row["step"] for row in tracker.history] == [0.0, 2.0]
    assert tracker.history[0]["loss"] == 1.0
    tracker(3, loss=2.0)
    resumed = CoordinateTracker(model, every=2, history=tracker.history)
    assert resumed(2, loss=3.0)  # a loop that goes on from a checkpoint takes this step again
    assert [(row["step"], row["loss"]) for row in resumed.history] == [(0.0, 1.0), (2.0, 3.0)]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_the_plot_draws_the_four() -> None:
    pytest.importorskip("matplotlib")
    tracker = CoordinateTracker(ModelSpec(8, 6, d_model=8).boot(seed=0), every=1)
    tracker(0)
    tracker(1)
    axes = tracker.plot()
    assert [line.get_label() for line in axes.get_lines()] == ["alpha", "beta", "gamma", "delta"]


def test_a_missing_matplotlib_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    tracker = CoordinateTracker(ModelSpec(8, 6, d_model=8).boot(seed=0), every=1)
    with pytest.raises(ImirError, match="the extra 'report'"):
        tracker.plot()


def test_guards() -> None:
    model = ModelSpec(8, 6, d_model=8).boot(seed=0)
    with pytest.raises(InvalidArgumentError, match="records every so many steps"):
        CoordinateTracker(model, every=0)
    with pytest.raises(InvalidArgumentError, match="does not fit the model"):
        four_coordinates(read_weights(model), relation=torch.tensor([0, 1]))
    with pytest.raises(InvalidArgumentError, match="nothing before it"):
        four_coordinates(read_weights(model), context=1)
