"""The residual stream as a sum over sources, followed through all paths or through chosen edges.

A source is the embedding (token and position), a head or an MLP. Every reader (a head's query, key
or value; an MLP; the output) sees the sum of the sources that an edge connects to it. With all
edges this is the model's own path expansion, summed exactly; with a circuit's edges alone it is
what the circuit does by itself. The divisions of LayerNorm / RMSNorm are then those of the whole
model at the same place, so that a circuit is neither helped nor hurt by what it leaves out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.weights.model import ModelWeights

Port = Literal["Q", "K", "V", "out"]
PORTS: tuple[Port, ...] = ("Q", "K", "V")  # a head's inputs
FAINT = 100.0
Node = HeadIndex | Literal["embed", "output"]
EMBED: Literal["embed"] = "embed"
OUTPUT: Literal["output"] = "output"


class Edge(NamedTuple):
    """What `source` writes, read by `target` at a port: a head's "Q", "K" or "V", or "out"."""

    source: Node
    target: Node
    port: Port

    def __str__(self) -> str:
        return f"{name_of(self.source)} -{self.port}-> {name_of(self.target)}"


def name_of(node: Node) -> str:
    """ "L0H1" for a head, else the node's word."""
    return node if isinstance(node, str) else f"L{node[0]}H{node[1]}"


@dataclass(frozen=True)
class Trace:
    """What every source wrote and every head attended to, on some contexts.

    - `attention[layer]` (n, head, pos, pos); `written[layer]` (n, head, pos, d_model): each
      head's own output; `embedded` (n, pos, d_model); `rest[layer]` (n, pos, d_model): the
      layer's bias and MLP.
    - `inverse_rms` (layer + 1)(n, pos, 1): factor of the norm before each layer and the output.
    - `final` (n, pos, d_model): what the output reads, normed.
    """

    attention: tuple[Float[Tensor, "n head pos pos"], ...]
    written: tuple[Float[Tensor, "n head pos d_model"], ...]
    embedded: Float[Tensor, "n pos d_model"]
    rest: tuple[Float[Tensor, "n pos d_model"], ...]
    inverse_rms: tuple[Float[Tensor, "n pos 1"], ...]
    final: Float[Tensor, "n pos d_model"]

    def select(self, keep: Tensor) -> Trace:
        """The trace of the contexts that a mask or an index keeps."""
        return Trace(
            tuple(a[keep] for a in self.attention),
            tuple(w[keep] for w in self.written),
            self.embedded[keep],
            tuple(r[keep] for r in self.rest),
            tuple(f[keep] for f in self.inverse_rms),
            self.final[keep],
        )


def inverse_rms(weights: ModelWeights, residual: Tensor) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over d_model, or ones where the model has no norm."""
    if not weights.rms:
        return torch.ones_like(residual[..., :1])
    return (residual.pow(2).mean(-1, keepdim=True) + weights.eps).rsqrt()


def scores(weights: ModelWeights, layer: int, head: int, q: Tensor, k: Tensor) -> Tensor:
    """Attention scores (n, pos, pos) of one head from what its query and its key read, normed."""
    query = q @ weights.W_Q[layer, head] + weights.b_Q[layer, head]
    key = k @ weights.W_K[layer, head] + weights.b_K[layer, head]
    return query @ key.transpose(-1, -2) / weights.scale[layer]


def attend(score: Float[Tensor, "... pos pos"]) -> Float[Tensor, "... pos pos"]:
    """Causal softmax. What lies more than `FAINT` nats below the row's best gets exactly zero:
    it is far below round-off, and denormal numbers would slow every product that follows."""
    size = score.shape[-1]
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    masked = score.masked_fill(future, float("-inf"))
    best = masked.amax(-1, keepdim=True)
    return masked.masked_fill(masked < best - FAINT, float("-inf")).softmax(-1)


def sum_paths(weights: ModelWeights, tokens: Int[Tensor, "n pos"]) -> Trace:
    """Every path summed. Differs from the model's own forward pass by rounding only."""
    residual = embedded = weights.W_E[tokens] + weights.W_pos[: tokens.shape[1]]
    attention, written, rest, factors = [], [], [], []
    for layer in range(weights.n_layers):
        factors.append(inverse_rms(weights, residual))
        x = residual * factors[-1]
        queries = _by_head(x, weights.W_Q[layer] / weights.scale[layer])
        queries = queries + (weights.b_Q[layer] / weights.scale[layer])[:, None]
        keys = _by_head(x, weights.W_K[layer]) + weights.b_K[layer][:, None]
        attention.append(attend(queries @ keys.transpose(-1, -2)))
        values = attention[-1] @ _by_head(x, weights.W_V[layer])
        written.append(torch.einsum("nhpk,hkd->nhpd", values, weights.W_O[layer]))
        after = residual + written[-1].sum(1) + weights.b_O[layer]
        extra = weights.b_O[layer].expand_as(residual) + _mlp(weights, layer, after)
        rest.append(extra)
        residual = residual + written[-1].sum(1) + extra
    factors.append(inverse_rms(weights, residual))
    return Trace(
        tuple(attention),
        tuple(written),
        embedded,
        tuple(rest),
        tuple(factors),
        residual * factors[-1],
    )


