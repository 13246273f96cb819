"""The graph that circuits are cut from, and a model run with some of its edges ablated.

Nodes are the embedding (tokens and positions together), every head, and the output; an edge leads
from what a node writes to a head's query, key or value, or to the output. An ablated edge delivers
a reference in place of what its source writes: nothing (zero), the mean at that place over other
sequences (mean), or what the source wrote on the corrupt sequence (resample). Every reader norms
what it gets; biases are always read. A value bias, that of a norm included, adds a constant to what
a head writes; it counts with the output biases, so zero ablation leaves it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.benchmark.prompts import Prompts
from imir_detect.coordinates.pathsum import (
    EMBED,
    OUTPUT,
    PORTS,
    Edge,
    Node,
    Trace,
    sum_paths,
)
from imir_detect.errors import UnsupportedModelError
from imir_detect.weights.forward import attend, finish, inverse_rms, qk_factor

if TYPE_CHECKING:
    from imir_detect.models.planted_truth import Ablation
    from imir_detect.weights.model import ModelWeights


def all_edges(n_layers: int, n_heads: int) -> tuple[Edge, ...]:
    """Every edge, in order of the reader, its port, and the source.

    >>> len(all_edges(2, 1)), len(all_edges(2, 2))
    (12, 29)
    """
    found: list[Edge] = []
    sources: list[Node] = [EMBED]
    for layer in range(n_layers):
        heads: list[Node] = [(layer, head) for head in range(n_heads)]
        found += [Edge(s, head, port) for head in heads for port in PORTS for s in sources]
        sources += heads
    return (*found, *(Edge(source, OUTPUT, "out") for source in sources))


def n_edges(n_layers: int, n_heads: int) -> int:
    """How many edges `all_edges` gives.

    >>> n_edges(2, 1), n_edges(2, 2)
    (12, 29)
    """
    sources = n_layers + n_heads * n_layers * (n_layers - 1) // 2  # that the heads' ports see
    return 3 * n_heads * sources + 1 + n_layers * n_heads


def source_outputs(trace: Trace) -> Float[Tensor, "source n pos d_model"]:
    """What every source wrote: the embedding, then the heads in order."""
    heads = [w.transpose(0, 1) for w in trace.written]
    return torch.cat([trace.embedded[None], *heads])


def check_graph(weights: ModelWeights) -> None:
    """Raises UnsupportedModelError for models with MLPs or a norm after attention."""
    if weights.has_mlp or weights.post_gain is not None:
        raise UnsupportedModelError(
            "the benchmark's graph has heads for nodes, and an edge for each path between them",
            got="a model with MLPs" if weights.has_mlp else "a norm over what all heads write",
            wanted="an attention-only model whose heads write by themselves",
            todo="score attention-only models; detect_circuits reads the others",
        )


class PatchedModel:
    """A model on some prompts, with every edge kept (1), ablated (0), or in between.

    - `edges`: their order in every mask; `size`: how many. `clean`, `reference` (source, n, pos,
      d_model). `forwards`: forward passes run so far.

    Raises UnsupportedModelError for models with MLPs or a norm after attention.
    """

    def __init__(self, weights: ModelWeights, prompts: Prompts, ablation: Ablation) -> None:
        check_graph(weights)
        self.weights, self.prompts, self.ablation = weights, prompts, ablation
        self.edges = all_edges(weights.n_layers, weights.n_heads)
        self.trace = sum_paths(weights, prompts.tokens)
        self.clean = source_outputs(self.trace)
        self.forwards = 1
        if ablation == "zero":
            self.reference = torch.zeros_like(self.clean)
        else:
            self.reference = source_outputs(sum_paths(weights, prompts.corrupt))
            self.forwards += 1
        if ablation == "mean":
            self.reference = self.reference.mean(1, keepdim=True).expand_as(self.clean)
        self._asks_last = bool((prompts.query == prompts.tokens.shape[1] - 1).all())
        self._bias = [
            sum(weights.b_O[:layer], weights.b_O.new_zeros(weights.d_model))
            for layer in range(weights.n_layers + 1)
        ]

    @property
    def size(self) -> int:
        return len(self.edges)

    def first_layer(self, index: int) -> int:
        """The first layer that a change of this edge's mask changes (n_layers: the output)."""
        target = self.edges[index].target
        return self.weights.n_layers if isinstance(target, str) else target[0]

    @cached_property
    def full_logits(self) -> Float[Tensor, "n vocab"]:
        """Logits of the whole model at the queries."""
        return self.logits(self.clean, torch.ones(self.clean.shape[0]))

    @cached_property
    def right(self) -> Tensor:
        """Which inputs the whole model gets right."""
        return self.prompts.right(self.full_logits)

    @cached_property
    def empty_logits(self) -> Float[Tensor, "n vocab"]:
        """Logits with every edge ablated."""
        return self.run(torch.zeros(len(self.edges)))

    def run(
        self, keep: Float[Tensor, " edge"], *, first: int = 0, written: Tensor | None = None
    ) -> Float[Tensor, "n vocab"]:
        """Logits at the queries with `keep` of every edge; differentiable in it. What layers before
        `first` wrote is taken from `written` (default: clean), whatever `keep` says of them."""
        self.forwards += 1
        layers = self.weights.n_layers
        before = self.clean if written is None else written
        before = before[: 1 + first * self.weights.n_heads]
        if first == layers or not self._asks_last:
            found = self.written(keep, before, first)
            return self.logits(found, keep[len(keep) - len(found) :])
        # Of the last layer only what is written at the last place is read.
        found = self.written(keep, before, first, layers - 1)
        new = self.layer(layers - 1, found, self._readers(keep, layers - 1), last=True)
        at = torch.cat([found[:, :, -1:], new])[:, :, 0]
        return self._logits(at, keep[len(keep) - len(at) :])

    def written(
        self, keep: Float[Tensor, " edge"], before: Tensor, first: int = 0, stop: int | None = None
    ) -> Float[Tensor, "source n pos d_model"]:
        """What every source before layer `stop` writes with `keep` of every edge; `before` (source,
        n, pos, d_model): what those before layer `first` do."""
        found = before
        for layer in range(first, self.weights.n_layers if stop is None else stop):
            found = torch.cat([found, self.layer(layer, found, self._readers(keep, layer))])
        return found

    def _readers(self, keep: Float[Tensor, " edge"], layer: int) -> Tensor:
        """The part of a mask that stands for what a layer's heads read."""
        heads = self.weights.n_heads
        start = sum(3 * heads * (1 + earlier * heads) for earlier in range(layer))
        return keep[start : start + 3 * heads * (1 + layer * heads)]

    def layer(
        self,
        layer: int,
        written: Float[Tensor, "source n pos d_model"],
        keep: Tensor,
        *,
        last: bool = False,
    ) -> Float[Tensor, "head n pos d_model"]:
        """What the layer's heads write, given what the sources before them wrote; with `last`, at
        the last place alone."""
        keep = keep.view(self.weights.n_heads, 3, len(written))
        query = self.read(layer, written, keep[:, 0], slice(-1, None) if last else slice(None))
        key, value = self.read(layer, written, keep[:, 1:]).unbind(1)
        return heads_output(self.weights, layer, query, key, value)

    def read(
        self,
        layer: int,
        written: Float[Tensor, "source n pos d_model"],
        keep: Tensor,
        places: slice = slice(None),
    ) -> Tensor:
        """What readers with `keep` (..., source) see, normed: (..., n, pos, d_model)."""
        reference = self.reference[: len(written), :, places]
        base = reference.sum(0) + self._bias[layer]
        change = torch.tensordot(keep.to(written.dtype), written[:, :, places] - reference, dims=1)
        return normed(self.weights, base + change, layer)

    def logits(
        self, written: Float[Tensor, "source n pos d_model"], keep: Tensor
    ) -> Float[Tensor, "... n vocab"]:
        """Logits at the queries from what all sources wrote, for `keep` (..., source)."""
        return self._logits(written[:, torch.arange(len(self.prompts)), self.prompts.query], keep)

    def _logits(self, at: Float[Tensor, "source n d_model"], keep: Tensor) -> Tensor:
        """The same from what was written at the queries."""
        reference = self.reference[:, torch.arange(len(self.prompts)), self.prompts.query]
        change = torch.tensordot(keep.to(at.dtype), at - reference, dims=1)
        x = reference.sum(0) + self._bias[-1] + change
        return normed(self.weights, x, self.weights.n_layers) @ self.weights.W_U + self.weights.b_U


