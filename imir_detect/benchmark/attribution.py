"""Edge attribution: what a source would change at every reader, times what the reader is worth.

score(s -> r) = sum over places of <clean_s - reference_s, d metric / d input_r>, averaged over the
prompts (Syed, Rager and Conmy 2023; edge attribution patching after Nanda's attribution patching).
The gradient of every reader is the exact one, its norm's Jacobian included; it is taken layer by
layer from the output down, so memory holds one layer's readers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.benchmark.graph import heads_output, normed
from imir_detect.benchmark.prompts import Prompts
from imir_detect.coordinates.pathsum import Trace
from imir_detect.weights.model import ModelWeights

Metric = Callable[[Tensor], Tensor]  # logits (n, vocab) at the queries -> (n,), to be averaged


def residuals(trace: Trace) -> list[Float[Tensor, "n pos d_model"]]:
    """The residual stream before every layer, and before the output."""
    found = [trace.embedded]
    for written, rest in zip(trace.written, trace.rest, strict=True):
        found.append(found[-1] + written.sum(1) + rest)
    return found


def streams_from(
    weights: ModelWeights,
    embedded: Float[Tensor, "n pos d_model"],
    replace: dict[int, Float[Tensor, "head n pos d_model"]] | None = None,
) -> list[Float[Tensor, "n pos d_model"]]:
    """Residual streams of a run from a given embedding, with some layers' heads made to write what
    `replace` says."""
    streams = [embedded]
    for layer in range(weights.n_layers):
        if replace and layer in replace:
            written = replace[layer]
        else:
            x = normed(weights, streams[-1], layer).expand(weights.n_heads, *embedded.shape)
            written = heads_output(weights, layer, x, x, x)
        streams.append(streams[-1] + written.sum(0) + weights.b_O[layer])
    return streams


def edge_scores(
    weights: ModelWeights,
    streams: list[Float[Tensor, "n pos d_model"]],
    change: Float[Tensor, "source n pos d_model"],
    prompts: Prompts,
    metric: Metric,
) -> Float[Tensor, " edge"]:
    """First-order effect of every edge, in the order of `all_edges`.

    `streams`: the residual stream of the run whose gradient is taken (`residuals`); `change`: clean
    minus reference, by source. Positive: the metric falls when the edge is ablated.
    """
    parts: list[Tensor] = []
    for layer, readers in _backwards(weights, streams, prompts, metric):
        sources = change[: 1 + layer * weights.n_heads].flatten(1)
        parts.insert(0, (readers.flatten(-3) @ sources.T).flatten())
    return torch.cat(parts)


def output_gradients(
    weights: ModelWeights,
    streams: list[Float[Tensor, "n pos d_model"]],
    prompts: Prompts,
    metric: Metric,
) -> list[Float[Tensor, "n pos d_model"]]:
    """d metric / d what the heads of each layer write."""
    found: list[Tensor] = []
    total = torch.zeros_like(streams[-1])
    for layer, readers in _backwards(weights, streams, prompts, metric):
        total = readers if layer == weights.n_layers else total + readers.sum((0, 1))
        found.insert(0, total)
    return found[1:]


def _backwards(
    weights: ModelWeights, streams: list[Tensor], prompts: Prompts, metric: Metric
) -> Iterator[tuple[int, Tensor]]:
    """Gradients of the readers, from the output down: (n_layers, (n, pos, d_model)), then
    (layer, (head, port, n, pos, d_model))."""
    x = prompts.asked(streams[-1]).detach().requires_grad_()
    with torch.enable_grad():
        logits = normed(weights, x, weights.n_layers) @ weights.W_U + weights.b_U
        (slope,) = torch.autograd.grad(metric(logits).mean(), x)
    gradient = torch.zeros_like(streams[-1])
    gradient[torch.arange(len(prompts)), prompts.query] = slope
    yield weights.n_layers, gradient
    for layer in reversed(range(weights.n_layers)):
        readers = reader_gradients(weights, layer, streams[layer], gradient)
        yield layer, readers
        gradient = gradient + readers.sum((0, 1))


def reader_gradients(
    weights: ModelWeights, layer: int, stream: Tensor, gradient: Tensor
) -> Float[Tensor, "head port n pos d_model"]:
    """d metric / d input of each of a layer's readers, from the gradient of what heads write."""
    shape = (weights.n_heads, 3, *stream.shape)
    inputs = stream.detach().expand(shape).clone().requires_grad_()
    with torch.enable_grad():
        written = heads_output(weights, layer, *normed(weights, inputs, layer).unbind(1))
        return torch.autograd.grad(written, inputs, gradient.expand_as(written))[0]
