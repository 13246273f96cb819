"""How the search of Algorithm 1 goes: bulk steps, shortlists, what it counts, where it stops."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from imir_detect.circuits.eliminate import (
    Search,
    eliminate,
    eliminate_literally,
    estimated_loss,
)
from imir_detect.circuits.exhaustive import Additive, best_subset
from imir_detect.errors import InvalidArgumentError


def lefts(objective: Any, *, budget: float, search: Search) -> list[int]:
    """How many directions are left after every step."""
    seen: list[int] = []
    eliminate(objective, budget=budget, search=search, progress=lambda left, _: seen.append(left))
    return seen


def test_a_part_of_the_cheapest_goes_in_one_step_while_many_are_left() -> None:
    search = Search(exact_below=3, share=0.5)
    assert lefts(Additive([0.0] * 20), budget=1.0, search=search) == [10, 5, 3, 2, 1, 0]
    # A tenth of 20 is 2, of 19 to 10 is 1, of fewer none: then one at a time.
    slow = Search(exact_below=3, share=0.1)
    assert lefts(Additive([0.0] * 20), budget=1.0, search=slow)[:3] == [18, 17, 16]
    one = Search(exact_below=3, share=0.0)
    assert lefts(Additive([0.0] * 6), budget=1.0, search=one) == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(("price", "first"), [(0.0149, 10), (0.0151, 19)])
def test_bulk_steps_may_cost_their_part_of_the_allowance(price: float, first: int) -> None:
    """Ten of twenty directions gone may cost half of three tenths of the budget of 1: .15."""
    search = Search(exact_below=3, share=0.5, allowance=0.3)
    assert lefts(Additive([price] * 20), budget=1.0, search=search)[0] == first


def test_after_a_smaller_step_the_next_is_at_most_twice_as_large() -> None:
    # Two free directions among twenty: steps of ten and five fail, one of two goes through, and
    # the next try starts at four. None of these is free, so directions go one by one.
    asked: list[int] = []

    class Watched(Additive):
        def evaluate(self, alive: Any) -> tuple[float, float]:
            asked.append(int(alive.sum()))
            return super().evaluate(alive)

    objective = Watched([0.0, 0.0] + [0.04] * 18)
    search = Search(exact_below=3, share=0.5, allowance=0.3)
    seen = lefts(objective, budget=1.0, search=search)
    assert seen[0] == 18
    # All of them, twice (for the slopes, too); tries of 10, 5 and 2; then the two, one by one;
    # slopes again, and a try of twice two.
    assert asked[:9] == [20, 20, 10, 15, 18, 19, 18, 18, 14]


def test_evaluations_are_counted_one_candidate_each() -> None:
    # 1 for all, then 3 candidates and the removal, 2 and the removal, 1 that does not fit.
    found = eliminate(Additive([1.0, 0.25, 2.0]), budget=1.5)
    assert found.evaluations == 1 + (3 + 1) + (2 + 1) + 1
    literal = eliminate_literally(Additive([1.0, 0.25, 2.0]), budget=1.5)
    assert literal.evaluations == 1 + (3 + 1) + (2 + 1) + 1
    assert (literal.removed, literal.blocked, literal.kept) == ((1, 0), 3.25, (2,))
    assert literal.losses == (0.0, 0.25, 1.25)
    assert eliminate_literally(Additive([0.1]), budget=1.0).blocked == float("inf")


class Misleading(Additive):
    """The estimate prefers the dearest direction."""

    def margins(self, alive: Any) -> tuple[torch.Tensor, torch.Tensor]:
        margin, change = super().margins(alive)
        return margin, -change


def test_where_the_shortlist_does_not_fit_all_are_looked_at() -> None:
    prices = [5.0, 0.1, 6.0, 7.0]
    short = Search(exact_below=1, share=0.0, shortlist=1)
    found = eliminate(Misleading(prices), budget=1.0, search=short)
    assert (found.removed, found.kept) == ((1,), (0, 2, 3))
    assert found.blocked == pytest.approx(5.1)
    # One shortlisted and all four; then one and all three, none of which fits.
    assert found.evaluations == 1 + (1 + 4 + 1) + (1 + 3)
    # With at most `exact_below` left there is no shortlist.
    exact = eliminate(Misleading(prices), budget=1.0, search=Search(exact_below=4, shortlist=1))
    assert exact.evaluations == 1 + (4 + 1) + 3


def test_a_step_whose_first_part_costs_more_than_the_whole_puts_it_back() -> None:
    class Paired(Additive):
        """Without 0 the loss is 9, unless 1 is gone as well."""

        def evaluate(self, alive: Any) -> tuple[float, float]:
            loss = super().evaluate(alive)[0]
            return loss + 9.0 * float(alive[1] and not alive[0]), 1.0

    found = eliminate(
        Paired([0.0, 0.1, 3.0, 3.0]), budget=1.0, search=Search(exact_below=1, share=0.5)
    )
    assert found.removed[0] == 1  # 0 was tried first, and put back
    assert 0 in found.removed
    assert found.kept == (2, 3)
    assert max(found.losses) <= 1.0


def test_round_off_that_keeps_the_last_candidate_out_ends_the_search() -> None:
    class Rounded(Additive):
        """Candidates look a little cheaper than they are."""

        def without(self, alive: Any, candidates: Any) -> torch.Tensor:
            return super().without(alive, candidates) - 1e-6

    found = eliminate(Rounded([1.0 + 1e-9]), budget=1.0)
    assert (found.removed, found.kept, found.blocked) == ((), (0,), 1.0)


def test_a_loss_at_the_budget_is_within_it() -> None:
    assert eliminate(Additive([0.5, 0.5]), budget=1.0).kept == ()
    assert eliminate_literally(Additive([0.5, 0.5]), budget=1.0).kept == ()
    assert best_subset(Additive([0.5, 0.5]), budget=1.0).kept == ()


def test_progress_is_told_the_loss_so_far() -> None:
    told: list[tuple[int, float]] = []
    eliminate(Additive([1.0, 0.25]), budget=2.0, progress=lambda *now: told.append(now))
    assert told == [(1, 0.25), (0, 1.25)]


def test_the_estimate_is_the_mean_loss_of_the_moved_margins() -> None:
    margin = torch.tensor([0.0, 2.0], dtype=torch.float64)
    change = torch.tensor([[0.0, 1.0], [-2.0, 0.0]], dtype=torch.float64)

    def loss(m: float) -> float:
        return float(torch.log1p(torch.exp(torch.tensor(-m, dtype=torch.float64))))

    wanted = [(loss(0.0) + loss(0.0)) / 2, (loss(1.0) + loss(2.0)) / 2]
    assert estimated_loss(margin, change).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    "settings",
    [{"share": 1.0}, {"share": -0.1}, {"allowance": -0.1}, {"shortlist": 0}],
)
def test_searches_that_cannot_run_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError, match="this search cannot run"):
        Search(**settings)  # type: ignore[arg-type]
    assert Search(shortlist=1, share=0.0, allowance=0.0).share == 0.0


def test_the_best_of_the_smallest_sets_wins() -> None:
    prices = [0.0] * 4 + [1.0, 1.0]
    found = best_subset(Additive(prices), budget=1.0)
    assert len(found.best_loss) == 7
    assert found.kept == (4,)  # of the two that do, the first
    assert found.loss == 1.0
    assert found.best_loss[:3] == (2.0, 1.0, 0.0)
    among = best_subset(Additive([1.0, 2.0, 4.0]), budget=1.0, among=[2, 1])
    assert set(among.kept) == {1, 2}
    assert among.best_loss == (7.0, 3.0, 1.0)
    with pytest.raises(InvalidArgumentError, match=r"got a lowest loss of 1\.0000 nats"):
        best_subset(Additive([1.0, 2.0]), budget=0.5, among=[1])
