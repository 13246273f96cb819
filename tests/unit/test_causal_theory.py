"""Layer 0's gradient at initialisation: against autograd, its closed form and enumeration."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.testing import assert_close

from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph, chain, halves, random_forest, random_graph
from imir_detect.tasks.row_priors import Dirichlet, stationary_law
from imir_detect.theory.causal_gradient import (
    causal_correlation,
    closed_form,
    layer0_gradient,
    mean_ratio,
)
from imir_detect.theory.causal_information import (
    chi_square_information,
    enumerate_sequences,
    enumerated_information,
    estimated_information,
    information_matrix,
)
from imir_detect.theory.causal_reading import graph_from_gradient
from imir_detect.theory.causal_sets import best_sets, earlier_sets, set_values
from imir_detect.training.two_stage import initial_model

TREE = LatentGraph(((), (0,), (0,), (), (1,)))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("match", "eps"), [(1.0, 0.02), (2.5, 0.1)])
def test_the_gradient_by_hand_is_autograds(match: float, eps: float) -> None:
    task = CausalGraphTask(TREE, 3)
    drawn = task.draw(300, generator=generator())
    model = initial_model(task, match).double()
    loss = -(drawn.rows * (model(drawn.tokens) + eps).log()).sum(-1).mean()
    loss.backward()
    expected = -model.attention[0].grad[0, 3:, 3:].tril()  # type: ignore[union-attr,index]
    found = layer0_gradient(drawn.tokens, drawn.rows, match=match, eps=eps)
    assert_close(found.value[0], expected, atol=1e-12, rtol=0)


def test_the_standard_error_is_that_of_the_mean_over_sequences() -> None:
    task = CausalGraphTask(TREE, 3)
    drawn = task.draw(200, generator=generator())
    each = torch.cat(
        [
            layer0_gradient(drawn.tokens[[i, i]], drawn.rows[[i, i]]).value
            for i in range(len(drawn.tokens))
        ]
    )
    found = layer0_gradient(drawn.tokens, drawn.rows)
    assert_close(found.value[0], each.mean(0))
    assert_close(found.error[0], each.std(0, correction=0) / 200**0.5)


def test_the_closed_form_is_the_gradient_at_a_vanishing_match() -> None:
    """Exactly, on any sequences, once the query is averaged over all symbols."""
    task = CausalGraphTask(TREE, 3)
    drawn = task.draw(50, generator=generator(1))
    match, eps = 1e-6, 0.05
    gradient = torch.zeros(6, 6, dtype=DTYPE)
    for query in range(3):
        tokens = drawn.tokens.clone()
        tokens[:, -1] = query
        rows = drawn.transitions[:, query]
        gradient += layer0_gradient(tokens, rows, match=match, eps=eps).value[0] / 3
    q, c = mean_ratio(drawn.tokens, drawn.transitions, eps=eps)
    expected = closed_form(q, c) * match / (3 * 6)
    assert_close(gradient[:5, :5], expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


def test_gradient_and_closed_form_agree_on_separate_samples() -> None:
    task = CausalGraphTask(random_forest(11, seed=3), 5)
    one, other = (task.draw(16384, generator=generator(s)) for s in (1, 2))
    gradient = layer0_gradient(one.tokens, one.rows).value[0]
    q, c = mean_ratio(other.tokens, other.transitions)
    assert causal_correlation(gradient, closed_form(q, c)) > 0.98
    assert causal_correlation(gradient, gradient) == pytest.approx(1.0)


@pytest.mark.parametrize("symbols", [3, 10])
def test_the_largest_earlier_entry_is_the_true_parent(symbols: int) -> None:
    graph = random_forest(19, seed=5)
    drawn = CausalGraphTask(graph, symbols).draw(16384, generator=generator())
    gradient = layer0_gradient(drawn.tokens, drawn.rows).value[0]
    assert [(int(gradient[c, :c].argmax()), c) for c in graph.children] == list(graph.edges)


# -- information ------------------------------------------------------------------------------


def test_information_of_known_laws() -> None:
    """An exact copy of S symbols has S - 1; a symmetric binary channel (1 - 2 p)^2."""
    assert float(chi_square_information(torch.eye(4, dtype=DTYPE) / 4)) == pytest.approx(3)
    p = 0.2
    channel = torch.tensor([[1 - p, p], [p, 1 - p]], dtype=DTYPE) / 2
    assert float(chi_square_information(channel)) == pytest.approx((1 - 2 * p) ** 2)
    independent = torch.tensor([0.3, 0.7], dtype=DTYPE)
    outer = independent[:, None] * independent
    assert float(chi_square_information(outer)) == pytest.approx(0, abs=1e-15)


def test_closed_information_is_that_of_all_sequences() -> None:
    task = CausalGraphTask(TREE, 3, Dirichlet(0.4))
    matrices = task.prior.sample((4, 3), 3, generator=generator())
    counted = torch.stack([enumerated_information(task, pi) for pi in matrices]).mean(0)
    assert_close(information_matrix(TREE, matrices), counted, atol=1e-12, rtol=0)
    assert counted[3, 0] == pytest.approx(0, abs=1e-12)  # another tree


def test_a_chain_loses_information_with_distance() -> None:
    """The data processing inequality, which is why the parent is a row's largest entry."""
    table = estimated_information(CausalGraphTask(chain(6), 4), n=200)
    for row in range(1, 6):
        earlier = table[row, :row]
        assert bool((earlier[1:] > earlier[:-1]).all())
    assert_close(table, table.T)


