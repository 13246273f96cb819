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
from imir_detect.coordinates.pathsum import Trace
from imir_detect.frame.contexts import Contexts
from imir_detect.models.planted_truth import Ablation
from imir_detect.weights.forward import SIDES, attend, finish, project, qk_factor, values
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
        readers = _reader_slopes(weights, layer, x, ablated, gradient) * factor
        parts.insert(0, (readers.flatten(2) @ sources.flatten(1).T).flatten())
        gradient = gradient + readers.sum((0, 1))
    return torch.cat(parts)


def _reader_slopes(
    w: ModelWeights, layer: int, x: Tensor, ablated: Tensor, gradient: Tensor
) -> Float[Tensor, "head port n pos d_model"]:
    """Mean slope of what a layer's heads bring, in what their queries, keys and values read."""
    rows = {side: project(w, layer, side, x) for side in SIDES}
    starts = {side: project(w, layer, side, ablated) for side in SIDES}
    factors = {side: qk_factor(w, layer, rows[side]) for side in SIDES}
    done = {side: finish(w, layer, side, rows[side], factors[side]) for side in SIDES}
    back = torch.einsum("npd,hkd->nhpk", gradient, w.W_O[layer])
    worth = back @ values(w, layer, x).transpose(-1, -2)
    slopes = []
    for side in SIDES:
        total = torch.zeros_like(rows[side])
        for step in range(STEPS):
            share = (step + 0.5) / STEPS
            leaf = (starts[side] + share * (rows[side] - starts[side])).requires_grad_()
            with torch.enable_grad():
                moved = {**done, side: finish(w, layer, side, leaf, factors[side])}
                seen = attend(w, layer, moved["Q"], moved["K"])
                total += torch.autograd.grad(seen, leaf, worth)[0]
        W = w.W_Q if side == "Q" else w.W_K
        slopes.append(torch.einsum("nhpk,hdk->hnpd", total / STEPS, W[layer]))
    pattern = attend(w, layer, done["Q"], done["K"])
    slopes.append(torch.einsum("nhpq,nhpk,hdk->hnqd", pattern, back, w.W_V[layer]))
    return torch.stack(slopes, 1)
