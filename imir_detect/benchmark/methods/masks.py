"""Learned masks: edge pruning (Bhaskar et al. 2024) and subnetwork probing (Cao et al. 2021).

Every edge (every head) gets a hard-concrete gate (Louizos et al. 2018): a sigmoid of logistic noise
stretched to [-0.1, 1.1] and clamped. Adam lowers KL to the whole model plus a penalty on the
expected share of open gates; the score is the gate's logit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, Support, edges_or_heads, method
from imir_detect.benchmark.graph import PatchedModel
from imir_detect.benchmark.methods.hisp import by_ends

LOW, HIGH, TEMPERATURE = -0.1, 1.1, 2.0 / 3.0
RATE, PENALTY, START = 0.1, 1.0, 1.0
MOST_EDGES = 1000


def learn_gates(
    model: PatchedModel, size: int, to_edges: Callable[[Tensor], Tensor], budget: Budget
) -> Tensor:
    """Logits of `size` gates after `budget.epochs` steps; `to_edges` spreads gates over edges."""
    generator = torch.Generator().manual_seed(budget.seed)
    logits = torch.full((size,), START, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=RATE)
    whole = model.full_logits.log_softmax(-1)
    closed = TEMPERATURE * torch.log(torch.tensor(-LOW / HIGH))
    with torch.enable_grad():
        for _ in range(budget.epochs):
            u = torch.rand(size, generator=generator, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
            noise = u.log() - (1 - u).log()
            gate = ((logits + noise) / TEMPERATURE).sigmoid() * (HIGH - LOW) + LOW
            found = model.run(to_edges(gate.clamp(0, 1))).log_softmax(-1)
            kl = (whole.exp() * (whole - found)).sum(-1).mean()
            loss = kl + PENALTY * (logits - closed).sigmoid().mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return logits.detach()


def _supports(case: Case) -> Support:
    if len(case.edges) > MOST_EDGES:
        return Support(False, f"{len(case.edges)} edges: every gated run is held in memory")
    return edges_or_heads(case)


@method("edge-pruning", about="learned gates on edges", supports=_supports)
def edge_pruning(case: Case, *, budget: Budget) -> Scores:
    """One gate an edge."""
    model = case.patched(budget.samples, seed=budget.seed)
    logits = learn_gates(model, len(case.edges), lambda gates: gates, budget)
    return Scores(case.to_items(logits), forwards=model.forwards, backwards=budget.epochs)


@method("subnetwork-probing", about="learned gates on heads", supports=_supports)
def subnetwork_probing(case: Case, *, budget: Budget) -> Scores:
    """One gate a head; closed, all edges out of it are ablated."""
    model = case.patched(budget.samples, seed=budget.seed)
    order = {head: i + 1 for i, head in enumerate(case.weights.heads)}
    column = torch.tensor([0 if isinstance(e.source, str) else order[e.source] for e in case.edges])

    def to_edges(gates: Tensor) -> Tensor:
        return torch.cat([gates.new_ones(1), gates])[column]

    logits = learn_gates(model, len(order), to_edges, budget)
    return Scores(by_ends(case, logits), forwards=model.forwards, backwards=budget.epochs)
