"""Read a latent causal graph from data, before any model is trained: sets of nodes, one by one.

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
from imir_detect.theory.causal_sets import BestSet, best_sets, earlier_sets

LEVEL = 0.01  # chance that data without a graph show any edge
CERTAIN = 0.95  # confidence from which parents are named
ERRORS = 2.0  # standard errors within which an effect is not told from the one that an edge needs
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

    Per pair j < i, t_ij = S E[ [x_j = query] pi(x_i | query) ] (`set_values`): how likely the
    answer is what stands at i, where j shows the query. It is the pair's term in the gradient,
    E[pi(x_i | x_j) / f(x_i)] / S, with even frequencies f = 1 / S. With one parent a node:

    - t_ij is largest where j is i's parent, and the same number for all edges, E[sum_b
      pi(b | x_j)^2]: elsewhere P(x_i | x_j) averages rows of pi over what the parent may be, and
      no average does better (Cauchy and Schwarz, then Jensen).
    - For a root i it is the same lower number for all j: that of independent nodes.

    So the largest entries of the rows take two values, and the edges are those at the upper one.
    With k parents (`queries` k; k-th query for the k-th parent by position) sets J of k nodes take
    the place of j, S^k that of S; edges' upper value holds roughly, as far as sets of parents
    follow one law. Without a graph all pairs have the same law. Per candidate (a row's largest
    entry)

    - `effect`: t_iJ less the lower value, a difference of probabilities. The lower value is the
      smallest of all pairs; with several parents, where sets are many and the smallest is noise,
      the mean of pi(x_i | query), which is a root's value there;
    - `p_value`: of t_iJ less the mean of all pairs, normal, times the row's number of sets;
    - `confidence`: chance that it really is the row's largest, given the sampling errors.

    Edges have a p-value below 0.01 over the number of rows, and at least half of the largest
    effect. `undecided` are nodes whose effect lies within two standard errors of that half, or
    whose parents have a confidence below 0.95 or too high a p-value; and the last node where there
    is one set in all (two nodes, one parent), which can be held against no other. Where nothing is
    an edge a note says how large an effect would have been. The numbers are our choice.

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
    nodes = tokens.shape[1] - queries
    found, values = best_sets(tokens, rows, earlier_sets(nodes, queries))
    lower = 0.0
    if queries == 1:
        lower = float(values.nan_to_num(nan=torch.inf).min())
    weighed = [(best, _edges(best, lower, queries)) for best in found]
    edges: list[CausalEdge] = []
    undecided: set[int] = set()
    notes = [f"from {len(tokens)} sequences", "confidence is that of being the row's largest"]
    if len(found) == 1:
        undecided = {found[0].child}
        one = "two nodes are one pair" if queries == 1 else "there is one set of parents"
        notes.append(f"{one}, which can be held against no other")
    elif found:
        level = LEVEL / len(found)
        edges, undecided = _judge(weighed, level)
        if undecided:
            notes.append("more sequences decide the undecided nodes")
        elif not edges:
            notes.append(f"no edge stands out; one of effect {_seen(found, level):.2g} would have")
    return CausalGraph(
        n_nodes=nodes,
        edges=tuple(sorted(edges, key=lambda e: (e.child, e.parent))),
        candidates=tuple(edge for _, edges_of in weighed for edge in edges_of),
        spread=(sum(best.error for best in found) / max(1, len(found)),),
        source="gradient",
        undecided=tuple(sorted(undecided)),
        notes=tuple(notes),
    )


def _edges(best: BestSet, lower: float, queries: int) -> list[CausalEdge]:
    """A row's candidate, one entry a parent."""
    p_value = best.sets * _upper_tail(best.above / max(best.error, TINY))
    return [
        CausalEdge(
            parent=parent,
            child=best.child,
            confidence=1 - _upper_tail(best.lead),
            effect=best.value - lower,
            p_value=min(1.0, p_value),
            head=head if queries > 1 else None,
        )
        for head, parent in enumerate(best.parents)
    ]


def _judge(
    weighed: list[tuple[BestSet, list[CausalEdge]]], level: float
) -> tuple[list[CausalEdge], set[int]]:
    """The edges among the candidates, and the nodes of which nothing is said."""
    clear = (first.effect for _, (first, *_) in weighed if first.p_value < level)
    half = 0.5 * max(clear, default=math.inf)
    edges, unsure = [], set()
    for best, candidates in weighed:
        first = candidates[0]
        is_edge = first.effect >= half
        doubtful = first.confidence < CERTAIN or first.p_value >= level
        if abs(first.effect - half) < ERRORS * best.error or (is_edge and doubtful):
            unsure.add(best.child)
        elif is_edge:
            edges += candidates
    return edges, unsure


def _seen(found: list[BestSet], level: float) -> float:
    """The effect from which every row would have shown an edge."""
    return max(
        best.error * math.sqrt(2) * float(torch.erfinv(torch.tensor(1 - 2 * level / best.sets)))
        for best in found
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
