"""What a latent graph's edges and nodes may be, as users write them: read once, refused by name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from imir_detect.arguments import shown, whole
from imir_detect.errors import InvalidArgumentError


def node_count(nodes: Any) -> int:
    """How many nodes a special graph has.

    >>> node_count(4)
    4
    """
    number = whole(nodes)
    if number is None or number < 1:
        raise InvalidArgumentError(
            "a graph needs nodes",
            got=f"nodes={shown(nodes)}",
            wanted="a whole number of at least 1",
            todo="mend nodes",
        )
    return number


def node_names(nodes: Any) -> list[Hashable]:
    """0 .. n - 1 for a number, else the names given, each once."""
    number = whole(nodes)
    if number is not None:
        return list(range(max(number, 0)))
    if not isinstance(nodes, Iterable):
        raise InvalidArgumentError(
            "nodes names none",
            got=shown(nodes),
            wanted="how many nodes there are, or their names in order",
            todo="mend nodes",
        )
    names = [_plain(name) for name in nodes]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(
            "a node is named twice", got=repr(twice), wanted="each node once", todo="rename it"
        )
    return names


def read_pairs(edges: Iterable[Any], position: Mapping[Hashable, int]) -> set[tuple[int, int]]:
    """(parent, child) positions of a user's edges, checked against the nodes' positions."""
    pairs = [_pair(edge) for edge in edges]
    for name in (name for pair in pairs for name in pair):
        if name not in position:
            raise InvalidArgumentError(
                f"an edge names the unknown node {name!r}",
                got=f"nodes {_shorten(list(position))}",
                wanted="edges between nodes of the graph",
                todo="add the node, or drop the edge",
            )
    cycle = find_cycle(pairs)
    if cycle:
        raise InvalidArgumentError(
            "the graph has a cycle",
            got=" -> ".join(repr(name) for name in cycle),
            wanted="an acyclic graph, parents before children",
            todo="drop one edge of the cycle",
        )
    for parent, child in pairs:
        if position[parent] > position[child]:
            raise InvalidArgumentError(
                f"node {parent!r} is a parent of {child!r} and stands after it",
                got=f"positions {position[parent]} and {position[child]}",
                wanted="every parent before its child",
                todo="turn the edge around, or order the nodes so that parents come first",
            )
    return {(position[parent], position[child]) for parent, child in pairs}


def parent_lists(parents: Any) -> tuple[tuple[int, ...], ...]:
    """The parents of every node, checked one by one."""
    lists = [_parent_list(node, one) for node, one in enumerate(parents)]
    if not lists:
        raise InvalidArgumentError(
            "a graph needs nodes", got="none", wanted="at least one", todo="add nodes"
        )
    for child, own in enumerate(lists):
        for parent in own:
            _check_edge(parent, child, len(lists))
        if list(own) != sorted(set(own)):
            raise InvalidArgumentError(
                f"the parents of node {child} must rise and differ",
                got=str(own),
                wanted=str(tuple(sorted(set(own)))),
                todo="sort them, or build the graph with from_edges",
            )
    counts = {len(own): node for node, own in reversed([*enumerate(lists)]) if own}
    if len(counts) > 1:
        wrong = ", ".join(f"node {node} has {n}" for n, node in sorted(counts.items()))
        raise InvalidArgumentError(
            "nodes that are no roots must have equally many parents",
            got=wrong,
            wanted="one number k of parents throughout",
            todo="make those nodes roots or give them as many parents as the others",
        )
    return tuple(lists)


def find_cycle(edges: Sequence[tuple[Hashable, Hashable]]) -> list[Hashable]:
    """Nodes of one cycle, its first repeated at the end; [] where there is none.

    >>> find_cycle([("a", "b"), ("b", "a"), ("a", "c")])
    ['a', 'b', 'a']
    """
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


# -- single entries -------------------------------------------------------------------------------


def _plain(name: Any) -> Hashable:
    """Whole numbers of any kind as Python's, so that an edge array finds its nodes."""
    number = whole(name)
    if number is not None:
        return number
    if not isinstance(name, Hashable):
        raise InvalidArgumentError(
            "this can be no node",
            got=shown(name),
            wanted="a whole number, a text or anything hashable",
            todo="name the node",
        )
    return name


def _pair(edge: Any) -> tuple[Hashable, Hashable]:
    if isinstance(edge, str) or not hasattr(edge, "__len__") or len(edge) != 2:
        raise InvalidArgumentError(
            "an edge is a pair of nodes",
            got=shown(edge),
            wanted="(parent, child)",
            todo="write each edge as its parent and its child, and nothing else",
        )
    parent, child = edge
    return _plain(parent), _plain(child)


def _parent_list(child: int, parents: Any) -> tuple[int, ...]:
    own = [whole(p) for p in parents] if isinstance(parents, Iterable) else [None]
    numbers = tuple(p for p in own if p is not None)
    if len(numbers) < len(own):
        raise InvalidArgumentError(
            f"the parents of node {child} are no nodes",
            got=shown(parents),
            wanted="whole numbers in a tuple, () for a root",
            todo="write (p,) for a single parent, or build the graph with from_edges",
        )
    return numbers


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


def _shorten(names: Sequence[Hashable], most: int = 8) -> str:
    listed = ", ".join(repr(name) for name in names[:most])
    return listed if len(names) <= most else f"{listed}, .. ({len(names)} in all)"
