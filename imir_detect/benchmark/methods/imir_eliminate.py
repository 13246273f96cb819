"""Ours with Algorithm 1: the edges are the directions, and the one missed least goes next.

Elimination (`imir_detect.circuits.eliminate`) runs on the task's loss with ablated edges. Edges are
ranked by the order of removal; those kept come last, ranked by what removing each would cost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, edges_or_heads, method
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.circuits.eliminate import Search, eliminate

MOST_EDGES = 150
SLACK = 0.25  # of the way from the whole model's loss to that of no edge at all


class EdgeObjective:
    """A task's loss with edges ablated. Meets `Objective`."""

    def __init__(self, model: PatchedModel) -> None:
        self.model = model
        self.backwards = 0

    @property
    def size(self) -> int:
        return len(self.model.edges)

    def _margin(self, keep: Tensor) -> Tensor:
        prompts = self.model.prompts
        logits = prompts.sign * self.model.run(keep)
        own = logits.gather(1, prompts.answer[:, None])
        others = logits.scatter(1, prompts.answer[:, None], float("-inf"))
        return own[:, 0] - others.logsumexp(1)

    def evaluate(self, alive: Tensor) -> tuple[float, float]:
        """Mean loss in nats, and the share of right answers."""
        with torch.no_grad():
            margin = self._margin(alive.double())
        loss = float(torch.nn.functional.softplus(-margin).mean())
        return loss, float((margin > 0).double().mean())

    def without(self, alive: Tensor, candidates: Tensor) -> Tensor:
        """Loss with each candidate gone."""
        found = []
        for one in candidates.tolist():
            trial = alive.clone()
            trial[one] = False
            found.append(self.evaluate(trial)[0])
        return torch.tensor(found, dtype=torch.float64)

    def margins(self, alive: Tensor) -> tuple[Tensor, Tensor]:
        """Margins, and their first-order change: the mean slope, the same for each input."""
        keep = alive.double().requires_grad_()
        with torch.enable_grad():
            margin = self._margin(keep)
            (slope,) = torch.autograd.grad(margin.mean(), keep)
        self.backwards += 1
        return margin.detach(), (-slope * alive).expand(len(margin), -1)


def _supports(case: Case) -> Support:
    if len(case.edges) > MOST_EDGES:
        return Support(False, f"{len(case.edges)} edges, more than {MOST_EDGES}")
    return edges_or_heads(case)


@method("imir-eliminate", about="Algorithm 1 over edges, on the task's loss", supports=_supports)
def imir_eliminate(case: Case, *, budget: Budget) -> Scores:
    """Rank of removal."""
    model = case.patched(budget.samples, seed=budget.seed)
    objective = EdgeObjective(model)
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
    return Scores(case.to_items(values), forwards=model.forwards, backwards=objective.backwards)
