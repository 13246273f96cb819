"""Read a latent causal graph from the layer-0 attention of a model with position embeddings.

Layer 0 of a model that has learned a graph on positions attends, at every position, to that
position's parent (Nichani, Damian and Lee, ICML 2024). Nothing is run: scores come from weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect._typing import Float
from imir_detect.arguments import check_seed, shown, whole
from imir_detect.circuits.causal_null import few_rows_p_values, head_p_values, row_p_values
from imir_detect.errors import (
    ImirError,
    InvalidArgumentError,
    UnsupportedModelError,
    collecting,
    raise_all,
)
from imir_detect.linalg import DTYPE
from imir_detect.strict import SHARE
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

MIN_CONFIDENCE = 0.5  # chance-corrected attention that an edge needs: what it does, not its p-value
HEAD_LEVEL = 0.01  # a head's rows together must be so rare among untrained heads,
ROW_LEVEL = 0.5  # and then a row of its must stand out more than the median row of noise
MAX_POSITIONS = 64
MAX_TOKENS = 256  # tokens over which embeddings are averaged


@dataclass(frozen=True)
class CausalEdge:
    """`child` has `parent`; `head` of layer 0 that attends to it (None: not read from a head).

    - `confidence` in [0, 1]: how clearly the row names this parent; `CausalGraph.source` says how
      it was computed.
    - `effect`: how far the parent stands out in its row (nats for weights).
    - `p_value`: of the effect under the row's null.
    """

    parent: int
    child: int
    confidence: float
    effect: float
    p_value: float
    head: int | None = None


@dataclass(frozen=True)
class CausalGraph:
    """A graph that was read, with everything that it rests on.

    - `edges`: what passed, by child, then parent.
    - `candidates`: the best entry of every row of every head, edge or not: what was weighed.
    - `spread`: typical standard deviation of a row's scores (weights, nats) or of an entry's
      estimate (gradient), one a head.
    - `source`: "weights" or "gradient".
    - `undecided`: nodes of which it could not be told whether they have a parent, or which; they
      are not among `roots`.

    >>> edge = CausalEdge(0, 2, confidence=0.9, effect=4.0, p_value=0.001)
    >>> graph = CausalGraph(3, (edge,), (edge,), (0.1,), "weights")
    >>> graph.roots, graph.n_parents, graph.parents
    ((0, 1), 1, ((), (), (0,)))
    """

    n_nodes: int
    edges: tuple[CausalEdge, ...]
    candidates: tuple[CausalEdge, ...]
    spread: tuple[float, ...]
    source: Literal["weights", "gradient"]
    undecided: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """The parents of every node, rising; () for a root."""
        found: list[set[int]] = [set() for _ in range(self.n_nodes)]
        for edge in self.edges:
            found[edge.child].add(edge.parent)
        return tuple(tuple(sorted(nodes)) for nodes in found)

    @property
    def roots(self) -> tuple[int, ...]:
        """Nodes for which no parent was found, and which are not undecided."""
        bare = (node for node, parents in enumerate(self.parents) if not parents)
        return tuple(node for node in bare if node not in self.undecided)

    @property
    def n_parents(self) -> int:
        """The most common number of parents among nodes that have any; 0 where none has."""
        counts = Counter(len(parents) for parents in self.parents if parents)
        return max(counts, key=lambda n: (counts[n], n)) if counts else 0

    def first(self, nodes: int) -> CausalGraph:
        """The graph of the first `nodes` nodes."""
        return replace(
            self,
            n_nodes=nodes,
            edges=tuple(e for e in self.edges if e.child < nodes),
            candidates=tuple(c for c in self.candidates if c.child < nodes),
            undecided=tuple(node for node in self.undecided if node < nodes),
        )

    def matrix(self) -> Float[Tensor, "pos pos"]:
        """Confidence of every edge, row = child, column = parent; 0 where there is none."""
        out = torch.zeros(self.n_nodes, self.n_nodes, dtype=DTYPE)
        for edge in self.edges:
            out[edge.child, edge.parent] = max(float(out[edge.child, edge.parent]), edge.confidence)
        return out

    def rows(self) -> Iterator[dict[str, float | int | bool | None]]:
        """A tidy table: one row a candidate, with `edge` saying whether it passed."""
        passed = set(self.edges)
        for c in self.candidates:
            yield {
                "child": c.child,
                "parent": c.parent,
                "head": c.head,
                "confidence": c.confidence,
                "effect": c.effect,
                "p_value": c.p_value,
                "edge": c in passed,
            }

    def __str__(self) -> str:
        shown = ", ".join(f"{e.parent}->{e.child} ({e.confidence:.2f})" for e in self.edges)
        return (
            f"causal graph of {self.n_nodes} positions, read from {self.source}: "
            f"{len(self.edges)} edges, {len(self.roots)} roots, "
            f"{self.n_parents} parent{'' if self.n_parents == 1 else 's'} a node"
            + (f"; undecided: {', '.join(map(str, self.undecided))}" if self.undecided else "")
            + (f"\n{shown}" if shown else "")
        )


def recover_causal_graph(
    model: Any, *, nodes: int | None = None, min_confidence: float = MIN_CONFIDENCE, seed: int = 0
) -> CausalGraph:
    """The graph that layer 0 attends along, with roots, number of parents and a null.

    Scores S[i, j] of a head are those of the mean query at position i with the mean key at
    position j, means over tokens (all, or 256 seeded ones). Per row i the candidate is the
    largest S[i, j] with j < i (not the position itself), and

    - `effect` = S[i, j] - log mean exp of the row's other entries up to i, in nats;
    - `confidence` = (a - 1/(i+1)) / (1 - 1/(i+1)), a its attention: 0 for uniform attention, 1
      for all of it (below 0 is reported as 0);
    - `p_value`: of how far it stands out from the row, among rows of independent normal scores,
      whatever their scale (`row_p_values`).

    A head has edges if its rows taken together are no noise: Fisher's combination of their
    p-values (`head_p_values`), or how far few rows stand out of even ones (`few_rows_p_values`), is
    among the highest 1 % of untrained heads of its width, so an untrained model has no graph. Then
    its edges are the rows with confidence >= `min_confidence` and a p-value below one half: a
    trained head is judged by what it attends to. The three numbers are our choice. Several heads
    give several parents.

    `nodes`: positions to read, from 0; default min(n_ctx, 64). Errors: UnsupportedModelError for
    a model without position embeddings, InvalidArgumentError where `nodes` does not fit.
    """
    problems: list[ImirError] = []
    length = 0
    with collecting(problems):
        weights = read_weights(model)
        length = _check_nodes(weights, nodes)
    with collecting(problems):
        seed = check_seed(seed)
    with collecting(problems):
        _check_confidence(min_confidence)
    raise_all(problems)
    scores = position_scores(weights, length, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    row_p = row_p_values(scores, generator=generator)
    widths = weights.d_model, weights.W_Q.shape[-1]
    all_rows = head_p_values(row_p, *widths, generator=generator)
    few_rows = few_rows_p_values(scores, *widths, generator=generator)
    found = torch.minimum(all_rows, few_rows)
    candidates = [
        _candidate(scores[head, child, : child + 1], head, float(row_p[head, child - 1]))
        for head in range(len(scores))
        for child in range(1, length)
    ]
    passed = [
        c
        for c in candidates
        if found[c.head or 0] < HEAD_LEVEL
        and c.p_value < ROW_LEVEL
        and c.confidence >= min_confidence
    ]
    return CausalGraph(
        n_nodes=length,
        edges=tuple(sorted(passed, key=lambda e: (e.child, e.parent, e.head or 0))),
        candidates=tuple(candidates),
        spread=tuple(float(table.std(1).quantile(0.5)) for table in scores),
        source="weights",
        notes=(
            f"layer 0 alone, positions 0 to {length - 1}",
            "confidence is chance-corrected attention to the parent",
        ),
    )


def position_scores(
    weights: ModelWeights, length: int, *, seed: int = 0
) -> Float[Tensor, "head pos pos"]:
    """Layer 0's attention scores between positions, averaged over query and key tokens (nats)."""
    tokens = torch.arange(weights.vocab_size)
    if weights.vocab_size > MAX_TOKENS:
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randperm(weights.vocab_size, generator=generator)[:MAX_TOKENS]
    mean = torch.zeros(length, weights.d_model, dtype=DTYPE)
    for token in tokens:  # one token at a time: nothing grows with vocabulary times positions
        x = weights.W_E[token] + weights.W_pos[:length]
        if weights.rms:
            x = x / (x.square().mean(-1, keepdim=True) + weights.eps).sqrt()
        mean += x / len(tokens)
    query = torch.einsum("id,hde->hie", mean, weights.W_Q[0]) + weights.b_Q[0][:, None]
    key = torch.einsum("jd,hde->hje", mean, weights.W_K[0]) + weights.b_K[0][:, None]
    return query @ key.transpose(1, 2) / weights.scale[0]


