"""The best set of every size by trying all subsets: the oracle of Algorithm 1 in small cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.circuits.eliminate import Objective
from imir_detect.errors import InvalidArgumentError

LARGEST = 16  # 65,536 subsets


@dataclass(frozen=True)
class BestSubset:
    """Smallest set of directions within the budget, and the lowest loss of every size."""

    kept: tuple[int, ...]
    loss: float
    best_loss: tuple[float, ...]


def best_subset(
    objective: Objective, *, budget: float, among: Sequence[int] | None = None
) -> BestSubset:
    """Try all subsets of `among` (default: all directions); the rest is off.

    Of the smallest sets within the budget, the one of lowest loss. Greedy elimination can end in a
    larger set; it never ends in a smaller one.
    """
    chosen = list(range(objective.size)) if among is None else list(among)
    if len(chosen) > LARGEST:
        raise InvalidArgumentError(
            "too many directions to try all subsets",
            got=str(len(chosen)),
            wanted=f"at most {LARGEST}",
            todo="pass `among`, for instance what an elimination kept",
        )
    best: tuple[int, ...] | None = None
    best_loss = []
    for size in range(len(chosen) + 1):
        lowest, lowest_set = float("inf"), tuple[int, ...]()
        for subset in combinations(chosen, size):
            alive = torch.zeros(objective.size, dtype=torch.bool)
            alive[list(subset)] = True
            loss = objective.evaluate(alive)[0]
            if loss < lowest:
                lowest, lowest_set = loss, subset
        best_loss.append(lowest)
        if best is None and lowest <= budget:
            best = lowest_set
    if best is None:
        raise InvalidArgumentError(
            "no subset is within the budget",
            got=f"a lowest loss of {min(best_loss):.4f} nats",
            wanted=f"at most {budget:.4f}",
            todo="raise the budget",
        )
    return BestSubset(best, best_loss[len(best)], tuple(best_loss))


@dataclass(frozen=True)
class Additive:
    """The simplest objective: every absent direction costs its own price. For tests, examples."""

    prices: Sequence[float]

    @property
    def size(self) -> int:
        return len(self.prices)

    def evaluate(self, alive: Bool[Tensor, " direction"]) -> tuple[float, float]:
        loss = float((torch.tensor(self.prices, dtype=torch.float64) * ~alive).sum())
        return loss, float(alive.double().mean())

    def without(
        self, alive: Bool[Tensor, " direction"], candidates: Int[Tensor, " candidate"]
    ) -> Float[Tensor, " candidate"]:
        prices = torch.tensor(self.prices, dtype=torch.float64)
        return self.evaluate(alive)[0] + prices[candidates]

    def margins(
        self, alive: Bool[Tensor, " direction"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch direction"]]:
        loss = torch.tensor([self.evaluate(alive)[0]], dtype=torch.float64)
        margin = -torch.log(torch.expm1(loss).clamp(min=1e-9))
        return margin, -torch.tensor([self.prices], dtype=torch.float64) * alive
