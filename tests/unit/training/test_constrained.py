"""Training in the span is the projection of full training; curves compared up to speed."""

from __future__ import annotations

import math

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.basis import Coefficients
from imir_detect.frame.relations import selections
from imir_detect.models import coordinates as co
from imir_detect.models.hop_data import HopSequences
from imir_detect.models.idealised import from_coefficients, idealised
from imir_detect.training.constrained import Plan, train_coordinates, train_weights
from imir_detect.training.curves import emergence_step, time_stretch

HOP = HopSequences(n_items=3, vocab=6, hops=1)


def setting(centring: str):
    model = idealised(6, HOP.n_positions, 2, centring=centring)
    frame = model.frame(selections(torch.full((6,), -1), HOP.n_positions, shifts=2))
    g = torch.Generator().manual_seed(0)
    zero = co.zeros(frame)
    start = zero.like(0.3 * torch.randn(len(zero.flat()), generator=g, dtype=torch.float64))
    return (
        from_coefficients(model, frame, start),
        frame,
        frame.project(*from_coefficients(model, frame, start).parameters_apart()),
    )


@pytest.mark.parametrize("centring", ["none", "class"])
def test_coefficients_descend_as_confined_weights_do(centring) -> None:
    """Two ways to train in the span: the Gram matrix's inverse, and projected gradients."""
    model, frame, start = setting(centring)
    plan = Plan(4, 3.0, "descent", batch=32)
    by_weight = train_weights(model, HOP.sample, plan, frame=frame, confine=True).model
    by_number = train_coordinates(frame, HOP.sample, plan, start=start)
    wanted = from_coefficients(model, frame, by_number.coefficients)
    for a, b in zip(by_weight.parameters(), wanted.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    assert not torch.allclose(by_weight.output, model.output, atol=1e-4)


def test_unconfined_weights_leave_the_span_and_confined_ones_do_not() -> None:
    model, frame, _ = setting("none")
    plan = Plan(3, 3.0, "descent", batch=32)
    for confine in (True, False):
        found = train_weights(model, HOP.sample, plan, frame=frame, confine=confine).model
        rest, rest_output = frame.outside(*found.parameters_apart())
        size = max(float(w.abs().max()) for w in (*rest, rest_output))
        assert (size < 1e-9) is confine


def test_only_the_chosen_coefficients_move_and_the_others_are_off() -> None:
    _, frame, start = setting("none")
    mask = torch.zeros_like(start.flat())
    mask[[0, 5]] = 1.0
    run = train_coordinates(
        frame, HOP.sample, Plan(3, 0.1, batch=16), start=start, chosen=start.like(mask)
    )
    moved = run.coefficients.flat()
    assert (moved != 0).nonzero()[:, 0].tolist() == [0, 5]


def test_adam_learns_one_hop_and_records_it() -> None:
    _, frame, start = setting("none")
    watch = {"first": 0.0}

    def see(c: Coefficients) -> dict[str, float]:
        watch["first"] += 1
        return {"first": float(c.flat()[0])}

    plan = Plan(150, 0.1, batch=64, record_every=50)
    run = train_coordinates(frame, HOP.sample, plan, start=start, watch=see)
    assert [row["step"] for row in run.history] == [0, 50, 100, 149]
    assert run.history[-1]["accuracy"] > 0.9 > 0.5 > run.history[0]["accuracy"]
    assert watch["first"] == 4.0


def test_normalised_descent_takes_steps_of_a_given_length() -> None:
    model, frame, start = setting("none")
    plan = Plan(1, 0.25, "normalised", batch=8, tail=0.0)
    moved = train_coordinates(frame, HOP.sample, plan, start=start).coefficients.flat()
    step = moved - start.flat()
    assert float(step.norm()) == pytest.approx(0.25)
    slow = Plan(1, 1e-3, "normalised", batch=8, tail=0.0)
    small = train_coordinates(frame, HOP.sample, slow, start=start).coefficients.flat()
    assert torch.allclose((small - start.flat()) / 1e-3, step / 0.25)  # one direction
    found = train_weights(model, HOP.sample, plan).model
    pairs = zip(found.parameters(), model.parameters(), strict=True)
    length = torch.stack([(a - b).norm() for a, b in pairs]).norm()
    assert float(length) == pytest.approx(0.25)


def test_frozen_gradients_keep_their_weights() -> None:
    model, _, _ = setting("none")

    def freeze(gradients: list[torch.Tensor]) -> None:
        gradients[0].zero_()

    found = train_weights(model, HOP.sample, Plan(2, 1.0, "descent", batch=8), frozen=freeze)
    assert torch.equal(found.model.attention[0], model.attention[0])
    assert not torch.equal(found.model.attention[1], model.attention[1])


def test_a_penalty_shrinks_what_is_not_needed() -> None:
    _, frame, start = setting("none")
    size = []
    for penalty in (0.0, 0.05):
        plan = Plan(60, 0.05, batch=32, penalty=penalty)
        run = train_coordinates(frame, HOP.sample, plan, start=start)
        size.append(float(run.coefficients.flat().abs().sum()))
    assert size[1] < 0.7 * size[0]


def test_divergence_and_impossible_plans_are_named() -> None:
    model, _, _ = setting("none")
    plan = Plan(3, math.inf, "descent", batch=8, record_every=1)
    with pytest.raises(InvalidArgumentError, match="training diverged"):
        train_weights(model, HOP.sample, plan)
    with pytest.raises(InvalidArgumentError, match="this plan cannot run"):
        Plan(0, 0.1)
    random = idealised(6, HOP.n_positions, 1, values="random")
    frame = random.frame(selections(torch.full((6,), -1), HOP.n_positions))
    with pytest.raises(InvalidArgumentError, match="separated frame only"):
        train_weights(random, HOP.sample, Plan(1, 0.1), frame=frame, confine=True)


def curve(speed: float):
    steps = [float(t) for t in range(0, 1000, 10)]
    return [{"step": t, "loss": 1 / (1 + math.exp((t * speed - 300) / 30))} for t in steps]


def test_a_stretch_is_found_and_the_raw_correlation_is_lower() -> None:
    found = time_stretch(curve(1.0), curve(1.4))
    assert found.factor == pytest.approx(1.4, rel=0.02)
    assert found.correlation > 0.9999
    assert found.raw_correlation < 0.95


def test_emergence_between_records_and_never() -> None:
    rows = [{"step": 0.0, "probability": 0.2}, {"step": 10.0, "probability": 0.7}]
    assert emergence_step(rows) == pytest.approx(6.0)
    assert emergence_step(rows, level=0.9) == math.inf
