"""Edge effects read from weights: every path's share of an answer, softmax by softmax.

What a reader gets is a sum over sources; a score is linear in what each port reads; so an answer's
margin splits exactly once the one nonlinear step, the softmax, is split. It is split by its
integral: between the scores with a port's whole input ablated and the scores as they are, the
Jacobian is averaged along the straight line (Aumann and Shapley; integrated gradients of one head).
The shares of a port's sources then add up to what the port's input brings, where the attention is
saturated too, and of two heads that do the same each gets half. Norms divide as in the whole model.

The contexts are drawn by the reading itself (`imir_detect.frame.contexts`): it sees weights and the
kind of question, no task and no data. The ablation enters as the reference: nothing, the mean over
contexts place by place, or another context.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.benchmark.attribution import residuals
from imir_detect.benchmark.graph import source_outputs
from imir_detect.coordinates.pathsum import Trace, attend, scores
from imir_detect.frame.contexts import Contexts
from imir_detect.models.planted_truth import Ablation
from imir_detect.weights.model import ModelWeights

STEPS = 24  # midpoints of the integral over a softmax


def references(trace: Trace, ablation: Ablation) -> Float[Tensor, "source n pos d_model"]:
    """What every source delivers when ablated, over the contexts of a trace."""
    outputs = source_outputs(trace)
    if ablation == "zero":
        return torch.zeros_like(outputs)
    if ablation == "mean":
        return outputs.mean(1, keepdim=True).expand_as(outputs)
    return outputs.roll(1, dims=1)


def edge_effects(
    weights: ModelWeights,
    trace: Trace,
    contexts: Contexts,
    against: Int[Tensor, "n m"] | None,
    ablation: Ablation,
) -> Float[Tensor, edge]:
    """Nats that every edge brings to the wanted token's logit over its competitors' mean
    (`against`; None: the whole vocabulary), in the order of `all_edges`. Positive: helps."""
    change = source_outputs(trace) - references(trace, ablation)
    n_heads, rows = weights.n_heads, contexts.rows
    slope = weights.W_U.T[contexts.wanted]
    others = weights.W_U.mean(1) if against is None else weights.W_U.T[against].mean(1)
    slope = (slope - others) * trace.inverse_rms[-1][rows, contexts.query] / len(contexts)
    parts = [(change[:, rows, contexts.query] * slope).sum((1, 2))]
    gradient = torch.zeros_like(trace.embedded)
    gradient[rows, contexts.query] = slope
    streams = residuals(trace)
    for layer in reversed(range(weights.n_layers)):
        sources = change[: 1 + layer * n_heads]
        factor = trace.inverse_rms[layer]
        x = streams[layer] * factor
        ablated = x - sources.sum(0) * factor
        readers = torch.stack(
            [_reader_slopes(weights, layer, head, x, ablated, gradient) for head in range(n_heads)]
        )
        readers = readers * factor
        parts.insert(0, (readers.flatten(2) @ sources.flatten(1).T).flatten())
        gradient = gradient + readers.sum((0, 1))
    return torch.cat(parts)


def _reader_slopes(
    w: ModelWeights, layer: int, head: int, x: Tensor, ablated: Tensor, gradient: Tensor
) -> Float[Tensor, "port n pos d_model"]:
    """Mean slope of a head's contribution in what its query, key and value read."""
    now = scores(w, layer, head, x, x)
    pattern = attend(now)
    back = gradient @ w.W_O[layer, head].T
    values = x @ w.W_V[layer, head]
    worth = back @ values.transpose(-1, -2)
    slopes = []
    for port in ("Q", "K"):
        q, k = (ablated, x) if port == "Q" else (x, ablated)
        start = scores(w, layer, head, q, k)
        mean = torch.zeros_like(now)
        for step in range(STEPS):
            a = attend(start + (step + 0.5) / STEPS * (now - start))
            mean += a * (worth - (a * worth).sum(-1, keepdim=True))
        leaf = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            score = scores(w, layer, head, *((leaf, x) if port == "Q" else (x, leaf)))
            slopes.append(torch.autograd.grad(score, leaf, mean / STEPS)[0])
    return torch.stack([*slopes, pattern.transpose(-1, -2) @ back @ w.W_V[layer, head].T])
