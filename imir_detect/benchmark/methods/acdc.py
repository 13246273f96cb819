"""ACDC (Conmy et al. 2023): walk the edges from the output back, ablate those that cost little.

For every threshold tau the graph is walked once: an edge is ablated, and stays so when the KL
divergence to the whole model rises by less than tau. An edge's score is the smallest tau at which
it went; edges that never go score above all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, everything, method
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.benchmark.units import UnitModel

TAUS = tuple(base * 10.0**exponent for exponent in range(-5, 0) for base in (1, 3))
MOST_EDGES = 1000


def kl_to_whole(model: PatchedModel | UnitModel, logits: Tensor) -> float:
    """Mean KL(whole model || circuit) at the queries, in nats."""
    whole = model.full_logits.log_softmax(-1)
    return float((whole.exp() * (whole - logits.log_softmax(-1))).sum(-1).mean())


def acdc_scores(
    model: PatchedModel | UnitModel,
    taus: Sequence[float] = TAUS,
    order: Sequence[int] | None = None,
) -> Tensor:
    """Smallest tau at which each edge (each unit) goes; twice the largest for those that stay.

    `order`: edges in the order of the walk; default from the output to the embedding. It must
    visit readers of later layers first.
    """
    size = model.size
    walk = list(reversed(range(size))) if order is None else list(order)
    scores = torch.full((size,), 2.0 * max(taus), dtype=torch.float64)
    with torch.no_grad():
        for tau in sorted(taus, reverse=True):
            keep = torch.ones(size, dtype=torch.float64)
            before = 0.0
            for index in walk:
                keep[index] = 0.0
                now = kl_to_whole(model, model.run(keep, first=model.first_layer(index)))
                if now - before < tau:
                    before = now
                    scores[index] = min(float(scores[index]), tau)
                else:
                    keep[index] = 1.0
    return scores


def _supports(case: Case) -> Support:
    if len(case.edges) > MOST_EDGES:
        return Support(False, f"{len(case.edges)} edges, more than {MOST_EDGES}: hours")
    return everything(case)


@method("acdc", about="ACDC, KL divergence, thresholds 1e-5 .. 0.3", supports=_supports)
def acdc(case: Case, *, budget: Budget) -> Scores:
    """Smallest threshold at which each edge goes."""
    model = case.ablatable(budget.samples, seed=budget.seed)
    return Scores(case.to_items(acdc_scores(model)), forwards=model.forwards)
