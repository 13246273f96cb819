"""Attention-pattern scores (Olsson et al. 2022): which heads look where a circuit's heads would.

On two periods of random tokens: attention to the previous token, to the earlier copy, to the token
behind it, and to the first place; a head scores as the best of these less what uniform attention
would give. An edge scores as its lesser end.
"""

from __future__ import annotations

import torch

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, method
from imir_detect.benchmark.methods.hisp import by_ends
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.contexts import repeated_contexts


@method("attention-patterns", about="heads by what they attend to on repeated tokens")
def attention_patterns(case: Case, *, budget: Budget) -> Scores:
    """Best pattern score of each head."""
    w = case.weights
    generator = torch.Generator().manual_seed(budget.seed)
    vocabulary = torch.arange(case.task.vocab_size)
    tokens, period = repeated_contexts(
        budget.samples, min(w.n_ctx, 64), vocabulary, generator=generator
    )
    trace = sum_paths(w, tokens)
    query = torch.arange(period + 1, tokens.shape[1])
    if len(query) == 0:
        query = torch.arange(1, tokens.shape[1])
    places = [query - 1, query - period, query - period + 1, torch.zeros_like(query)]
    uniform = (1.0 / (query + 1)).mean()
    heads = []
    for layer, head in w.heads:
        mean = trace.attention[layer][:, head].mean(0)
        heads.append(max(float(mean[query, p.clamp(min=0)].mean() - uniform) for p in places))
    return Scores(by_ends(case, torch.tensor(heads, dtype=torch.float64)), forwards=1)
