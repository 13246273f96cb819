"""Algorithm 1: remove the direction that is missed least, until the next would cost too much.

The paper, section 6. The loss arrives as an object that can switch directions off (`Objective`), so
the same search serves the idealised model, its coordinate form, and any TransformerLens model.
Three things make it fast and leave its choice alone: candidates are ranked by a first-order
estimate and only the most promising are evaluated exactly; those are evaluated in batches on
activations kept from the layers before them; and, while many directions are left, several go in
one step. Before it stops, every direction that is left has been evaluated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float, Int
from imir_detect.errors import InvalidArgumentError

Name = TypeVar("Name")


class Objective(Protocol):
    """A loss with directions that can be switched off. Losses are means in nats."""

    @property
    def size(self) -> int:
        """Number of directions."""
        ...

    def evaluate(self, alive: Bool[Tensor, " direction"]) -> tuple[float, float]:
        """Loss and accuracy with the others off."""
        ...

    def without(
        self, alive: Bool[Tensor, " direction"], candidates: Int[Tensor, " candidate"]
    ) -> Float[Tensor, " candidate"]:
        """Exact loss with each candidate removed from `alive`, one at a time."""
        ...

    def margins(
        self, alive: Bool[Tensor, " direction"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch direction"]]:
        """Each answer's margin, and its first-order change on removing each direction.

        The margin is the answer's logit minus the log-sum-exp of the others, so that the loss is
        log(1 + e^-margin). Only used to choose what is evaluated exactly.
        """
        ...


@dataclass(frozen=True)
class Elimination:
    """What was removed, in which order, and what is left.

    - `removed`: directions in the order of removal; `losses[i]` and `accuracies[i]` hold after the
      first i of them are gone, so both have one entry more. The loss never exceeds `budget`.
    - `kept`: what is left, in order of direction.
    - `blocked`: loss that the cheapest further removal would have given; inf where nothing is left.
    - `evaluations`: forward passes of one candidate each.
    """

    budget: float
    removed: tuple[int, ...]
    kept: tuple[int, ...]
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    blocked: float
    evaluations: int

    def __post_init__(self) -> None:
        if max(self.losses) > self.budget:
            raise InvalidArgumentError(
                "the trace of an elimination passes its budget",
                got=f"a loss of {max(self.losses):.4f}",
                wanted=f"at most {self.budget:.4f}",
                todo="report this as a bug",
            )

    @property
    def rises(self) -> tuple[float, ...]:
        """Rise of the loss at each removal."""
        return tuple(b - a for a, b in pairwise(self.losses))

    def circuit(self, names: Sequence[Name]) -> tuple[Name, ...]:
        """Names of the directions that are left."""
        return tuple(names[i] for i in self.kept)


@dataclass(frozen=True)
class Search:
    """How to search. With at most `exact_below` directions left, the choice is the literal one.

    While more are left:
    - `share`: the part of them, cheapest by estimate, that may go in one step, as long as the loss
      stays below its start plus `allowance` of the budget, times the part of all directions gone;
      0 removes one at a time.
    - `shortlist`: where that fails, how many are evaluated exactly, again the cheapest by estimate.
    """

    exact_below: int = 80
    share: float = 0.1
    allowance: float = 0.3
    shortlist: int = 12

    def __post_init__(self) -> None:
        if self.shortlist < 1 or not 0 <= self.share < 1 or self.allowance < 0:
            raise InvalidArgumentError(
                "this search cannot run",
                got=f"shortlist={self.shortlist}, share={self.share}, allowance={self.allowance}",
                wanted="a shortlist of at least 1, a share in [0, 1), an allowance of at least 0",
                todo="use Search()",
            )


class _Trace:
    """What is alive, and the record so far."""

    def __init__(self, objective: Objective, budget: float) -> None:
        self.objective, self.budget = objective, budget
        self.alive = torch.ones(objective.size, dtype=torch.bool)
        loss, accuracy = objective.evaluate(self.alive)
        if not loss <= budget:
            raise InvalidArgumentError(
                "the loss of the full set is above the budget already",
                got=f"{loss:.4f} nats",
                wanted=f"at most {budget:.4f}",
                todo="raise the budget, train longer, or check the batch's answers",
            )
        self.losses, self.accuracies = [loss], [accuracy]
        self.removed: list[int] = []
        self.evaluations, self.blocked = 1, float("inf")
        self.stride = objective.size  # how many went in the last bulk step

    @property
    def left(self) -> Int[Tensor, " left"]:
        return self.alive.nonzero()[:, 0]

    def try_without(self, several: Tensor) -> float:
        alive = self.alive.clone()
        alive[several] = False
        self.evaluations += 1
        return self.objective.evaluate(alive)[0]

    def remove(self, one: int) -> None:
        """Remove one, if the loss allows it."""
        self.alive[one] = False
        loss, accuracy = self.objective.evaluate(self.alive)
        self.evaluations += 1
        if loss > self.budget:  # a bulk step whose first part costs more than the whole
            self.alive[one] = True
            return
        self.removed.append(one)
        self.losses.append(loss)
        self.accuracies.append(accuracy)

    def result(self) -> Elimination:
        return Elimination(
            self.budget,
            tuple(self.removed),
            tuple(self.left.tolist()),
            tuple(self.losses),
            tuple(self.accuracies),
            self.blocked,
            self.evaluations,
        )


def eliminate(
    objective: Objective,
    *,
    budget: float,
    search: Search | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Elimination:
    """Algorithm 1 with `budget` tau: the mean loss never exceeds it, at any step.

    Raises where the full set is above the budget already. `progress(left, loss)` is called after
    every step.

    >>> from imir_detect.circuits.exhaustive import Additive
    >>> eliminate(Additive([3.0, 0.1, 2.0]), budget=0.5).kept
    (0, 2)
    """
    how = search or Search()
    trace = _Trace(objective, budget)
    while len(trace.left):
        chosen = _cheap_many(trace, how) if len(trace.left) > how.exact_below else None
        if chosen is None:
            chosen = _cheapest(trace, how)
        if chosen is None:
            break
        before = len(trace.removed)
        for one in chosen.tolist():
            trace.remove(one)
        if len(trace.removed) == before:
            trace.blocked = budget  # round-off alone kept the last candidate from fitting
            break
        if progress is not None:
            progress(len(trace.left), trace.losses[-1])
    return trace.result()


def estimated_loss(
    margin: Float[Tensor, " batch"], change: Float[Tensor, "batch direction"]
) -> Float[Tensor, " direction"]:
    """Mean loss log(1 + e^-(margin + change)): first order in the margin, exact in the rest."""
    return torch.nn.functional.softplus(-(margin[:, None] + change)).mean(0)


def cheap_order(
    margin: Float[Tensor, " batch"], change: Float[Tensor, "batch direction"], many: int
) -> list[int]:
    """The directions to remove together, in greedy order of their joint estimated loss."""
    open_to = torch.zeros_like(change[0])
    chosen: list[int] = []
    for _ in range(min(many, change.shape[1])):
        best = int((estimated_loss(margin, change) + open_to).argmin())
        chosen.append(best)
        open_to[best] = float("inf")
        margin = margin + change[:, best]
    return chosen


def _cheap_many(trace: _Trace, how: Search) -> Tensor | None:
    """Directions whose joint removal costs next to nothing, or None."""
    left = trace.left
    many = min(int(how.share * len(left)), 2 * trace.stride)
    if many < 1:
        return None
    margin, change = trace.objective.margins(trace.alive)
    cheap = left[cheap_order(margin, change[:, left], many)]
    while many >= 1:
        gone = (len(trace.removed) + many) / trace.objective.size
        allowed = max(trace.losses[-1], trace.losses[0] + how.allowance * trace.budget * gone)
        if trace.try_without(cheap[:many]) <= min(allowed, trace.budget):
            trace.stride = many
            return cheap[:many]
        many //= 2
    trace.stride = 1
    return None


def _cheapest(trace: _Trace, how: Search) -> Tensor | None:
    """The cheapest of the candidates, evaluated exactly; None where no removal fits the budget."""
    left = trace.left
    pools = [left]
    if len(left) > how.exact_below:
        margin, change = trace.objective.margins(trace.alive)
        order = estimated_loss(margin, change[:, left]).argsort(stable=True)
        pools = [left[order[: how.shortlist]], left]
    for candidates in pools:
        found = trace.objective.without(trace.alive, candidates)
        trace.evaluations += len(candidates)
        if float(found.min()) <= trace.budget:
            return candidates[found.argmin()][None]
    trace.blocked = float(found.min())
    return None


def eliminate_literally(objective: Objective, *, budget: float) -> Elimination:
    """Algorithm 1 as it is written: one full forward pass per candidate per removal.

    The oracle of `eliminate`: no estimate, no cache, no batch, one removal at a time.
    """
    trace = _Trace(objective, budget)
    while len(trace.left):
        found = {one: trace.try_without(torch.tensor([one])) for one in trace.left.tolist()}
        best = min(found, key=lambda one: found[one])
        if found[best] > budget:
            trace.blocked = found[best]
            break
        trace.remove(best)
    return trace.result()
