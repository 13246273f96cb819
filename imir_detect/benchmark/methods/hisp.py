"""Head importance score for pruning (Michel, Levy and Neubig 2019; as in the ACDC paper).

I(h) = |<clean_h - reference_h, d loss / d output_h>|, averaged over prompts of the absolute value.
An edge scores as its less important end; embedding and output are always kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.benchmark.attribution import output_gradients, residuals
from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, method


def by_ends(case: Case, heads: Tensor) -> Tensor:
    """Scores of items from scores of heads (in order): an edge scores as its lesser end."""
    if case.granularity == "head":
        return heads
    value = dict(zip(case.weights.heads, heads.tolist(), strict=True))
    top = float(heads.max()) + 1.0
    return torch.tensor(
        [
            min(top if isinstance(end, str) else value[end] for end in (edge.source, edge.target))
            for edge in case.edges
        ],
        dtype=torch.float64,
    )


@method("hisp", about="head importance by gradient")
def hisp(case: Case, *, budget: Budget) -> Scores:
    """Importance of heads, promoted to edges."""
    model = case.patched(budget.samples, seed=budget.seed)
    w, prompts = case.weights, model.prompts
    gradients = output_gradients(w, residuals(model.trace), prompts, prompts.logit_diff)
    change = (model.clean - model.reference)[1:]
    heads = []
    for layer in range(w.n_layers):
        part = change[layer * w.n_heads : (layer + 1) * w.n_heads]
        heads.append((part * gradients[layer]).sum((2, 3)).abs().sum(1))
    return Scores(by_ends(case, torch.cat(heads)), forwards=model.forwards, backwards=1)
