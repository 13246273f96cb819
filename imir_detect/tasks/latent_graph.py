"""Latent causal graphs on positions: who is whose parent, checked once, when the graph is made.

A graph has nodes 0 .. n - 1 in the order in which they stand in the sequence. Every node has no
parent (a *root*) or k of them, all before it (Nichani, Damian and Lee, ICML 2024, section 2, and
section 5 for several parents).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from imir_detect.arguments import check_seed
from imir_detect.errors import InvalidArgumentError, UnknownNameError
from imir_detect.tasks.graph_checks import node_count, node_names, parent_lists, read_pairs

Edge = tuple[int, int]  # (parent, child)


@dataclass(frozen=True)
class LatentGraph:
    """`parents[i]`: the parents of node i, rising; () for a root.

    The order of a node's parents is that of their positions: the m-th parent is the one that the
    m-th of the k query tokens stands for.

    Errors: InvalidArgumentError where a parent stands after its child (or is the child), is no
    node, stands twice, or where two nodes that are no roots have different numbers of parents.

    >>> graph = LatentGraph(((), (0,), (0,)))
    >>> graph.edges, graph.roots, graph.n_parents
    (((0, 1), (0, 2)), (0,), 1)
    """

    parents: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parents", parent_lists(self.parents))

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def edges(self) -> tuple[Edge, ...]:
        return tuple((p, child) for child, parents in enumerate(self.parents) for p in parents)

    @property
    def roots(self) -> tuple[int, ...]:
        return tuple(node for node, parents in enumerate(self.parents) if not parents)

    @property
    def children(self) -> tuple[int, ...]:
        """Nodes that have parents."""
        return tuple(node for node, parents in enumerate(self.parents) if parents)

    @property
    def n_parents(self) -> int:
        """k, the number of parents of every node that is no root; 1 for a graph of roots."""
        return max(1, *(len(parents) for parents in self.parents))

    def matrix(self) -> torch.Tensor:
        """(n, n) booleans, row = child, column = parent."""
        out = torch.zeros(len(self), len(self), dtype=torch.bool)
        for parent, child in self.edges:
            out[child, parent] = True
        return out

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[Hashable, Hashable]],
        *,
        nodes: int | Sequence[Hashable],
    ) -> LatentGraph:
        """A user's graph from (parent, child) pairs.

        `nodes`: how many there are (then they are called 0 .. nodes - 1), or their names in the
        order in which they stand in the sequence.

        Numbers of numpy or torch are as good as Python's. Errors: InvalidArgumentError that names
        the unknown node, the cycle, the parent that stands after its child, or the entry that is no
        pair.

        >>> LatentGraph.from_edges([("a", "b"), ("a", "c")], nodes=["a", "b", "c"]).parents
        ((), (0,), (0,))
        """
        names = node_names(nodes)
        parents: list[list[int]] = [[] for _ in names]
        position = {name: index for index, name in enumerate(names)}
        for parent, child in sorted(read_pairs(edges, position)):
            parents[child].append(parent)
        return cls(tuple(tuple(own) for own in parents))

    @classmethod
    def from_networkx(cls, graph: Any, *, order: Sequence[Hashable] | None = None) -> LatentGraph:
        """A `networkx.DiGraph`, edges from parent to child; networkx itself is not imported.

        `order`: the nodes in the order of the sequence. Default: rising where all are whole
        numbers, else the order in which they were added.
        """
        if not getattr(graph, "is_directed", lambda: False)():
            raise InvalidArgumentError(
                "the graph is not directed",
                got=type(graph).__name__,
                wanted="a networkx.DiGraph with edges from parent to child",
                todo="use DiGraph, or LatentGraph.from_edges",
            )
        nodes = node_names(graph.nodes)
        if order is None:
            numbers = [name for name in nodes if isinstance(name, int)]
            order = sorted(numbers) if len(numbers) == len(nodes) else nodes
        return cls.from_edges(((u, v) for u, v, *_ in graph.edges), nodes=order)


# -- special graphs -------------------------------------------------------------------------------


def ngram(nodes: int, context: int) -> LatentGraph:
    """Every node's parents are the `context` nodes just before it; 1 is the chain.

    >>> ngram(4, 2).parents
    ((), (), (0, 1), (1, 2))
    """
    if context < 1:
        raise InvalidArgumentError(
            "an n-gram needs context", got=str(context), wanted="at least 1", todo="raise context"
        )
    count = node_count(nodes)
    return LatentGraph(
        tuple(tuple(range(i - context, i)) if i >= context else () for i in range(count))
    )


def chain(nodes: int) -> LatentGraph:
    """p(i) = i - 1: an in-context Markov chain, which an induction head solves."""
    return ngram(nodes, 1)


def pairs(nodes: int) -> LatentGraph:
    """p(2m + 1) = 2m: independent pairs, the "in-context learning" graph of the source."""
    return LatentGraph(tuple((i - 1,) if i % 2 else () for i in range(node_count(nodes))))


def halves(nodes: int) -> LatentGraph:
    """Two parents, (i - 1) // 2 and i - 1, from node 2 on (the source's two-parent graph)."""
    count = node_count(nodes)
    return LatentGraph(tuple(((i - 1) // 2, i - 1) if i >= 2 else () for i in range(count)))


def random_forest(nodes: int, *, root_probability: float = 0.5, seed: int = 0) -> LatentGraph:
    """Every node is a root with `root_probability`, else has one uniform parent before it.

    Node 0 is always a root; `root_probability` 0 gives one random recursive tree.
    """
    count = node_count(nodes)
    is_root, generator = _roots(count, root_probability, seed)
    pick = torch.rand(count, generator=generator)
    return LatentGraph(
        tuple(() if i == 0 or is_root[i] else (min(int(pick[i] * i), i - 1),) for i in range(count))
    )


def random_graph(
    nodes: int, parents: int = 2, *, root_probability: float = 0.5, seed: int = 0
) -> LatentGraph:
    """Every node from `parents` on is a root with `root_probability`, else has that many uniform
    parents before it, all sets alike.

    >>> [len(own) for own in random_graph(5, 2, root_probability=0.0).parents]
    [0, 0, 2, 2, 2]
    """
    size = node_count(parents)
    count = node_count(nodes)
    is_root, generator = _roots(count, root_probability, seed)
    return LatentGraph(
        tuple(
            ()
            if i < size or is_root[i]
            else tuple(torch.randperm(i, generator=generator)[:size].sort().values.tolist())
            for i in range(count)
        )
    )


def _roots(nodes: int, probability: float, seed: int) -> tuple[torch.Tensor, torch.Generator]:
    """Which nodes are roots, and the generator that goes on from there."""
    if not 0 <= probability <= 1:
        raise InvalidArgumentError(
            "root_probability is no probability",
            got=str(probability),
            wanted="a number from 0 to 1",
            todo="mend it",
        )
    generator = torch.Generator().manual_seed(check_seed(seed))
    return torch.rand(nodes, generator=generator) < probability, generator


GRAPHS: dict[str, Callable[[int], LatentGraph]] = {
    "chain": chain,
    "pairs": pairs,
    "halves": halves,
    "forest": random_forest,
    "bigram_context": lambda nodes: ngram(nodes, 2),
}


def named_graph(name: str, nodes: int) -> LatentGraph:
    """One of the special graphs by name (`forest`: the one of seed 0)."""
    if name not in GRAPHS:
        raise UnknownNameError(
            "no such graph",
            got=repr(name),
            wanted=f"one of {', '.join(sorted(GRAPHS))}",
            todo="use one of these, or LatentGraph.from_edges",
        )
    return GRAPHS[name](nodes)
