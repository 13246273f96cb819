"""Exact edge patching: ablate one edge at a time and measure the fall of the logit difference."""

from __future__ import annotations

import torch

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, edges_or_heads, method

MOST_EDGES = 5000


def _supports(case: Case) -> Support:
    if len(case.edges) > MOST_EDGES:
        return Support(False, f"{len(case.edges)} edges, one forward pass each")
    return edges_or_heads(case)


@method("edge-patching", about="exact effect of each edge by itself", supports=_supports)
def edge_patching(case: Case, *, budget: Budget) -> Scores:
    """One forward pass an edge, from the reader's layer on."""
    model = case.patched(budget.samples, seed=budget.seed)
    layers = case.weights.n_layers
    keep = torch.ones(len(model.edges), dtype=torch.float64)
    falls = torch.zeros_like(keep)
    with torch.no_grad():
        whole = model.prompts.logit_diff(model.full_logits).mean()
        for index, edge in enumerate(model.edges):
            keep[index] = 0.0
            first = layers if isinstance(edge.target, str) else edge.target[0]
            falls[index] = whole - model.prompts.logit_diff(model.run(keep, first=first)).mean()
            keep[index] = 1.0
    return Scores(case.to_items(falls.abs()), signed=case.to_items(falls), forwards=model.forwards)
