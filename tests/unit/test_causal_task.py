"""The causal-graph task: the law of its sequences, its batches, and its two floors."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.tasks.base import IGNORE, Task
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.causal_predictors import (
    TwoLayerCircuit,
    best_circuit,
    near_bayes,
    query_counts,
    row_loss,
    true_attention,
)
from imir_detect.tasks.latent_graph import LatentGraph, chain, halves, ngram
from imir_detect.tasks.row_priors import Dirichlet, stationary_law

TREE = LatentGraph(((), (0,), (0,), (), (1,)))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_it_meets_the_contract_of_tasks() -> None:
    task = CausalGraphTask(TREE, n_symbols=4)
    assert isinstance(task, Task)
    assert (task.vocab_size, task.length, task.n_positions, task.competitors) == (4, 6, 6, 6)
    assert task.relation is None
    assert task.probe("icl", 3, generator=generator()) is None
    assert task.probe("iwl", 3, generator=generator()) is None
    assert task.ceiling().both_loss is None


class Fixed:
    """A prior with one matrix, so that laws can be checked by counting."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def sample(
        self, shape: tuple[int, ...], symbols: int, *, generator: torch.Generator
    ) -> torch.Tensor:
        return self.rows.expand(*shape[:-1], *self.rows.shape).clone()

    def posterior_mean(self, counts: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


def test_children_follow_their_parent_and_roots_the_stationary_law() -> None:
    pi = torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], dtype=DTYPE)
    drawn = CausalGraphTask(TREE, 3, Fixed(pi)).draw(60000, generator=generator())
    x = drawn.tokens
    for parent, child in TREE.edges:
        for value in range(3):
            below = x[x[:, parent] == value, child]
            share = torch.bincount(below, minlength=3) / len(below)
            assert_close(share.double(), pi[value], atol=0.015, rtol=0)
    mu = stationary_law(pi[None])[0]
    for node in range(5):  # the stationary law is kept along the edges
        share = torch.bincount(x[:, node], minlength=3) / len(x)
        assert_close(share.double(), mu, atol=0.012, rtol=0)
    share = torch.bincount(x[:, -1], minlength=3) / len(x)
    assert_close(share, torch.full((3,), 1 / 3), atol=0.012, rtol=0)
    assert_close(drawn.rows, pi[x[:, -1]])


def test_two_parents_pick_the_row_of_their_combination() -> None:
    pi = torch.eye(4, dtype=DTYPE)[[0, 1, 1, 0]][:, :2]  # exclusive or of the two parents
    task = CausalGraphTask(ngram(6, 2), 2, Fixed(pi))
    drawn = task.draw(500, generator=generator())
    x = drawn.tokens
    assert task.length == 8
    for child in range(2, 6):
        assert bool((x[:, child] == x[:, child - 1] ^ x[:, child - 2]).all())
    assert bool((drawn.rows.argmax(-1) == x[:, -1] ^ x[:, -2]).all())
    assert abs(float(x[:, :2].double().mean()) - 0.5) < 0.05


def test_batches_ask_the_last_position_for_a_draw_from_the_row() -> None:
    task = CausalGraphTask(chain(5), 3)
    batch = task.sample(2000, generator=generator())
    assert bool((batch.targets[:, :-1] == IGNORE).all())
    place = batch.answer_position[:, -1]
    found = place >= 0
    assert 0.5 < float(found.double().mean()) < 1
    rows = torch.arange(2000)[found]
    assert bool((batch.tokens[rows, place[found]] == batch.targets[found, -1]).all())
    assert bool((batch.tokens[rows, place[found] - 1] == batch.tokens[found, -1]).all())


def test_pairs_differ_in_the_last_token_and_in_the_row_asked_for() -> None:
    task = CausalGraphTask(chain(5), 4, Dirichlet(0.05))
    clean, corrupt = task.pairs(400, generator=generator())
    assert bool((clean.tokens[:, :-1] == corrupt.tokens[:, :-1]).all())
    assert bool((clean.tokens[:, -1] != corrupt.tokens[:, -1]).all())
    assert float((clean.targets[:, -1] != corrupt.targets[:, -1]).double().mean()) > 0.5


def test_one_symbol_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a transition needs symbols; got n_symbols=1"):
        CausalGraphTask(chain(3), n_symbols=1)


# -- floors -----------------------------------------------------------------------------------


def test_near_bayes_counts_children_below_the_query_by_hand() -> None:
    """Tree 0 -> 1, 0 -> 2, 1 -> 4: tokens 1 0 2 1 2, query 1: below 1 stand 0 and 2 (not 4)."""
    task = CausalGraphTask(TREE, 3, Dirichlet(0.5))
    tokens = torch.tensor([[1, 0, 2, 1, 2, 1]])
    assert query_counts(task, tokens).tolist() == [[1, 0, 1]]
    expected = torch.tensor([[1.5, 0.5, 1.5]], dtype=DTYPE) / 3.5
    assert_close(near_bayes(task, tokens), expected)


def test_no_predictor_from_counts_beats_near_bayes_where_there_are_no_roots_to_read() -> None:
    """Raising or lowering alpha in the posterior mean makes the loss worse (it is Bayes')."""
    task = CausalGraphTask(halves(12), 2, Dirichlet(0.3))
    drawn = task.draw(40000, generator=generator())
    counts = query_counts(task, drawn.tokens)
    losses = [row_loss(drawn.rows, Dirichlet(a).posterior_mean(counts)) for a in (0.2, 0.3, 0.45)]
    assert losses[1] == min(losses)


def test_a_circuit_with_a_strong_match_is_the_frequency_below_the_query() -> None:
    task = CausalGraphTask(chain(6), 3)
    drawn = task.draw(200, generator=generator())
    counts = query_counts(task, drawn.tokens)
    seen = counts.sum(-1) > 0
    circuit = TwoLayerCircuit(task.graph, 3, "frequency", 1e4, 1e3, scale=1e9)
    expected = counts / counts.sum(-1, keepdim=True)
    assert_close(circuit.probabilities(drawn.tokens)[seen], expected[seen], atol=1e-6, rtol=0)


def test_true_attention_rows_are_laws_on_parents() -> None:
    attention = true_attention(ngram(4, 2))
    assert attention.shape == (2, 6, 6)
    assert_close(attention.sum(-1), torch.ones(2, 6, dtype=DTYPE))
    assert attention[0, 3, 1] == attention[1, 3, 2] == 1
    assert attention[0, -1, 4] == attention[1, -1, 5] == 1
    assert_close(attention[0, 1, :2], torch.tensor([0.5, 0.5], dtype=DTYPE))


@pytest.mark.parametrize("readout", ["softmax", "frequency"])
def test_the_best_circuit_is_a_minimum_and_lies_above_near_bayes(readout: str) -> None:
    task = CausalGraphTask(chain(8), 3)
    best = best_circuit(task, readout=readout, n=4096)  # type: ignore[arg-type]
    drawn = task.draw(4096, generator=generator(0))  # the sequences it was fitted on
    loss = row_loss(drawn.rows, best.probabilities(drawn.tokens))
    for change in ({"match": best.match * 0.7}, {"scale": best.scale * 1.2}):
        other = TwoLayerCircuit(**{**best.__dict__, **change})
        assert row_loss(drawn.rows, other.probabilities(drawn.tokens)) > loss
    assert loss > row_loss(drawn.rows, near_bayes(task, drawn.tokens))


def test_an_unknown_readout_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no such read-out; got 'argmax'"):
        best_circuit(CausalGraphTask(), readout="argmax")  # type: ignore[arg-type]
