"""Algorithm 1 against its literal form and against exhaustive search."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from imir_detect.circuits.eliminate import (
    Elimination,
    Search,
    cheap_order,
    eliminate,
    eliminate_literally,
)
from imir_detect.circuits.exhaustive import Additive, best_subset
from imir_detect.errors import InvalidArgumentError

PRICES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(prices=PRICES, budget=st.floats(0.0, 3.0))
def test_on_additive_prices_greedy_is_literal_and_best(prices, budget) -> None:
    objective = Additive(prices)
    fast = eliminate(objective, budget=budget)
    slow = eliminate_literally(objective, budget=budget)
    assert sorted(prices[i] for i in fast.kept) == sorted(prices[i] for i in slow.kept)
    assert fast.losses == pytest.approx(slow.losses)
    assert len(fast.kept) == len(best_subset(objective, budget=budget).kept)


@settings(max_examples=30, deadline=None)
@given(prices=PRICES, budget=st.floats(0.0, 3.0))
def test_preselection_and_bulk_steps_keep_the_budget_and_end_where_nothing_fits(
    prices, budget
) -> None:
    search = Search(exact_below=3, share=0.5, shortlist=1)
    found = eliminate(Additive(prices), budget=budget, search=search)
    assert max(found.losses) <= budget
    assert sorted([*found.removed, *found.kept]) == list(range(len(prices)))
    left = [prices[i] for i in found.kept]
    assert not left or found.losses[-1] + min(left) > budget - 1e-9
    assert len(found.losses) == len(found.accuracies) == len(found.removed) + 1


def test_the_trace_by_hand() -> None:
    found = eliminate(Additive([1.0, 0.25, 2.0]), budget=1.5)
    assert found.removed == (1, 0)
    assert found.losses == (0.0, 0.25, 1.25)
    assert found.rises == (0.25, 1.0)
    assert found.accuracies == pytest.approx((1, 2 / 3, 1 / 3))
    assert found.kept == (2,)
    assert found.blocked == 3.25
    assert found.circuit("abc") == ("c",)


def test_everything_goes_where_the_budget_allows_it() -> None:
    found = eliminate(Additive([1.0, 1.0]), budget=9.0)
    assert (found.kept, found.blocked) == ((), float("inf"))


class Backup:
    """Two directions that stand in for one another, and a third that is needed a little."""

    size = 3

    def evaluate(self, alive):
        return (0.0 if alive[0] or alive[1] else 5.0) + (0.0 if alive[2] else 0.5), 1.0

    def without(self, alive, candidates):
        losses = []
        for one in candidates.tolist():
            rest = alive.clone()
            rest[one] = False
            losses.append(self.evaluate(rest)[0])
        return torch.tensor(losses)

    def margins(self, alive):
        return torch.zeros(1), torch.zeros(1, 3)


def test_of_two_backups_one_is_kept() -> None:
    assert eliminate(Backup(), budget=1.0).kept == (1,)
    assert eliminate(Backup(), budget=0.1).kept == (1, 2)
    assert best_subset(Backup(), budget=1.0).best_loss == (5.5, 0.5, 0.0, 0.0)


def test_joint_order_avoids_two_that_hurt_together() -> None:
    # Directions 0 and 1 move the same sequence the same way; 2 moves another one.
    change = -torch.tensor([[0.6, 0.6, 0.0], [0.0, 0.0, 0.61]])
    assert cheap_order(torch.zeros(2), change, 2) == [0, 2]


def test_a_budget_below_the_start_is_refused() -> None:
    class Bad(Additive):
        def evaluate(self, alive):
            return 2.0, 0.0

    with pytest.raises(InvalidArgumentError, match=r"above the budget already; got 2.0000 nats"):
        eliminate(Bad([1.0]), budget=1.0)


def test_a_trace_above_its_budget_cannot_be_made() -> None:
    with pytest.raises(InvalidArgumentError, match="passes its budget"):
        Elimination(1.0, (), (), (2.0,), (1.0,), 0.0, 1)


def test_guards_of_the_search_and_of_the_exhaustive_oracle() -> None:
    with pytest.raises(InvalidArgumentError, match="this search cannot run"):
        Search(shortlist=0)
    with pytest.raises(InvalidArgumentError, match="too many directions"):
        best_subset(Additive([0.0] * 17), budget=1.0)
    with pytest.raises(InvalidArgumentError, match="no subset is within the budget"):
        best_subset(Additive([1.0]), budget=-1.0)
