"""Mask-integrated gradients: every edge's mask is moved together from clean to ablated.

score = sum over k = 0 .. n of the metric's slope in the edge's mask, all masks at k / n ablated
(the convention of auto-circuit, which sums and does not average). Unlike EAP-IG, readers see a
mixture of both runs at every point. Ranked by absolute value.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, edges_or_heads, method
from imir_detect.benchmark.graph import PatchedModel

MOST_EDGES = 5000


def mask_scores(model: PatchedModel, steps: int) -> Tensor:
    """Signed sum over steps + 1 points, by edge; positive: ablating it lowers the metric."""
    total = torch.zeros(len(model.edges), dtype=torch.float64)
    for k in range(steps + 1):
        keep = torch.full_like(total, 1.0 - k / steps).requires_grad_()
        with torch.enable_grad():
            metric = model.prompts.logit_diff(model.run(keep)).mean()
            total += torch.autograd.grad(metric, keep)[0]
    return total


def _supports(case: Case) -> Support:
    if len(case.edges) > MOST_EDGES:
        return Support(False, f"{len(case.edges)} edges: every reader is held in memory")
    return edges_or_heads(case)


@method("mask-gradients", about="mask-integrated gradients", supports=_supports)
def mask_gradients(case: Case, *, budget: Budget) -> Scores:
    """Integrated over all masks together."""
    model = case.patched(budget.samples, seed=budget.seed)
    signed = mask_scores(model, budget.steps)
    return Scores(case.to_items(signed.abs()), forwards=model.forwards, backwards=budget.steps + 1)
