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
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from imir_detect._typing import Float, HeadIndex, Int
from imir_detect.weights.forward import (
    SIDES,
    Side,
    attend,
    finish,
    inverse_rms,
    mlp,
    patterns,
    post_factor,
    values,
)
from imir_detect.weights.model import ModelWeights

Port = Literal["Q", "K", "V", "out"]
PORTS: tuple[Port, ...] = ("Q", "K", "V")  # a head's inputs
Node = HeadIndex | Literal["embed", "output"]
EMBED: Literal["embed"] = "embed"
OUTPUT: Literal["output"] = "output"


class Edge(NamedTuple):
    """What `source` writes, read by `target` at a `port`: a head's "Q", "K" or "V", or "out".

    A head is (layer, head); "embed" and "output" are the two ends of the graph.

    >>> print(Edge((0, 1), (1, 0), "K"))
    L0H1 -K-> L1H0
    """

    source: Node
    target: Node
    port: Port

    def __str__(self) -> str:
        return f"{name_of(self.source)} -{self.port}-> {name_of(self.target)}"


def name_of(node: Node) -> str:
    """ "L0H1" for a head, else the node's word."""
    return node if isinstance(node, str) else f"L{node[0]}H{node[1]}"


class Attending(Protocol):
    """What attended to what on some contexts: a `Trace`, or a prediction from less."""

    @property
    def attention(self) -> tuple[Float[Tensor, "n head pos pos"], ...]: ...


@dataclass(frozen=True)
class Trace:
    """What every source wrote and every head attended to, on some contexts.

    - `attention[layer]` (n, head, pos, pos); `written[layer]` (n, head, pos, d_model): each
      head's own output; `embedded` (n, pos, d_model); `rest[layer]` (n, pos, d_model): the
      layer's bias and MLP.
    - `inverse_rms` (layer + 1)(n, pos, 1): factor of the norm before each layer and the output.
    - `final` (n, pos, d_model): what the output reads, normed.
    - `qk_factors[layer]`: factors of the query-key norm for queries and for keys (n, head, pos, 1);
      `post[layer]` (n, pos, d_model): factor of a norm after attention. None where there is none;
      `written` and `rest` hold what that norm leaves.
    - `before_mlp[layer]` (n, pos, d_model): the residual that the layer's MLP reads, before its
      norm; None without one.
    """

    attention: tuple[Float[Tensor, "n head pos pos"], ...]
    written: tuple[Float[Tensor, "n head pos d_model"], ...]
    embedded: Float[Tensor, "n pos d_model"]
    rest: tuple[Float[Tensor, "n pos d_model"], ...]
    inverse_rms: tuple[Float[Tensor, "n pos 1"], ...]
    final: Float[Tensor, "n pos d_model"]
    qk_factors: tuple[tuple[Tensor, Tensor] | None, ...]
    post: tuple[Float[Tensor, "n pos d_model"] | None, ...]
    before_mlp: tuple[Float[Tensor, "n pos d_model"] | None, ...]

    def select(self, keep: Tensor) -> Trace:
        """The trace of the contexts that a mask or an index keeps."""
        return Trace(
            tuple(a[keep] for a in self.attention),
            tuple(w[keep] for w in self.written),
            self.embedded[keep],
            tuple(r[keep] for r in self.rest),
            tuple(f[keep] for f in self.inverse_rms),
            self.final[keep],
            tuple(None if f is None else (f[0][keep], f[1][keep]) for f in self.qk_factors),
            tuple(None if f is None else f[keep] for f in self.post),
            tuple(None if x is None else x[keep] for x in self.before_mlp),
        )

    def qk_factor(self, layer: int, side: Side, head: int) -> Float[Tensor, "n 1 pos 1"] | None:
        """The factor of one head's query-key norm, or None."""
        both = self.qk_factors[layer]
        return None if both is None else both[side == "K"][:, head : head + 1]


