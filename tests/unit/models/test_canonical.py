"""The planted 2-hop circuit: its closed accuracy, its aids, and Algorithm 1 finding it in noise."""

from __future__ import annotations

import pytest
import torch

from imir_detect.circuits.eliminate import Search, eliminate, eliminate_literally
from imir_detect.circuits.exhaustive import best_subset
from imir_detect.errors import FrameMismatchError
from imir_detect.frame.names import ASSOCIATION, Direction, Path
from imir_detect.frame.relations import selections
from imir_detect.models import coordinates as co
from imir_detect.models.canonical import AIDS, CANONICAL, from_directions, two_hop
from imir_detect.models.hop_data import HopSequences
from imir_detect.models.idealised import idealised
from imir_detect.models.objective import CoordinateObjective


def case(layers: int, n: int, count: int, seed: int = 0, **knobs):
    hop = HopSequences(n, 2 * n, **knobs)
    model = idealised(hop.vocab, hop.n_positions, layers)
    lexinvariant = torch.full((hop.vocab,), -1)
    frame = model.frame(selections(lexinvariant, hop.n_positions, shifts=1, per_class=False))
    tokens, answers, positions = hop.sample(count, torch.Generator().manual_seed(seed))
    return frame, co.kernels(frame, tokens, answers, positions)


@pytest.mark.parametrize(("layers", "n"), [(3, 4), (3, 8), (4, 6)])
def test_alone_it_fails_exactly_where_the_first_block_misleads(layers, n) -> None:
    frame, data = case(layers, n, 3000)
    accuracy = co.accuracy(co.logits(two_hop(frame), data), data.answers)
    assert accuracy == pytest.approx(1 - 2 / n, abs=0.03)  # three standard errors


@pytest.mark.parametrize(
    ("permutation", "rate"),
    # n = 4: two steps lead back in a third of the derangements, in a quarter of all permutations
    # (and one step in another quarter); not where the block that does so comes second.
    [("derangement", 1 / 2 + 1 / 4 * 1 / 3 * 2 / 3), ("any", 1 / 2 + 2 / 16 + 1 / 16 * 2 / 3)],
)
def test_two_cycles_and_fixed_points_forgive_a_misleading_first_block(permutation, rate) -> None:
    frame, data = case(3, 4, 4000, permutation=permutation)
    accuracy = co.accuracy(co.logits(two_hop(frame), data), data.answers)
    assert accuracy == pytest.approx(rate, abs=0.025)  # three standard errors


@pytest.mark.parametrize("n", [4, 6])
def test_with_its_aids_it_is_right(n) -> None:
    frame, data = case(3, n, 1000)
    accuracy = co.accuracy(co.logits(two_hop(frame, aids=True), data), data.answers)
    assert accuracy >= 0.99


def test_it_survives_elimination_from_noise_as_the_literal_algorithm_says() -> None:
    frame, data = case(3, 4, 32)
    planted = two_hop(frame, match=12.0, readout=12.0, aids=True)
    g = torch.Generator().manual_seed(1)
    noise = 0.1 * torch.randn(len(planted.flat()), generator=g, dtype=torch.float64)
    noisy = planted.like(planted.flat() + noise)
    names = list(frame.directions())
    fast = eliminate(CoordinateObjective(noisy, data), budget=0.3)
    kept = set(fast.circuit(names))
    assert set(CANONICAL) <= kept <= set(CANONICAL) | set(AIDS)
    assert len(kept) > 4  # within this budget the four need at least one of their aids
    short = Search(exact_below=12, share=0.2, shortlist=8)
    preselected = eliminate(CoordinateObjective(noisy, data), budget=0.3, search=short)
    assert preselected.kept == fast.kept
    literal = eliminate_literally(CoordinateObjective(noisy, data, reuse=False), budget=0.3)
    assert literal.kept == fast.kept
    assert literal.losses == pytest.approx(fast.losses)


def test_the_exhaustive_oracle_agrees_on_the_planted_six() -> None:
    frame, data = case(3, 4, 64)
    objective = CoordinateObjective(two_hop(frame, aids=True), data)
    planted = objective.flat.nonzero()[:, 0].tolist()
    best = best_subset(objective, budget=0.05, among=planted)
    found = eliminate(objective, budget=0.05)
    assert set(best.kept) <= set(planted)
    assert len(found.kept) == len(best.kept)


def test_a_direction_that_the_frame_lacks_is_refused() -> None:
    frame, _ = case(3, 4, 2)
    with pytest.raises(
        FrameMismatchError, match=r"no such directions; got out.association. direct"
    ):
        from_directions(frame, {Direction(None, Path(), ASSOCIATION): 1.0})
