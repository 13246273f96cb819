"""Read a latent causal graph from data, before any model is trained: one gradient, one null."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.circuits.causal_graph import CausalEdge, CausalGraph
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.theory.causal_gradient import layer0_gradient

LEVEL = 0.01  # chance that data without a graph show any edge
SHARE_OF_LARGEST = 0.2  # excess that an edge needs, as a share of the graph's largest


def graph_from_gradient(
    source: CausalGraphTask | Int[Tensor, "batch pos"],
    *,
    n: int = 65536,
    queries: int = 1,
    n_symbols: int | None = None,
    seed: int = 0,
) -> CausalGraph:
    """The graph along which sequences were made, from layer 0's gradient at initialisation.

    `source`: a task (`n` sequences are drawn, with their whole target rows), or real sequences
    (batch, T + 1) of whole numbers from 0: T tokens of which the last `queries` are the query,
    then the answer. Every sequence may have a transition matrix of its own; the graph must be
    common to all. `n_symbols`: default the largest number in the data, plus 1.

    A row's candidate is its largest entry at an earlier position (`layer0_gradient`, match 1).
    The null of row i: the same gradient with x_i exchanged for the token of a random other node of
    its sequence, which keeps the frequencies and cuts i off from its parent. Without a graph the
    two have the same law. Per candidate

    - `effect`: its `excess` less the null's; near I_chi2(x_i; x_parent) on an edge;
    - `p_value`: of effect / standard error, normal, times the row's i entries (Bonferroni);
    - `confidence`: chance that it really is the row's largest, given the sampling errors.

    Edges have a p-value below 0.01 over the number of rows, and an effect of at least 0.2 of the
    largest: what remains at roots grows with n but stays a tenth of an edge. The numbers are our
    choice. With fewer than about six nodes the exchanged token is too often a relative, and edges
    can be missed or false, however many sequences. Time: one gradient a node.

    >>> from imir_detect.tasks.latent_graph import LatentGraph
    >>> task = CausalGraphTask(LatentGraph(((), (0,), (), (2,), (2,), (4,))))
    >>> graph_from_gradient(task, n=8192).parents
    ((), (0,), (), (2,), (2,), (4,))
    """
    if isinstance(source, CausalGraphTask):
        drawn = source.draw(n, generator=torch.Generator().manual_seed(seed))
        tokens, rows, queries = drawn.tokens, drawn.rows, source.n_queries
    else:
        tokens, rows = _split_answers(source, n_symbols, queries)
    effect, error = _effect(tokens, rows, queries, seed=seed + 1)
    nodes = tokens.shape[1] - queries
    candidates = [
        _candidate(effect[head, child, :child], error[head, child, :child], child, head)
        for head in range(queries)
        for child in range(1, nodes)
    ]
    if queries == 1:  # a single head needs no number
        candidates = [replace(c, head=None) for c in candidates]
    passed = [c for c in candidates if c.p_value < LEVEL / len(candidates)]
    largest = max((c.effect for c in passed), default=0.0)
    edges = [c for c in passed if c.effect >= SHARE_OF_LARGEST * largest]
    return CausalGraph(
        n_nodes=nodes,
        edges=tuple(sorted(edges, key=lambda e: (e.child, e.parent))),
        candidates=tuple(candidates),
        spread=tuple(float(error[head, 1:nodes].mean()) for head in range(queries)),
        source="gradient",
        notes=(f"from {len(tokens)} sequences", "confidence is that of being the row's largest"),
    )


def _effect(tokens: Tensor, rows: Tensor, queries: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Excess of every entry over its null, and the standard error of that difference."""
    n, length = tokens.shape
    nodes, symbols = length - queries, rows.shape[-1]
    unit = symbols * length * torch.arange(1, length + 1, dtype=DTYPE)[:, None]
    seen = layer0_gradient(tokens, rows, queries=queries)
    value, variance = seen.value.clone(), seen.error.square()
    generator = torch.Generator().manual_seed(seed)
    for child in range(1, nodes):
        other = torch.randint(nodes - 1, (n, 1), generator=generator)
        other = other + (other >= child)
        cut = tokens.scatter(1, other, tokens[:, child, None])
        cut[:, child] = tokens.gather(1, other)[:, 0]
        null = layer0_gradient(cut, rows, queries=queries)
        value[:, child] -= null.value[:, child]
        variance[:, child] += null.error[:, child].square()
    return value * unit, variance.sqrt() * unit


def _candidate(
    effect: Float[Tensor, " earlier"], error: Float[Tensor, " earlier"], child: int, head: int
) -> CausalEdge:
    parent = int(effect.argmax())
    best, its_error = float(effect[parent]), max(float(error[parent]), 1e-300)
    confidence = 1.0
    for other in range(child):
        if other != parent:
            gap = best - float(effect[other])
            both = max(math.hypot(its_error, float(error[other])), 1e-300)
            confidence = min(confidence, 1 - _upper_tail(gap / both))
    return CausalEdge(
        parent=parent,
        child=child,
        confidence=confidence,
        effect=best,
        p_value=min(1.0, child * _upper_tail(best / its_error)),
        head=head,
    )


def _upper_tail(z: float) -> float:
    """P(Z > z) of a standard normal."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def _split_answers(
    sequences: Tensor, n_symbols: int | None, queries: int
) -> tuple[Tensor, Float[Tensor, "batch symbols"]]:
    if sequences.ndim != 2 or sequences.is_floating_point() or sequences.shape[1] < queries + 3:
        raise InvalidArgumentError(
            "these are no sequences to read a graph from",
            got=f"{sequences.dtype} of shape {tuple(sequences.shape)}",
            wanted=f"whole numbers (batch, pos): two nodes or more, {queries} query tokens, "
            "then the answer",
            todo="pass tokens as a LongTensor, one sequence a row",
        )
    symbols = int(sequences.max()) + 1 if n_symbols is None else n_symbols
    if int(sequences.min()) < 0 or int(sequences.max()) >= symbols or symbols < 2:
        raise InvalidArgumentError(
            "a token is no symbol",
            got=f"tokens from {int(sequences.min())} to {int(sequences.max())}",
            wanted=f"whole numbers from 0 to {max(symbols, 2) - 1}",
            todo="number the symbols from 0, or raise n_symbols",
        )
    rows = torch.nn.functional.one_hot(sequences[:, -1].long(), symbols).to(DTYPE)
    return sequences[:, :-1].long(), rows