def test_enumerated_probabilities_sum_to_one_and_give_the_exact_gradient() -> None:
    task = CausalGraphTask(LatentGraph(((), (0,), ())), 2)
    pi = torch.tensor([[0.7, 0.3], [0.2, 0.8]], dtype=DTYPE)
    tokens, chance = enumerate_sequences(task, pi)
    assert float(chance.sum()) == pytest.approx(1)
    each = [
        layer0_gradient(row.expand(2, -1), pi[row[-1]].expand(2, -1)).value[0] for row in tokens
    ]
    exact = torch.einsum("n,nij->ij", chance, torch.stack(each))
    picked = torch.multinomial(chance, 200000, replacement=True, generator=generator())
    sampled = layer0_gradient(tokens[picked], pi[tokens[picked][:, -1]])
    assert bool(((sampled.value[0] - exact).abs() <= 5 * sampled.error[0] + 1e-12).all())
    assert float(exact[1, 0].abs()) > 1e-4


# -- reading a graph from data ----------------------------------------------------------------


def test_a_task_is_read_with_its_roots() -> None:
    graph = random_forest(12, seed=1)
    read = graph_from_gradient(CausalGraphTask(graph, 3), n=8192)
    assert read.parents == graph.parents
    assert (read.source, read.n_parents) == ("gradient", 1)
    assert min(edge.confidence for edge in read.edges) > 0.99


def test_real_sequences_with_their_answers_are_read_alike() -> None:
    graph = random_forest(10, seed=2)
    batch = CausalGraphTask(graph, 3).sample(30000, generator=generator())
    sequences = torch.cat([batch.tokens, batch.targets[:, -1:]], 1)
    assert graph_from_gradient(sequences).parents == graph.parents


def test_two_parents_are_read_one_a_query_token() -> None:
    graph = halves(10)
    read = graph_from_gradient(CausalGraphTask(graph, 3), n=16384)
    assert read.parents == graph.parents
    assert read.n_parents == 2


@pytest.mark.parametrize(
    ("parents", "symbols", "alpha", "nodes"), [(2, 4, 1.0, 14), (2, 6, 0.1, 9), (3, 3, 0.3, 11)]
)
def test_any_graph_of_several_parents_is_read_whole(
    parents: int, symbols: int, alpha: float, nodes: int
) -> None:
    graph = random_graph(nodes, parents, root_probability=0.4, seed=1)
    task = CausalGraphTask(graph, symbols, Dirichlet(alpha))
    read = graph_from_gradient(task, n=12288)
    assert (read.parents, read.undecided) == (graph.parents, ())
    assert {edge.head for edge in read.edges} == set(range(parents))