def normed(weights: ModelWeights, x: Tensor, layer: int) -> Tensor:
    """x as the norm before `layer` (n_layers: the output) divides it; gains are folded."""
    if not (weights.rms_out if layer == weights.n_layers else weights.rms):
        return x
    return x * inverse_rms(weights, x, layer)


def heads_output(
    weights: ModelWeights, layer: int, q: Tensor, k: Tensor, v: Tensor
) -> Float[Tensor, "head n pos d_model"]:
    """What a layer's heads write, from what their ports read: q, k, v (head, n, pos, d_model).
    Where `q` holds fewer places than `k`, they are the last ones."""

    def rows(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        found = (x.flatten(1, 2) @ W[layer]).view(len(x), *x.shape[1:3], -1)
        return (found if b is None else found + b[layer][:, None, None]).transpose(0, 1)

    queries = rows(q, weights.W_Q, weights.b_Q)
    keys = rows(k, weights.W_K, weights.b_K)
    f, g = qk_factor(weights, layer, queries), qk_factor(weights, layer, keys)
    places = torch.arange(k.shape[2])[-q.shape[2] :]
    queries = finish(weights, layer, "Q", queries, f, places=places)
    keys = finish(weights, layer, "K", keys, g)
    seen = attend(weights, layer, queries, keys, places=places)
    seen = (seen @ rows(v, weights.W_V, weights.b_V)).transpose(0, 1)
    return (seen.flatten(1, 2) @ weights.W_O[layer]).view(len(q), *q.shape[1:3], -1)
