"""Read a latent causal graph from the layer-0 attention of a model with position embeddings.

Layer 0 of a model that has learned a graph on positions attends, at every position, to that
position's parent (Nichani, Damian and Lee, ICML 2024). Nothing is run: scores come from weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from imir_detect._typing import Bool, Float
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.linalg import DTYPE, ROUNDOFF
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.read import read_weights

MIN_CONFIDENCE = 0.5  # chance-corrected attention that an edge needs: what it does, not its p-value
HEAD_LEVEL = 0.01  # a head's rows together must be noise with less than this probability,
ROW_LEVEL = 0.2  # and then a row of its by itself with less than this
DRAWS = 2000  # null draws for every row length
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
        """Nodes for which no parent was found."""
        return tuple(node for node, parents in enumerate(self.parents) if not parents)

    @property
    def n_parents(self) -> int:
        """The most common number of parents among nodes that have any; 0 where none has."""
        counts = Counter(len(parents) for parents in self.parents if parents)
        return max(counts, key=lambda n: (counts[n], n)) if counts else 0

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
    - `p_value`: share of null rows whose largest earlier entry stands out as far: its distance from
      the mean of the row's other entries, in units of the row's spread without it (over all keys,
      later ones too). A null row holds independent normal scores, as an untrained model's does,
      whatever their scale. This is done twice, on S and on S less its column means (what every
      row gives to that key), because a preference for keys widens the rows and a parent of all
      nodes is nothing else; the p-value is the harmonic mean of the two (Wilson, PNAS 2019).

    A head has edges if its rows taken together are no noise (Fisher's combination of their
    p-values below 0.01), so an untrained model has no graph; then its edges are the rows with
    confidence >= `min_confidence` and a p-value below 0.2. The three numbers are our choice.
    Several heads give several parents.

    `nodes`: positions to read, from 0; default min(n_ctx, 64). Errors: UnsupportedModelError for
    a model without position embeddings, InvalidArgumentError where `nodes` does not fit.
    """
    weights = read_weights(model)
    length = _check_nodes(weights, nodes)
    scores = position_scores(weights, length, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    normal = torch.randn(DRAWS, length, dtype=DTYPE, generator=generator)
    readings = torch.stack([scores, scores - scores.mean(1, keepdim=True)], 1)
    candidates: list[CausalEdge] = []
    for child in range(1, length):
        null = _NullRows(normal, child)
        for head, both in enumerate(readings):
            candidates.append(null.weigh(both[:, child], head))
    candidates.sort(key=lambda c: (c.head or 0, c.child))
    passed = [
        c
        for head in range(len(scores))
        for c in discoveries([c for c in candidates if c.head == head])
        if c.confidence >= min_confidence
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


def discoveries(candidates: Sequence[CausalEdge]) -> list[CausalEdge]:
    """Of one head's rows, those that stand out, where the head as a whole does.

    Fisher's combination: -2 sum ln p follows chi-square with 2 m degrees of freedom under the
    null, whose upper tail at x is exp(-x / 2) sum_{k < m} (x / 2)^k / k!.
    """
    half = -sum(math.log(c.p_value) for c in candidates)
    if half <= 0:
        return []
    terms = (k * math.log(half) - half - math.lgamma(k + 1) for k in range(len(candidates)))
    tail = sum(math.exp(term) for term in terms)
    return [c for c in candidates if c.p_value < ROW_LEVEL] if tail < HEAD_LEVEL else []


class _NullRows:
    """Rows of noise for one child, against which every head's row is weighed."""

    def __init__(self, normal: Float[Tensor, "draw pos"], child: int) -> None:
        self.child = child
        self.null = self._distance(normal, normal[:, :child].argmax(-1))

    def weigh(self, readings: Float[Tensor, "2 pos"], head: int) -> CausalEdge:
        """The best earlier entry of the child's row, in both readings of the row."""
        causal = readings[0, : self.child + 1]
        parent = causal[:-1].argmax()
        distance = self._distance(readings, parent.expand(2))
        above = (self.null >= distance[:, None] - ROUNDOFF).sum(-1)
        p_values = (1.0 + above) / (1 + len(self.null))
        chance = 1 / (self.child + 1)
        attention = float(causal.softmax(-1)[parent])
        return CausalEdge(
            parent=int(parent),
            child=self.child,
            confidence=max(0.0, (attention - chance) / (1 - chance)),
            effect=_effect(causal, int(parent)),
            p_value=float(1 / (1 / p_values).mean()),
            head=head,
        )

    def _distance(self, rows: Tensor, index: Tensor) -> Float[Tensor, " row"]:
        """Of an entry of each row from the mean of its causal others, in units of spread."""
        kept = torch.ones_like(rows, dtype=torch.bool).scatter(1, index[:, None], False)
        earlier = kept[:, : self.child + 1]
        mean = (rows[:, : self.child + 1] * earlier).sum(-1) / self.child
        spread = _spread_of(rows, kept).clamp(min=ROUNDOFF)
        return (rows.gather(1, index[:, None])[:, 0] - mean) / spread


def _spread_of(rows: Float[Tensor, "row pos"], kept: Bool[Tensor, "row pos"]) -> Tensor:
    """Standard deviation of each row's entries that are kept (all but one)."""
    count = rows.shape[1] - 1
    mean = (rows * kept).sum(-1, keepdim=True) / count
    return (((rows - mean).square() * kept).sum(-1) / max(count - 1, 1)).sqrt()


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
    if not 2 <= nodes <= weights.n_ctx:
        raise InvalidArgumentError(
            "nodes does not fit the model's positions",
            got=str(nodes),
            wanted=f"from 2 to {weights.n_ctx}",
            todo="mend nodes",
        )
    return nodes