def test_what_several_parents_cannot_tell_is_said() -> None:
    nothing = LatentGraph(((),) * 8)
    drawn = CausalGraphTask(nothing, 3).draw(4096, generator=generator())
    answers = torch.randint(3, (4096, 1), generator=generator())
    read = graph_from_gradient(torch.cat([drawn.tokens, answers], 1), queries=2)
    assert (read.edges, read.undecided, read.n_nodes) == ((), (), 7)
    assert any("no edge stands out; one of effect 0." in note for note in read.notes)
    one_set = graph_from_gradient(CausalGraphTask(halves(3), 3), n=1000)
    assert (one_set.edges, one_set.undecided) == ((), (2,))
    assert "there is one set of parents, which can be held against no other" in one_set.notes
    none = graph_from_gradient(torch.randint(3, (50, 5), generator=generator()), queries=2)
    assert (none.n_nodes, none.edges, none.candidates) == (2, (), ())


def test_statistics_of_sets_are_those_of_every_sequence_written_out() -> None:
    """Oracle: one value a sequence, row and set, then plain means and standard errors."""
    graph = halves(6)
    drawn = CausalGraphTask(graph, 2).draw(200, generator=generator())
    sets = earlier_sets(6, 2)
    found, _ = best_sets(drawn.tokens, drawn.rows, sets)
    nodes, queries = drawn.tokens[:, :6], drawn.tokens[:, 6:]
    said = drawn.rows.gather(1, nodes)
    each = torch.full((200, 6, len(sets)), torch.nan, dtype=DTYPE)
    for row, (node, one) in itertools.product(
        range(200), itertools.product(range(6), enumerate(sets.tolist()))
    ):
        index, members = one
        if members[-1] < node:
            shows = bool((nodes[row, members] == queries[row]).all())
            each[row, node, index] = 4 * shows * (said[row, node] - said.mean())
    mean_pair = each.flatten(1).nanmean(1)
    assert [best.child for best in found] == [2, 3, 4, 5]
    for best in found:
        own = each[:, best.child]
        at = int(own.mean(0).nan_to_num(nan=-9.0).argmax())
        assert best.parents == tuple(sets[at].tolist())
        assert best.value == pytest.approx(float(own[:, at].mean()))
        against = own[:, at] - mean_pair
        assert best.above == pytest.approx(float(against.mean()), abs=1e-12)
        assert best.error == pytest.approx(float(against.std()) / 200**0.5, abs=1e-12)
        others = [own[:, at] - own[:, s] for s in range(best.sets) if s != at]
        z = [float(d.mean() / (d.std(correction=0) / 200**0.5)) for d in others]
        assert best.lead == pytest.approx(min(z, default=torch.inf))


def test_data_without_a_graph_have_none() -> None:
    nothing = LatentGraph(((),) * 12)
    found = [graph_from_gradient(CausalGraphTask(nothing, 3), n=4096, seed=s) for s in range(8)]
    assert sum(len(graph.edges) for graph in found) == 0


def forests(nodes: int) -> list[LatentGraph]:
    """Every graph of single parents."""
    choices = itertools.product(*[range(child + 1) for child in range(nodes)])
    return [
        LatentGraph(tuple(() if p == child else (p,) for child, p in enumerate(parents)))
        for parents in choices
    ]


@pytest.mark.parametrize(("nodes", "symbols"), [(3, 2), (4, 3), (3, 10)])
def test_every_small_graph_is_read(nodes: int, symbols: int) -> None:
    for graph in forests(nodes):
        read = graph_from_gradient(CausalGraphTask(graph, symbols), n=8192, seed=3)
        assert read.parents == graph.parents
        assert read.undecided == ()


def test_two_nodes_are_undecided_and_say_why() -> None:
    for graph in forests(2):
        read = graph_from_gradient(CausalGraphTask(graph, 3), n=4096)
        assert (read.edges, read.undecided, read.roots) == ((), (1,), (0,))
        assert "two nodes are one pair, which can be held against no other" in read.notes
        assert "undecided: 1" in str(read)


