"""Composition scores (Elhage et al. 2021): |W_OV W| / (|W_OV| |W|), from weights alone.

W is what the reader multiplies from the source's side: W_QK for Q, its transpose for K, W_OV for V,
W_U for the output; the embedding stands in for W_OV at the first layer. The value that random
matrices would give, 1 / sqrt(d_model), is taken off. Norms by Frobenius, computed from factors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect.benchmark.cases import Case
from imir_detect.benchmark.contract import Budget, Scores, method
from imir_detect.coordinates.pathsum import Node
from imir_detect.weights.model import ModelWeights


@method("composition", about="composition scores of weights, less the random value", sees="weights")
def composition(case: Case, *, budget: Budget) -> Scores:
    """One score an edge; the reader's Gram matrix is d_model x d_model."""
    w = case.weights
    read: dict[tuple[Node, str], Tensor] = {("output", "out"): w.W_U @ w.W_U.T}
    for layer, head in w.heads:
        q, k, v, o = (getattr(w, f"W_{x}")[layer, head] for x in "QKVO")
        read[((layer, head), "Q")] = q @ (k.T @ k) @ q.T
        read[((layer, head), "K")] = k @ (q.T @ q) @ k.T
        read[((layer, head), "V")] = v @ (o @ o.T) @ v.T
    written: dict[Node, Tensor] = {"embed": _gram(torch.cat([w.W_E, w.W_pos]))}
    for layer, head in w.heads:
        v, o = w.W_V[layer, head], w.W_O[layer, head]
        written[(layer, head)] = o.T @ (v.T @ v) @ o
    values = []
    for edge in case.edges:
        a, b = written[edge.source], read[(edge.target, edge.port)]
        norm = (a.trace() * b.trace()).clamp(min=1e-300).sqrt()
        values.append((a * b).sum().clamp(min=0).sqrt() / norm - _random(w))
    return Scores(case.to_items(torch.stack(values)))


def _gram(rows: Tensor) -> Tensor:
    return rows.T @ rows


def _random(w: ModelWeights) -> float:
    return float(w.d_model) ** -0.5