def sum_paths(weights: ModelWeights, tokens: Int[Tensor, "n pos"]) -> Trace:
    """Every path summed. Differs from the model's own forward pass by rounding only.

    Raises UnsupportedModelError where an MLP was not read.
    """
    residual = embedded = weights.embed(tokens)
    attention, written, rest, factors, qk_factors, post, read = [], [], [], [], [], [], []
    for layer in range(weights.n_layers):
        factors.append(inverse_rms(weights, residual, layer))
        x = residual * factors[-1]
        pattern, f, g = patterns(weights, layer, x)
        attention.append(pattern)
        qk_factors.append(None if f is None or g is None else (f, g))
        outputs = torch.einsum(
            "nhpk,hkd->nhpd", pattern @ values(weights, layer, x), weights.W_O[layer]
        )
        bias = weights.b_O[layer].expand_as(residual)
        factor = post_factor(weights, layer, outputs.sum(1) + bias)
        post.append(factor)
        if factor is not None:
            outputs, bias = outputs * factor[:, None], bias * factor
        written.append(outputs)
        after = residual if weights.parallel else residual + outputs.sum(1) + bias
        read.append(None if weights.mlps[layer] is None else after)
        rest.append(bias + mlp(weights, layer, after))
        residual = residual + outputs.sum(1) + rest[-1]
    factors.append(inverse_rms(weights, residual, weights.n_layers))
    return Trace(
        tuple(attention),
        tuple(written),
        embedded,
        tuple(rest),
        tuple(factors),
        residual * factors[-1],
        tuple(qk_factors),
        tuple(post),
        tuple(read),
    )


def sum_edges(
    weights: ModelWeights, tokens: Int[Tensor, "n pos"], edges: Collection[Edge], full: Trace
) -> Trace:
    """Only the paths that `edges` make; norms divide as in `full`, the trace of the whole model.

    Biases are always read, and so is what positions add to scores. An MLP is a function of all that
    stands at its place: what it writes of the direct path alone (the embedding and earlier MLPs)
    counts as part of the embedding's edge; what it writes beyond that, because the heads of `edges`
    wrote there before it, goes where these heads' edges go.
    """
    connected = {(e.source, e.port, e.target) for e in edges}
    heads = {node for e in edges for node in (e.source, e.target) if not isinstance(node, str)}
    written: dict[HeadIndex, Tensor] = {}
    direct = full.embedded
    bias = torch.zeros_like(direct)
    attention, stacked, rest = [], [], []
    moved: list[Tensor] = []  # by layer: what the MLP makes of the heads, beyond the direct path

    def read(target: Node, port: str, layer: int) -> Tensor:
        total = bias.clone()
        if (EMBED, port, target) in connected:
            total = total + direct
        sources = [node for node in written if (node, port, target) in connected]
        for node in sources:
            total = total + written[node]
        for more in moved[min((node[0] for node in sources), default=layer) : layer]:
            total = total + more
        return total * full.inverse_rms[layer]

    for layer in range(weights.n_layers):
        seen = torch.zeros_like(full.attention[layer])
        outputs = torch.zeros_like(full.written[layer])
        for head in range(weights.n_heads):
            node = (layer, head)
            if node not in heads:
                continue
            q, k, v = (read(node, port, layer) for port in "QKV")
            q = q @ weights.W_Q[node] + weights.b_Q[node]
            k = k @ weights.W_K[node] + weights.b_K[node]
            f, g = (full.qk_factor(layer, side, head) for side in SIDES)
            queries = finish(weights, layer, "Q", q[:, None], f, [head])
            keys = finish(weights, layer, "K", k[:, None], g, [head])
            seen[:, head] = attend(weights, layer, queries, keys, [head])[:, 0]
            offered = v @ weights.W_V[node]
            if weights.b_V is not None:
                offered = offered + weights.b_V[node]
            outputs[:, head] = seen[:, head] @ offered @ weights.W_O[node]
        own = weights.b_O[layer].expand_as(direct)
        factor = full.post[layer]
        if factor is not None:
            outputs, own = outputs * factor[:, None], own * factor
        for head in range(weights.n_heads):
            if (layer, head) in heads:
                written[(layer, head)] = outputs[:, head]
        attention.append(seen)
        stacked.append(outputs)
        entering = full.before_mlp[layer]
        if entering is None:
            moved.append(torch.zeros_like(bias))
            bias = bias + own
            rest.append(own)
            continue
        there = [w for node, w in written.items() if node[0] < layer or not weights.parallel]
        alone = direct + bias if weights.parallel else direct + bias + own
        factor = inverse_rms(weights, entering, layer)
        extra = mlp(weights, layer, alone, factor)
        whole = alone + sum(moved, torch.zeros_like(bias)) + sum(there, torch.zeros_like(bias))
        moved.append(
            mlp(weights, layer, whole, factor) - extra if there else torch.zeros_like(bias)
        )
        bias, direct = bias + own, direct + extra
        rest.append(own + extra)
    return Trace(
        tuple(attention),
        tuple(stacked),
        full.embedded,
        tuple(rest),
        full.inverse_rms,
        read(OUTPUT, "out", weights.n_layers),
        full.qk_factors,
        full.post,
        full.before_mlp,
    )