def test_with_few_sequences_nodes_are_undecided_sooner_than_wrong() -> None:
    """A chain at alpha 0.05: a grandparent says nearly as much as a parent."""
    graph = chain(12)
    wrong = undecided = 0
    for seed in range(10):
        read = graph_from_gradient(CausalGraphTask(graph, 3, Dirichlet(0.05)), n=256, seed=seed)
        wrong += len({(e.parent, e.child) for e in read.edges} - set(graph.edges))
        undecided += len(read.undecided)
    assert wrong <= 2  # of 110 edges, each named with a confidence of 0.95
    assert undecided > 10


def test_pair_values_of_one_matrix_take_two_values_at_a_rows_largest() -> None:
    """Exact, from all sequences: sum_b pi(b | a)^2 on every edge, independent nodes at a root."""
    pi = torch.tensor([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1]], dtype=DTYPE)
    tokens, chance = enumerate_sequences(CausalGraphTask(TREE, 3), pi)
    mu = stationary_law(pi[None])[0]
    edge = float((mu[:, None] * pi.square()).sum())
    root = float(mu @ pi @ mu)
    said = pi[tokens[:, -1]].gather(1, tokens[:, :-1])
    shown = 3.0 * (tokens[:, :-1] == tokens[:, -1:]).to(DTYPE)
    exact = torch.einsum("n,ni,nj->ij", chance, said, shown)
    for child, parents in enumerate(TREE.parents):
        earlier = exact[child, :child]
        if parents:
            assert int(earlier.argmax()) == parents[0]
            assert float(earlier.max()) == pytest.approx(edge)
        else:
            assert_close(earlier, torch.full_like(earlier, root))
    assert edge > root + 0.1
    picked = torch.multinomial(chance, 100000, replacement=True, generator=generator())
    sampled = set_values(tokens[picked], pi[tokens[picked][:, -1]], torch.arange(5)[:, None])
    assert_close(sampled, exact, atol=0.02, rtol=0)


def test_pair_values_are_the_closed_forms_term_with_even_frequencies() -> None:
    """q_ij = E[pi(x_i | x_j) / f(x_i)]; a read-out with a large eps makes f + eps even."""
    task = CausalGraphTask(TREE, 3)
    drawn = task.draw(200, generator=generator())
    every = torch.zeros(5, 5, dtype=DTYPE)
    for query in range(3):
        tokens = drawn.tokens.clone()
        tokens[:, -1] = query
        every += set_values(tokens, drawn.transitions[:, query], torch.arange(5)[:, None]) / 3
    eps = 1e9
    q, _ = mean_ratio(drawn.tokens, drawn.transitions, eps=eps)
    assert_close(q * eps, every, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graph_from_gradient(torch.zeros(5, 3, dtype=torch.long)), "no sequences to read"),
        (lambda: graph_from_gradient(torch.zeros(5, 9)), "no sequences to read"),
        (
            lambda: graph_from_gradient(torch.full((5, 9), 4), n_symbols=3),
            "a token is no symbol; got tokens from 4 to 4",
        ),
        (
            lambda: earlier_sets(80, 3),
            "too many sets of parents to weigh; got 79079 sets of 3 among 80 nodes",
        ),
        (
            lambda: layer0_gradient(torch.zeros(5, 4, dtype=torch.long), torch.ones(4, 2)),
            "tokens and target rows do not belong together; got tokens (5, 4), rows (4, 2)",
        ),
        (
            lambda: layer0_gradient(torch.full((5, 4), 2), torch.ones(5, 2)),
            "tokens are no symbols of the target rows",
        ),
        (
            lambda: enumerate_sequences(CausalGraphTask(chain(19)), torch.eye(3, dtype=DTYPE)),
            "too many sequences to enumerate; got 3^20",
        ),
        (
            lambda: estimated_information(CausalGraphTask(halves(5))),
            "closed for single parents only; got 2 parents",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call()  # type: ignore[operator]
    assert message in str(caught.value)
