"""Ours with Algorithm 1: the edges or units are the directions; the one missed least goes next.

Elimination (`imir_detect.circuits.eliminate`) runs on the task's loss with what is gone ablated.
Ranked by the order of removal; those kept come last, ranked by what removing each would cost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, everything, method
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.circuits.eliminate import Objective, Search, eliminate

MOST_ITEMS = 150
SLACK = 0.25  # of the way from the whole model's loss to that of no edge at all


class EdgeObjective:
    """A task's loss with edges ablated. Meets `Objective`."""

    def __init__(self, model: PatchedModel) -> None:
        self.model = model
        self.backwards = 0

    @property
    def size(self) -> int:
        return self.model.size

    def _margin(self, logits: Tensor) -> Tensor:
        prompts = self.model.prompts
        logits = prompts.sign * logits
        own = logits.gather(1, prompts.answer[:, None])
        others = logits.scatter(1, prompts.answer[:, None], float("-inf"))
        return own[:, 0] - others.logsumexp(1)

    def evaluate(self, alive: Tensor) -> tuple[float, float]:
        """Mean loss in nats, and the share of right answers."""
        with torch.no_grad():
            margin = self._margin(self.model.run(alive.double()))
        return _loss(margin), float((margin > 0).double().mean())

    def without(self, alive: Tensor, candidates: Tensor) -> Tensor:
        """Loss with each candidate gone; what the layers before it write is computed once."""
        found = []
        with torch.no_grad():
            written = self.model.written(alive.double(), self.model.clean[:1])
            for one in candidates.tolist():
                trial = alive.double()
                trial[one] = 0.0
                first = self.model.first_layer(one)
                found.append(
                    _loss(self._margin(self.model.run(trial, first=first, written=written)))
                )
        return torch.tensor(found, dtype=torch.float64)

    def margins(self, alive: Tensor) -> tuple[Tensor, Tensor]:
        """Margins, and their first-order change: the mean slope, the same for each input."""
        keep = alive.double().requires_grad_()
        with torch.enable_grad():
            margin = self._margin(self.model.run(keep))
            (slope,) = torch.autograd.grad(margin.mean(), keep)
        self.backwards += 1
        return margin.detach(), (-slope * alive).expand(len(margin), -1)


def _loss(margin: Tensor) -> float:
    return float(torch.nn.functional.softplus(-margin).mean())


def _supports(case: Case) -> Support:
    if len(case.items) > MOST_ITEMS or len(case.edges) > MOST_ITEMS:
        return Support(False, f"{len(case.items)} {case.granularity}s, more than {MOST_ITEMS}")
    return everything(case)


@method(
    "imir-eliminate",
    about="Algorithm 1 over edges or units, on the task's loss",
    supports=_supports,
)
def imir_eliminate(case: Case, *, budget: Budget) -> Scores:
    """Rank of removal."""
    if case.granularity == "unit":
        units = case.without_units(budget.samples, seed=budget.seed)
        values, passes = _ranks(units.objective)
        return Scores(values, forwards=passes)
    model = case.patched(budget.samples, seed=budget.seed)
    objective = EdgeObjective(model)
    values, _ = _ranks(objective)
    return Scores(case.to_items(values), forwards=model.forwards, backwards=objective.backwards)


def _ranks(objective: Objective) -> tuple[Tensor, int]:
    """Scores of the directions, and how often the loss was evaluated."""
    size = objective.size
    whole = objective.evaluate(torch.ones(size, dtype=torch.bool))[0]
    none = objective.evaluate(torch.zeros(size, dtype=torch.bool))[0]
    tau = whole + SLACK * max(none - whole, 1e-6)
    found = eliminate(objective, budget=tau, search=Search(exact_below=24))
    values = torch.zeros(size, dtype=torch.float64)
    for rank, one in enumerate(found.removed):
        values[one] = rank / size
    if found.kept:
        alive = torch.zeros(size, dtype=torch.bool)
        kept = torch.tensor(found.kept)
        alive[kept] = True
        cost = objective.without(alive, kept)
        values[kept] = 1.0 + (cost - cost.min())
    return values, found.evaluations + 2 + len(found.kept)
