"""Edge effects read from weights: every path's share of an answer, softmax by softmax.

What a reader gets is a sum over sources; a score is linear in what each port reads; so an answer's
margin splits exactly once the one nonlinear step, the softmax, is split. It is split by its
integral: between the scores with a port's whole input ablated and the scores as they are, the
Jacobian is averaged along the straight line (Aumann and Shapley; integrated gradients of one head).
The shares of a port's sources add up to what the port's input brings, where the attention is
saturated too, and of two heads that do the same each gets half. Norms divide as in the whole model.

The contexts are drawn by the reading itself (`imir_detect.frame.contexts`): it sees weights and the
kind of question, no task and no data. The ablation enters as the reference: nothing, the mean over
contexts place by place, or another context. References are linear, so that what is ablated is
projected once, with what is not; and on a straight line of queries the scores lie on one, so that a
node of the integral costs one softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.benchmark.attribution import residuals
from imir_detect.benchmark.graph import check_graph, source_outputs
from imir_detect.coordinates.pathsum import Trace
from imir_detect.frame.contexts import Contexts
from imir_detect.models.planted_truth import Ablation
from imir_detect.weights.forward import Side, by_head, finish, qk_factor, values, weigh
from imir_detect.weights.model import ModelWeights

PIECES = 6  # of the integral over a softmax, each by the Gauss-Legendre rule of two nodes
NODES = [(i + 0.5 + side / 12**0.5) / PIECES for i in range(PIECES) for side in (-1, 1)]
TINY = 1e-150  # a row that brings less brings nothing


def reference(outputs: Float[Tensor, "n ..."], ablation: Ablation) -> Float[Tensor, "n ..."]:
    """What is delivered in place of each context's outputs, or of anything linear in them."""
    if ablation == "zero":
        return torch.zeros_like(outputs)
    if ablation == "mean":
        return outputs.mean(0, keepdim=True).expand_as(outputs)
    return outputs.roll(1, dims=0)


def edge_effects(
    weights: ModelWeights,
    trace: Trace,
    contexts: Contexts,
    against: Int[Tensor, "n m"] | None,
    ablation: Ablation,
) -> Float[Tensor, edge]:
    """Nats that every edge brings to the wanted token's logit over its competitors' mean
    (`against`; None: the whole vocabulary), in the order of `all_edges`. Positive: helps.

    Raises UnsupportedModelError for models with MLPs or a norm after attention.
    """
    check_graph(weights)
    change = source_outputs(trace)
    change -= reference(change.transpose(0, 1), ablation).transpose(0, 1)
    rows, asked = contexts.rows, contexts.query
    slope = weights.W_U.T[contexts.wanted]
    others = weights.W_U.mean(1) if against is None else weights.W_U.T[against].mean(1)
    slope = (slope - others) * trace.inverse_rms[-1][rows, asked] / len(contexts)
    parts = [(change[:, rows, asked] * slope).sum((1, 2))]
    gradient = torch.zeros_like(trace.embedded)
    gradient[rows, asked] = slope
    streams = residuals(trace)
    for layer in reversed(range(weights.n_layers)):
        sources = change[: 1 + layer * weights.n_heads]
        readers = _reader_slopes(weights, layer, streams[layer], trace, gradient, ablation)
        parts.insert(0, (readers.flatten(0, 1).flatten(1) @ sources.flatten(1).T).flatten())
        gradient = gradient + readers.sum((0, 1))
    return torch.cat(parts)


def _reader_slopes(
    w: ModelWeights, layer: int, stream: Tensor, trace: Trace, gradient: Tensor, ablation: Ablation
) -> Float[Tensor, "head port n pos d_model"]:
    """Mean slope of what a layer's heads bring, in what their queries, keys and values read of the
    residual stream."""
    factor = trace.inverse_rms[layer]
    back = by_head(gradient, w.W_O[layer].transpose(-1, -2))
    worth = back @ values(w, layer, stream * factor).transpose(-1, -2)
    query, moved_query = _ends(w, layer, "Q", stream, factor, ablation)
    key, moved_key = _ends(w, layer, "K", stream, factor, ablation)
    score, seen = query @ key.transpose(-1, -2), trace.attention[layer]
    other_query, other_key = (
        moved_query @ key.transpose(-1, -2),
        query @ moved_key.transpose(-1, -2),
    )
    on_query = _mean_slope(w, layer, other_query, score, seen, worth) @ key
    on_key = _mean_slope(w, layer, other_key, score, seen, worth).transpose(-1, -2) @ query
    on_value = seen.transpose(-1, -2) @ back
    slopes = torch.stack(
        [
            _through(w, layer, "Q", on_query, trace),
            _through(w, layer, "K", on_key, trace),
            on_value,
        ],
        2,
    )
    slopes = (slopes * factor[:, None, None]).permute(1, 2, 0, 3, 4)
    maps = torch.stack([w.W_Q[layer], w.W_K[layer], w.W_V[layer]], 1).transpose(-1, -2)
    return (slopes.flatten(2, 3) @ maps).view(w.n_heads, 3, *gradient.shape)


def _ends(
    w: ModelWeights, layer: int, side: Side, stream: Tensor, factor: Tensor, ablation: Ablation
) -> tuple[Tensor, Tensor]:
    """Queries or keys as they are and with all that is read of sources ablated, both as the score
    multiplies them; norms divide as in the whole model."""
    W, b = (w.W_Q, w.b_Q) if side == "Q" else (w.W_K, w.b_K)
    bias = w.b_O[:layer].sum(0) @ W[layer]  # always read, like b: (head, d_head)
    read, constant = by_head(stream, W[layer]) - bias[:, None], b[layer][:, None]
    rows = [
        (part + bias[:, None]) * factor[:, None] + constant
        for part in (read, reference(read, ablation))
    ]
    divided = qk_factor(w, layer, rows[0])
    whole, ablated = (finish(w, layer, side, part, divided) for part in rows)
    return whole, ablated


def _mean_slope(
    w: ModelWeights, layer: int, start: Tensor, end: Tensor, seen: Tensor, worth: Tensor
) -> Float[Tensor, "n head pos pos"]:
    """Slope of sum(worth * pattern) in the scores, averaged on the line from `start` to `end`,
    where the pattern is `seen`.

    What a whole row brings is known without the integral. The little that the rule misses of it is
    shared out as what it finds: a softmax that turns over between two nodes is missed for all of a
    row's keys alike.
    """
    cap = w.attention[layer].cap
    total = torch.zeros_like(end)
    for node in NODES:
        score = torch.lerp(start, end, node)
        pattern = weigh(w, layer, score)
        slope = pattern * (worth - (pattern * worth).sum(-1, keepdim=True))
        if cap is not None:
            slope = slope * (1 - (score / cap).tanh().square())
        total += slope / len(NODES)
    step = end - start
    share = total * step
    brought = ((seen - weigh(w, layer, start)) * worth).sum(-1, keepdim=True)
    missed = brought - share.sum(-1, keepdim=True)
    size = share.abs().sum(-1, keepdim=True).clamp(min=TINY)
    return total + total.abs() * step.sign() * missed / size


def _through(
    w: ModelWeights, layer: int, side: Side, slope: Tensor, trace: Trace
) -> Float[Tensor, "n head pos d_head"]:
    """A slope in finished rows as one in projected rows."""
    both = trace.qk_factors[layer]
    leaf = torch.zeros_like(slope, requires_grad=True)
    with torch.enable_grad():
        factor = None if both is None else both[side == "K"]
        done = finish(w, layer, side, leaf, factor, constant=False)
        return torch.autograd.grad(done, leaf, slope)[0]
