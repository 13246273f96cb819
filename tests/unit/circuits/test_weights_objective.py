"""Algorithm 1 on plain weights: the same function, the same losses, the planted circuit found."""

from __future__ import annotations

import planted
import pytest
import torch

from imir_detect.circuits.eliminate import eliminate, eliminate_literally
from imir_detect.circuits.weights_objective import WeightsObjective, weights_frame
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.errors import InvalidArgumentError
from imir_detect.frame.names import DIRECT, SHIFT_1, TOKEN_IDENTITY, Direction, Path
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

TASK = AssociativeRecall(n_blocks=5, n_common=0, n_rare=14, rare_frequency=1.0)


def trained_like(norm: str | None, d_mlp: int = 0):
    """A random small model: every direction has some coefficient."""
    spec = ModelSpec(14, 11, n_heads=2, d_model=16, norm=norm, d_mlp=d_mlp, init_range=0.5)
    return read_weights(spec.boot(seed=3))


def batch(n: int = 12):
    data = TASK.sample(n, generator=torch.Generator().manual_seed(0))
    return data.tokens, data.targets


@pytest.mark.parametrize(("norm", "d_mlp"), [(None, 0), ("LN", 0), ("RMS", 24)])
def test_with_everything_alive_it_is_the_model(norm, d_mlp) -> None:
    weights = trained_like(norm, d_mlp)
    tokens, targets = batch()
    objective = WeightsObjective(weights, tokens, targets)
    final = sum_paths(weights, tokens).final[:, -1] @ weights.W_U + weights.b_U
    wanted = torch.nn.functional.cross_entropy(final, targets[:, -1])
    alive = torch.ones(objective.size, dtype=torch.bool)
    assert objective.evaluate(alive)[0] == pytest.approx(float(wanted), abs=1e-9)
    assert 0 < objective.share <= 1
    assert len(objective.names) == objective.size == 2 * 3 * (1 + 9) + 9


@pytest.mark.parametrize("norm", [None, "LN"])
def test_reused_activations_and_candidates_change_nothing(norm) -> None:
    weights = trained_like(norm)
    objective = WeightsObjective(weights, *batch())
    g = torch.Generator().manual_seed(1)
    alive = torch.rand(objective.size, generator=g) < 0.7
    chosen = torch.randperm(objective.size, generator=g)[:15]
    found = objective.without(alive, chosen)
    for one, loss in zip(chosen.tolist(), found.tolist(), strict=True):
        rest = alive.clone()
        rest[one] = False
        fresh = WeightsObjective(weights, *batch())
        assert loss == pytest.approx(fresh.evaluate(rest)[0], abs=1e-10)


@pytest.mark.parametrize("norm", [None, "RMS"])
def test_margins_predict_a_small_removal(norm) -> None:
    """First order: with 1e-4 of every coefficient, removal changes the margin by its slope."""
    weights = trained_like(norm)
    objective = WeightsObjective(weights, *batch())
    objective.flat = objective.flat * 1e-4
    objective.coefficients = objective.coefficients.like(objective.flat)
    alive = torch.ones(objective.size, dtype=torch.bool)
    margin, change = objective.margins(alive)
    loss = objective.evaluate(alive)[0]
    assert float(torch.nn.functional.softplus(-margin).mean()) == pytest.approx(loss)
    rises = objective.without(alive, torch.arange(objective.size)) - loss
    wanted = (-torch.sigmoid(-margin)[:, None] * change).mean(0)
    large = wanted.abs() > 0.01 * wanted.abs().max()
    assert torch.allclose(rises[large], wanted[large], rtol=0.02)


def test_it_finds_a_planted_induction_circuit_as_the_literal_algorithm_does() -> None:
    weights = read_weights(planted.induction(heads=1))
    tokens, targets = batch(24)
    objective = WeightsObjective(weights, tokens, targets)
    start = objective.evaluate(torch.ones(objective.size, dtype=torch.bool))[0]
    found = eliminate(objective, budget=start + 0.05)
    kept = set(found.circuit(objective.names))
    assert kept == {
        Direction((0, 0), DIRECT, SHIFT_1, DIRECT),
        Direction((1, 0), DIRECT, TOKEN_IDENTITY, Path(((0, 0),))),
        Direction(None, Path(((1, 0),)), TOKEN_IDENTITY),
    }
    assert eliminate_literally(objective, budget=start + 0.05).kept == found.kept


def test_a_batch_that_asks_nothing_and_a_second_vocabulary_are_refused() -> None:
    weights = trained_like(None)
    tokens, targets = batch()
    with pytest.raises(InvalidArgumentError, match="must ask for something"):
        WeightsObjective(weights, tokens, torch.full_like(targets, -100))
    from dataclasses import replace

    other = replace(weights, W_U=weights.W_U[:, :5], b_U=weights.b_U[:5])
    with pytest.raises(InvalidArgumentError, match="name input tokens"):
        weights_frame(other)