def _by_head(
    x: Float[Tensor, "n pos d_model"], W: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "n head pos d_head"]:
    """x W for every head, as one large product: many small ones are several times slower."""
    heads, d_model, d_head = W.shape
    flat = x @ W.transpose(0, 1).reshape(d_model, heads * d_head)
    return flat.view(*x.shape[:2], heads, d_head).transpose(1, 2)


def sum_edges(
    weights: ModelWeights, tokens: Int[Tensor, "n pos"], edges: Collection[Edge], full: Trace
) -> Trace:
    """Only the paths that `edges` make; norms divide as in `full`, the trace of the whole model.

    Biases are always read. An MLP reads the embedding and earlier MLPs (the direct path, extended
    through the MLPs), and what it writes counts as part of the embedding's edge.
    """
    connected = {(e.source, e.port, e.target) for e in edges}
    heads = {node for e in edges for node in (e.source, e.target) if not isinstance(node, str)}
    written: dict[HeadIndex, Tensor] = {}
    direct = full.embedded
    bias = torch.zeros_like(direct)
    attention, stacked, rest = [], [], []

    def read(target: Node, port: str, layer: int) -> Tensor:
        total = bias.clone()
        if (EMBED, port, target) in connected:
            total = total + direct
        for source, output in written.items():
            if (source, port, target) in connected:
                total = total + output
        return total * full.inverse_rms[layer]

    for layer in range(weights.n_layers):
        patterns = torch.zeros_like(full.attention[layer])
        outputs = torch.zeros_like(full.written[layer])
        for head in range(weights.n_heads):
            node = (layer, head)
            if node not in heads:
                continue
            q, k, v = (read(node, port, layer) for port in "QKV")
            patterns[:, head] = attend(scores(weights, layer, head, q, k))
            values = patterns[:, head] @ (v @ weights.W_V[layer, head])
            outputs[:, head] = values @ weights.W_O[layer, head]
        for head in range(weights.n_heads):
            if (layer, head) in heads:
                written[(layer, head)] = outputs[:, head]
        attention.append(patterns)
        stacked.append(outputs)
        bias = bias + weights.b_O[layer]
        extra = _mlp(weights, layer, direct + bias)
        direct = direct + extra
        rest.append(weights.b_O[layer] + extra)
    return Trace(
        tuple(attention),
        tuple(stacked),
        full.embedded,
        tuple(rest),
        full.inverse_rms,
        read(OUTPUT, "out", weights.n_layers),
    )


def _mlp(weights: ModelWeights, layer: int, residual: Tensor) -> Tensor:
    mlp = weights.mlps[layer]
    if mlp is None:
        return torch.zeros_like(residual)
    x = residual * inverse_rms(weights, residual)
    return mlp.activation(x @ mlp.W_in + mlp.b_in) @ mlp.W_out + mlp.b_out
