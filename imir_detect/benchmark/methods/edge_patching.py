"""Exact patching: ablate one edge (one unit) at a time; the fall of the logit difference counts."""

from __future__ import annotations

import torch

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, everything, method

MOST_EDGES = 5000


def _supports(case: Case) -> Support:
    if len(case.edges) > MOST_EDGES:
        return Support(False, f"{len(case.edges)} edges, one forward pass each")
    return everything(case)


@method("edge-patching", about="exact effect of each edge by itself", supports=_supports)
def edge_patching(case: Case, *, budget: Budget) -> Scores:
    """One forward pass an edge, from the reader's layer on."""
    model = case.ablatable(budget.samples, seed=budget.seed)
    keep = torch.ones(model.size, dtype=torch.float64)
    falls = torch.zeros_like(keep)
    with torch.no_grad():
        whole = model.prompts.logit_diff(model.full_logits).mean()
        for index in range(model.size):
            keep[index] = 0.0
            logits = model.run(keep, first=model.first_layer(index))
            falls[index] = whole - model.prompts.logit_diff(logits).mean()
            keep[index] = 1.0
    return Scores(case.to_items(falls.abs()), signed=case.to_items(falls), forwards=model.forwards)
