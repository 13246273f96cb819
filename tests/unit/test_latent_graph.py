"""Latent graphs: what is accepted, what is refused by name, and the special graphs."""

from __future__ import annotations

import networkx
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from imir_detect.errors import InvalidArgumentError, UnknownNameError
from imir_detect.tasks.latent_graph import (
    LatentGraph,
    chain,
    halves,
    named_graph,
    ngram,
    pairs,
    random_forest,
    random_graph,
)


def test_special_graphs_are_the_ones_written_down() -> None:
    assert chain(4).parents == ((), (0,), (1,), (2,))
    assert pairs(5).parents == ((), (0,), (), (2,), ())
    assert ngram(5, 3).parents == ((), (), (), (0, 1, 2), (1, 2, 3))
    assert halves(6).parents == ((), (), (0, 1), (1, 2), (1, 3), (2, 4))
    assert named_graph("chain", 4) == chain(4)


def test_edges_names_and_order() -> None:
    graph = LatentGraph.from_edges([("b", "c"), ("a", "c")], nodes=["a", "b", "c"])
    assert graph.parents == ((), (), (0, 1))
    assert graph.edges == ((0, 2), (1, 2))
    assert graph.roots == (0, 1)
    assert graph.children == (2,)
    assert graph.n_parents == 2
    assert graph.matrix().nonzero().tolist() == [[2, 0], [2, 1]]


def test_a_graph_of_roots_has_one_query_all_the_same() -> None:
    assert LatentGraph(((), ())).n_parents == 1


def test_from_networkx_reads_integers_in_order_and_names_as_added() -> None:
    graph = networkx.DiGraph([(2, 3), (0, 1)])
    assert LatentGraph.from_networkx(graph).parents == ((), (0,), (), (2,))
    named = networkx.DiGraph([("x", "y"), ("x", "z")])
    assert LatentGraph.from_networkx(named).parents == ((), (0,), (0,))
    assert LatentGraph.from_networkx(named, order=["x", "z", "y"]).parents == ((), (0,), (0,))


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ([(0, 1), (1, 2), (2, 0)], 3, "has a cycle; got 0 -> 1 -> 2 -> 0"),
        ([("a", "a")], ["a"], "has a cycle; got 'a' -> 'a'"),
        ([(2, 1)], 3, "node 2 is a parent of 1 and stands after it; got positions 2 and 1"),
        ([("y", "x")], ["x", "y"], "node 'y' is a parent of 'x' and stands after it"),
        ([(0, 7)], 3, "unknown node 7; got nodes 0, 1, 2"),
        ([("q", "a")], ["a", "b"], "unknown node 'q'"),
        ([(0, 2), (1, 2), (2, 3)], 4, "node 3 has 1, node 2 has 2"),
        ([], ["a", "a"], "named twice; got 'a'"),
        ([], 0, "a graph needs nodes"),
        ([], 3.5, "nodes names none; got 3.5"),
        ([(0, 1, {"w": 2})], 3, "an edge is a pair of nodes; got (0, 1, {'w': 2})"),
        (["ab"], ["a", "b"], "an edge is a pair of nodes; got 'ab'"),
        ([([0], 1)], 3, "this can be no node; got [0]"),
        (numpy.array([(0, 1), (1, 2), (2, 0)]), 3, "has a cycle; got 0 -> 1 -> 2 -> 0"),
    ],
)
def test_a_wrong_graph_is_refused_by_name(edges: list, nodes: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        LatentGraph.from_edges(edges, nodes=nodes)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "next step" in str(caught.value)


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        (((), (1,)), "node 1 is a parent of 1 and does not stand before it"),
        (((2,), (), ()), "node 2 is a parent of 0"),
        (((), (9,)), "node 1 has the unknown node 9 as a parent"),
        (((), (), (1, 0)), "the parents of node 2 must rise and differ; got (1, 0)"),
        ((-1, 0), "the parents of node 0 are no nodes; got -1"),
        (((), (0.0,)), "the parents of node 1 are no nodes; got (0.0,)"),
        (((), (0, 0)), "the parents of node 1 must rise and differ; got (0, 0)"),
    ],
)
def test_a_wrong_parent_list_is_refused_by_name(parents: tuple, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        LatentGraph(parents)
    assert message in str(caught.value)


def test_numbers_of_any_kind_name_nodes_and_lists_do_for_tuples() -> None:
    expected = LatentGraph(((), (0,), (1,)))
    pairs_of_three = [(0, 1), (1, 2)]
    assert LatentGraph.from_edges(numpy.array(pairs_of_three), nodes=numpy.int64(3)) == expected
    assert LatentGraph.from_edges(torch.tensor(pairs_of_three), nodes=3) == expected
    several = networkx.MultiDiGraph([(numpy.int64(1), numpy.int64(2)), (0, 1), (0, 1)])
    assert LatentGraph.from_networkx(several) == expected
    assert hash(LatentGraph([[], [0], [1]])) == hash(expected)  # type: ignore[arg-type]


def test_special_graphs_need_nodes() -> None:
    for make in (chain, pairs, halves, random_forest, random_graph):
        with pytest.raises(InvalidArgumentError, match=r"a graph needs nodes; got nodes=2\.5"):
            make(2.5)  # type: ignore[arg-type]


@given(st.integers(1, 20), st.integers(1, 4), st.floats(0, 1), st.integers(0, 10**6))
def test_random_graphs_have_as_many_parents_as_asked(
    nodes: int, parents: int, root_probability: float, seed: int
) -> None:
    graph = random_graph(nodes, parents, root_probability=root_probability, seed=seed)
    assert {len(own) for own in graph.parents} <= {0, parents}
    assert set(range(min(nodes, parents))) <= set(graph.roots)
    assert LatentGraph.from_edges(graph.edges, nodes=nodes) == graph


def test_undirected_graphs_and_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the graph is not directed; got Graph"):
        LatentGraph.from_networkx(networkx.Graph([(0, 1)]))
    with pytest.raises(UnknownNameError, match="no such graph; got 'ring'; wanted one of"):
        named_graph("ring", 4)
    with pytest.raises(InvalidArgumentError, match="an n-gram needs context; got 0"):
        ngram(4, 0)
    with pytest.raises(InvalidArgumentError, match=r"no probability; got 1\.5"):
        random_forest(4, root_probability=1.5)


@given(st.integers(2, 30), st.floats(0, 1), st.integers(0, 10**6))
def test_random_forests_are_forests_and_survive_the_round_trip(
    nodes: int, root_probability: float, seed: int
) -> None:
    graph = random_forest(nodes, root_probability=root_probability, seed=seed)
    assert all(len(parents) <= 1 for parents in graph.parents)
    assert graph == random_forest(nodes, root_probability=root_probability, seed=seed)
    assert LatentGraph.from_edges(graph.edges, nodes=nodes) == graph
    as_networkx = networkx.DiGraph()
    as_networkx.add_nodes_from(range(nodes))
    as_networkx.add_edges_from(graph.edges)
    assert LatentGraph.from_networkx(as_networkx) == graph


def test_root_probability_is_the_share_of_roots() -> None:
    shares = [len(random_forest(50, root_probability=0.3, seed=s).roots) / 50 for s in range(40)]
    assert abs(sum(shares) / 40 - (1 + 49 * 0.3) / 50) < 0.03
    assert random_forest(20, root_probability=0.0).roots == (0,)
