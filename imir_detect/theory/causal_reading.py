"""Read a latent causal graph from data, before any model is trained: pairs of nodes, one by one.

What the gradient of layer 0 at initialisation says of a pair (`causal_gradient`) is the mean of
pi(x_i | x_j) / f(x_i). The frequencies f are those of a short sequence, and blur it; with even
frequencies the theorem's argument holds exactly, and tells roots from nodes with parents, too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from imir_detect._typing import Float, Int
from imir_detect.circuits.causal_graph import CausalEdge, CausalGraph
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.causal_graph import CausalGraphTask

LEVEL = 0.01  # chance that data without a graph show any edge
CERTAIN = 0.95  # confidence from which a parent is named
ERRORS = 2.0  # standard errors within which an effect is not told from the one that an edge needs
FEWEST = 3  # nodes: two are one pair, which can be held against no other
TINY = 1e-300


def graph_from_gradient(
    source: CausalGraphTask | Int[Tensor, "batch pos"],
    *,
    n: int = 65536,
    queries: int = 1,
    n_symbols: int | None = None,
    seed: int = 0,
) -> CausalGraph:
    """The graph along which sequences were made, as layer 0's gradient at initialisation sees it.

    `source`: a task (`n` sequences are drawn, with their whole target rows), or real sequences
    (batch, T + 1) of whole numbers from 0: T tokens of which the last `queries` are the query,
    then the answer. Every sequence may have a transition matrix of its own; the graph must be
    common to all. `n_symbols`: default the largest number in the data, plus 1.

    Per pair j < i, t_ij = S E[ [x_j = query] pi(x_i | query) ] (`pair_values`): how likely the
    answer is what stands at i, where j shows the query. It is the pair's term in the gradient,
    E[pi(x_i | x_j) / f(x_i)] / S, with even frequencies f = 1 / S. With one parent a node:

    - t_ij is largest where j is i's parent, and the same number for all edges, E[sum_b
      pi(b | x_j)^2]: elsewhere P(x_i | x_j) averages rows of pi over what the parent may be, and
      no average does better (Cauchy and Schwarz, then Jensen).
    - For a root i it is the same lower number for all j: that of independent nodes.

    So the largest entries of the rows take two values, and the edges are those at the upper one.
    Without a graph all pairs have the same law. Per candidate (a row's largest entry)

    - `effect`: t_ij less the smallest of all pairs; a difference of probabilities;
    - `p_value`: of t_ij less the mean of all pairs, normal, times the row's i entries;
    - `confidence`: chance that it really is the row's largest, given the sampling errors.

    Edges have a p-value below 0.01 over the number of rows, and at least half of the largest
    effect. `undecided` are nodes whose effect lies within two standard errors of that half, or
    whose edge has a confidence below 0.95; and both nodes of a graph of two, whose only pair can
    be held against no other. With several parents head m reads the m-th, and the two values hold
    roughly. The numbers are our choice.

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
    said, shown = _said_and_shown(tokens, rows, queries)
    nodes = said.shape[1]
    tables = [
        _candidates(said, one, head if queries > 1 else None) for head, one in enumerate(shown)
    ]
    edges: list[CausalEdge] = []
    undecided = set(range(1, nodes)) if nodes < FEWEST else set()
    for candidates, errors in tables if nodes >= FEWEST else ():
        certain, unsure = _judge(candidates, errors, LEVEL / (queries * len(candidates)))
        edges += certain
        undecided |= unsure
    notes = [f"from {len(tokens)} sequences", "confidence is that of being the row's largest"]
    if nodes < FEWEST:
        notes.append("two nodes are one pair, which can be held against no other")
    elif undecided:
        notes.append("more sequences decide the undecided nodes")
    return CausalGraph(
        n_nodes=nodes,
        edges=tuple(sorted(edges, key=lambda e: (e.child, e.parent))),
        candidates=tuple(c for candidates, _ in tables for c in candidates),
        spread=tuple(sum(errors) / len(errors) for _, errors in tables),
        source="gradient",
        undecided=tuple(sorted(undecided)),
        notes=tuple(notes),
    )


def pair_values(
    tokens: Int[Tensor, "batch pos"], rows: Float[Tensor, "batch symbols"], *, queries: int = 1
) -> Float[Tensor, "k node node"]:
    """S E[ [x_j = m-th query token] row(x_i) ] of all pairs of nodes, i = row. In [0, S].

    `rows`: the target row of the query, or a one-hot draw from it.
    """
    said, shown = _said_and_shown(tokens, rows, queries)
    return said.T @ shown / len(tokens)


def _said_and_shown(
    tokens: Tensor, rows: Tensor, queries: int
) -> tuple[Float[Tensor, "batch node"], Float[Tensor, "k batch node"]]:
    """The row's value at every node's token; S where a node shows the m-th query token, else 0."""
    nodes = tokens[:, :-queries]
    shown = tokens[:, -queries:].T[..., None] == nodes
    return rows.to(DTYPE).gather(1, nodes), shown.to(DTYPE) * rows.shape[1]


def _candidates(
    said: Float[Tensor, "batch node"], shown: Float[Tensor, "batch node"], head: int | None
) -> tuple[list[CausalEdge], list[float]]:
    """The largest entry of every row, and the standard errors of their p-values' statistics."""
    n, nodes = said.shape
    values = said.T @ shown / n
    earlier = torch.ones_like(values, dtype=torch.bool).tril(-1)
    mean_pair = (said * (shown.cumsum(1) - shown)).sum(1) / earlier.sum()
    lowest = float(values[earlier].min())
    found, errors = [], []
    for child in range(1, nodes):
        parent = int(values[child, :child].argmax())
        own = said[:, child] * shown[:, parent]
        above, error = _mean_and_error(own - mean_pair)
        lead, its_error = _mean_and_error(own[:, None] - said[:, child, None] * shown[:, :child])
        z = (lead / its_error.clamp(min=TINY))[torch.arange(child) != parent]
        found.append(
            CausalEdge(
                parent=parent,
                child=child,
                confidence=1 - _upper_tail(float(z.min())) if len(z) else 1.0,
                effect=float(values[child, parent]) - lowest,
                p_value=min(1.0, child * _upper_tail(float(above / error.clamp(min=TINY)))),
                head=head,
            )
        )
        errors.append(float(error))
    return found, errors


def _judge(
    candidates: list[CausalEdge], errors: list[float], level: float
) -> tuple[list[CausalEdge], set[int]]:
    """The edges among one head's candidates, and the nodes of which nothing is said."""
    half = 0.5 * max((c.effect for c in candidates if c.p_value < level), default=math.inf)
    edges, unsure = [], set()
    for c, error in zip(candidates, errors, strict=True):
        stands_out = c.p_value < level and c.effect >= half
        if abs(c.effect - half) < ERRORS * error or (stands_out and c.confidence < CERTAIN):
            unsure.add(c.child)
        elif stands_out:
            edges.append(c)
    return edges, unsure


def _mean_and_error(values: Float[Tensor, "batch ..."]) -> tuple[Tensor, Tensor]:
    """The mean over sequences, and its standard error."""
    return values.mean(0), values.std(0) / len(values) ** 0.5


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
