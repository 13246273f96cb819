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

from imir_detect.errors import InvalidArgumentError, UnknownNameError

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
        if not self.parents:
            raise InvalidArgumentError(
                "a graph needs nodes", got="none", wanted="at least one", todo="add nodes"
            )
        for child, parents in enumerate(self.parents):
            for parent in parents:
                _check_edge(parent, child, len(self.parents))
            if list(parents) != sorted(set(parents)):
                raise InvalidArgumentError(
                    f"the parents of node {child} must rise and differ",
                    got=str(parents),
                    wanted=str(tuple(sorted(set(parents)))),
                    todo="sort them, or build the graph with from_edges",
                )
        counts = {len(p): node for node, p in reversed([*enumerate(self.parents)]) if p}
        if len(counts) > 1:
            wrong = ", ".join(f"node {node} has {n}" for n, node in sorted(counts.items()))
            raise InvalidArgumentError(
                "nodes that are no roots must have equally many parents",
                got=wrong,
                wanted="one number k of parents throughout",
                todo="make those nodes roots or give them as many parents as the others",
            )

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

        Errors: InvalidArgumentError that names the unknown node, the cycle, or the parent that
        stands after its child.

        >>> LatentGraph.from_edges([("a", "b"), ("a", "c")], nodes=["a", "b", "c"]).parents
        ((), (0,), (0,))
        """
        names: list[Hashable] = list(range(nodes)) if isinstance(nodes, int) else list(nodes)
        position = {name: index for index, name in enumerate(names)}
        if len(position) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgumentError(
                "a node is named twice", got=repr(twice), wanted="each node once", todo="rename it"
            )
        pairs = list(edges)
        for name in (name for pair in pairs for name in pair):
            if name not in position:
                raise InvalidArgumentError(
                    f"an edge names the unknown node {name!r}",
                    got=f"nodes {_shorten(names)}",
                    wanted="edges between nodes of the graph",
                    todo="add the node, or drop the edge",
                )
        cycle = _find_cycle(pairs)
        if cycle:
            raise InvalidArgumentError(
                "the graph has a cycle",
                got=" -> ".join(repr(name) for name in cycle),
                wanted="an acyclic graph, parents before children",
                todo="drop one edge of the cycle",
            )
        parents: list[set[int]] = [set() for _ in names]
        for parent, child in pairs:
            if position[parent] > position[child]:
                raise InvalidArgumentError(
                    f"node {parent!r} is a parent of {child!r} and stands after it",
                    got=f"positions {position[parent]} and {position[child]}",
                    wanted="every parent before its child",
                    todo="turn the edge around, or order the nodes so that parents come first",
                )
            parents[position[child]].add(position[parent])
        return cls(tuple(tuple(sorted(p)) for p in parents))

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
        nodes = list(graph.nodes)
        if order is None:
            order = sorted(nodes) if all(isinstance(name, int) for name in nodes) else nodes
        return cls.from_edges(graph.edges, nodes=order)


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
    return LatentGraph(
        tuple(tuple(range(i - context, i)) if i >= context else () for i in range(nodes))
    )


def chain(nodes: int) -> LatentGraph:
    """p(i) = i - 1: an in-context Markov chain, which an induction head solves."""
    return ngram(nodes, 1)


def pairs(nodes: int) -> LatentGraph:
    """p(2m + 1) = 2m: independent pairs, the "in-context learning" graph of the source."""
    return LatentGraph(tuple((i - 1,) if i % 2 else () for i in range(nodes)))


def halves(nodes: int) -> LatentGraph:
    """Two parents, (i - 1) // 2 and i - 1, from node 2 on (the source's two-parent graph)."""
    return LatentGraph(tuple(((i - 1) // 2, i - 1) if i >= 2 else () for i in range(nodes)))


def random_forest(nodes: int, *, root_probability: float = 0.5, seed: int = 0) -> LatentGraph:
    """Every node is a root with `root_probability`, else has one uniform parent before it.

    Node 0 is always a root; `root_probability` 0 gives one random recursive tree.
    """
    if not 0 <= root_probability <= 1:
        raise InvalidArgumentError(
            "root_probability is no probability",
            got=str(root_probability),
            wanted="a number from 0 to 1",
            todo="mend it",
        )
    generator = torch.Generator().manual_seed(seed)
    is_root = torch.rand(nodes, generator=generator) < root_probability
    pick = torch.rand(nodes, generator=generator)
    return LatentGraph(
        tuple(() if i == 0 or is_root[i] else (min(int(pick[i] * i), i - 1),) for i in range(nodes))
    )


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


# -- checks ---------------------------------------------------------------------------------------


def _check_edge(parent: int, child: int, nodes: int) -> None:
    if not 0 <= parent < nodes:
        raise InvalidArgumentError(
            f"node {child} has the unknown node {parent} as a parent",
            got=str(parent),
            wanted=f"a node from 0 to {nodes - 1}",
            todo="add the node, or drop the edge",
        )
    if parent >= child:
        raise InvalidArgumentError(
            f"node {parent} is a parent of {child} and does not stand before it",
            got=f"positions {parent} and {child}",
            wanted="every parent before its child",
            todo="turn the edge around, or order the nodes so that parents come first",
        )


def _find_cycle(edges: Sequence[tuple[Hashable, Hashable]]) -> list[Hashable]:
    """Nodes of one cycle, its first repeated at the end; [] where there is none."""
    below: dict[Hashable, list[Hashable]] = {}
    for parent, child in edges:
        below.setdefault(parent, []).append(child)
    done: set[Hashable] = set()
    for start in below:
        path: list[Hashable] = [start]
        on_path, stack = {start}, [iter(below.get(start, ()))]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                leaving = path.pop()
                on_path.discard(leaving)
                done.add(leaving)
            elif node in on_path:
                return [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append(iter(below.get(node, ())))
    return []


def _shorten(names: Sequence[Hashable], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, .. ({len(names)} in all)"