def _candidate(row: Float[Tensor, " entry"], head: int, p_value: float) -> CausalEdge:
    """The largest entry of a causal row before its last."""
    child, parent = len(row) - 1, int(row[:-1].argmax())
    chance = 1 / len(row)
    attention = float(row.softmax(-1)[parent])
    return CausalEdge(
        parent=parent,
        child=child,
        confidence=max(0.0, (attention - chance) / (1 - chance)),
        effect=_effect(row, parent),
        p_value=p_value,
        head=head,
    )


def _effect(row: Float[Tensor, " entry"], index: int) -> float:
    """An entry of a row, less the logarithm of the mean exponential of its others."""
    others = torch.cat([row[:index], row[index + 1 :]])
    return float(row[index] - others.logsumexp(0)) + math.log(len(others))


def _check_nodes(weights: ModelWeights, nodes: int | None) -> int:
    if not weights.learned_positions:
        raise UnsupportedModelError(
            "the model has no position embeddings, so no graph on positions stands in its weights",
            wanted="learned positions (W_pos)",
            todo="read its shift coordinates instead, or graph_from_gradient on its data",
        )
    if nodes is None:
        return min(weights.n_ctx, MAX_POSITIONS)
    number = whole(nodes)
    if number is None or not 2 <= number <= weights.n_ctx:
        raise InvalidArgumentError(
            "nodes does not fit the model's positions",
            got=shown(nodes),
            wanted=f"from 2 to {weights.n_ctx}",
            todo="mend nodes",
        )
    return number


def _check_confidence(value: Any) -> None:
    if not SHARE.holds(value):
        raise InvalidArgumentError(
            "no confidence is like this",
            got=f"min_confidence={shown(value)}",
            wanted=SHARE.wanted,
            todo=f"leave it out for {MIN_CONFIDENCE}",
        )
