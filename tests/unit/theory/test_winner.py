"""Races between heads: the prediction by hand, and that together the coordinates decide."""

from __future__ import annotations

import pytest
import torch

from imir_detect.errors import InvalidArgumentError
from imir_detect.tasks.recall import AssociativeRecall
from imir_detect.theory.reduced import Reduced
from imir_detect.theory.ring import ring_positions, spread_positions
from imir_detect.theory.winner import (
    Race,
    _previous_pattern,
    _share_on_query,
    hit_rates,
    predict,
    race_coordinates,
    race_weights,
)

TASK = AssociativeRecall(
    n_blocks=4, n_common=0, n_rare=16, rare_frequency=1.0, query_never_first=True
)


def test_the_prediction_by_hand() -> None:
    alpha, beta = torch.tensor([0.5, 0.1]), torch.tensor([0.0, 0.3])
    assert predict(alpha, beta, weights=(1.0, 1.0)) == {"alpha": 0, "beta": 1, "alpha + beta": 0}
    assert predict(alpha, beta, weights=(1.0, 2.0))["alpha + beta"] == 1


def test_the_sum_names_the_winner_where_alpha_alone_does_not() -> None:
    races = [race_coordinates(TASK, heads=2, seed=seed, rate=8.0) for seed in range(10)]
    rates = hit_rates(races)
    assert all(race.emerged for race in races)
    assert rates["alpha + beta"] >= 0.9
    assert rates["alpha"] < rates["alpha + beta"]


def test_a_race_in_full_weights_ends_with_a_winner() -> None:
    race = race_weights(TASK, heads=2, seed=0, steps=300)
    assert race.emerged
    assert race.winner == race.predicted["alpha + beta"]
    assert 0.5 <= race.lead <= 1.0


def test_with_noise_all_weights_start_from_the_coordinates_that_the_coordinate_model_draws() -> (
    None
):
    for seed in range(4):
        few = race_coordinates(TASK, heads=3, seed=seed, steps=1).predicted
        full = race_weights(TASK, heads=3, seed=seed, noise=0.0, steps=1, batch=8).predicted
        assert (full["alpha"], full["beta"]) == (few["alpha"], few["beta"])


def test_a_heads_share_on_the_query_by_hand() -> None:
    tokens = torch.tensor([[7, 8, 9, 6, 7]])
    pattern = _previous_pattern(Reduced.of([0.0, 50.0], [0.0, 0.0]), 5)
    shares = _share_on_query(pattern, tokens, torch.tensor([[1]]))
    # At position 1: uniform over two places, one of them the query; or all on the one before.
    assert torch.allclose(shares, torch.tensor([0.5, 1.0]).double())


def test_leads_and_rates() -> None:
    split = Race({"alpha": 0, "beta": 1, "alpha + beta": 0}, (2.0, 2.0), 0.9)
    lost = Race({"alpha": 0, "beta": 0, "alpha + beta": 0}, (-1.0, 3.0), 0.9)
    never = Race({"alpha": 1, "beta": 1, "alpha + beta": 1}, (-1.0, -3.0), 0.2)
    assert (split.lead, lost.lead, never.lead) == (0.5, 1.0, 0.0)
    rates = hit_rates([split, lost, never])
    assert rates == {"alpha": 0.5, "beta": 0.0, "alpha + beta": 0.5}
    with pytest.raises(InvalidArgumentError, match="no run emerged"):
        hit_rates([never])


def test_it_refuses_a_task_with_a_relation() -> None:
    with pytest.raises(InvalidArgumentError, match=r"the winner.*rare_frequency"):
        race_coordinates(AssociativeRecall(), heads=2)


def test_ring_positions_keep_blocks_whole_and_apart() -> None:
    places = ring_positions(500, 3, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal((places[:, 1::2] - places[:, :-1:2]) % 10, torch.ones(500, 3).long())
    assert all(len(set(row)) == 7 for row in places.tolist())
    counts = torch.bincount(places[:, -1], minlength=10)
    assert int(counts.min()) > 25  # uniform: 50 each, standard deviation 7
    with pytest.raises(InvalidArgumentError, match="the ring must hold"):
        ring_positions(1, 3, 9, generator=torch.Generator())


def test_spread_positions_keep_blocks_whole_and_tell_nothing_by_parity() -> None:
    places = spread_positions(2000, 3, 18, generator=torch.Generator().manual_seed(0))
    assert torch.equal((places[:, 1::2] - places[:, :-1:2]) % 18, torch.ones(2000, 3).long())
    taken = torch.cat([places, (places[:, -1:] + 1) % 18], 1)  # the query's second, empty place
    assert all(len(set(row)) == 8 for row in taken.tolist())
    assert int(torch.bincount(places[:, -1], minlength=18).min()) > 70  # uniform: 111, deviation 10
    odd = ((places[:, -1] - places[:, 1]) % 2 == 1).double().mean()  # from query to first value
    assert 0.4 < float(odd) < 0.6
    cells = ring_positions(2000, 3, 18, generator=torch.Generator().manual_seed(0))
    assert bool(((cells[:, -1] - cells[:, 1]) % 2 == 1).all())  # in cells it gives values away
    with pytest.raises(InvalidArgumentError, match="must hold two positions for every block"):
        spread_positions(1, 3, 7, generator=torch.Generator())
