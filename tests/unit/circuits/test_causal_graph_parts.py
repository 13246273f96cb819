"""A causal graph read from weights: its null, its bars, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from imir_detect.circuits.causal_graph import (
    CausalEdge,
    CausalGraph,
    _candidate,
    position_scores,
    recover_causal_graph,
)
from imir_detect.circuits.causal_null import DRAWS, head_p_values, row_p_values
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64


def edge(parent: int, child: int, confidence: float = 0.9, head: int = 0) -> CausalEdge:
    return CausalEdge(parent, child, confidence, 1.0, 0.01, head)


def graph(*edges: CausalEdge, nodes: int = 6) -> CausalGraph:
    return CausalGraph(nodes, edges, edges, (1.0,), "weights")


def test_parents_are_counted_by_child() -> None:
    found = graph(edge(0, 2), edge(1, 2), edge(0, 3), edge(2, 4), edge(3, 4))
    assert found.parents == ((), (), (0, 1), (0,), (2, 3), ())
    assert found.roots == (0, 1, 5)
    assert found.n_parents == 2  # two nodes have two parents, one has one
    assert graph(edge(0, 2), edge(1, 2), edge(0, 3)).n_parents == 2  # a tie goes to the larger
    assert graph(edge(0, 2), edge(0, 3), edge(1, 4), edge(2, 4)).n_parents == 1


def test_a_pair_named_by_two_heads_has_the_higher_confidence() -> None:
    found = graph(edge(0, 2, 0.6, 0), edge(0, 2, 0.8, 1), edge(1, 3, 0.7)).matrix()
    assert found.shape == (6, 6)
    assert float(found[2, 0]) == pytest.approx(0.8)
    assert float(found[3, 1]) == pytest.approx(0.7)
    assert int((found > 0).sum()) == 2


def test_a_graph_without_edges_prints_one_line() -> None:
    assert str(graph()) == (
        "causal graph of 6 positions, read from weights: 0 edges, 6 roots, 0 parents a node"
    )


def noise(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def p_values(scores: torch.Tensor) -> torch.Tensor:
    return row_p_values(scores, generator=torch.Generator().manual_seed(9))


def test_p_values_of_noise_are_even() -> None:
    """Columns with mean zero make the two readings of a row one and the same."""
    scores = noise(1, 300, 8, 8)
    scores = torch.cat([scores, -scores], 1)[:, [0, 8, 1, 9, 2, 10, 3, 11]]
    found = p_values(scores)
    assert found.shape == (300, 7)
    for level in (0.1, 0.3, 0.5, 0.8):
        share = (found <= level).double().mean(0)
        assert float(share.mean()) == pytest.approx(level, abs=0.05)
    assert float(found.min()) >= 1 / (1 + DRAWS)


def test_what_stands_out_is_weighed_against_the_spread_of_all_keys() -> None:
    scores = noise(2, 1, 8, 8)
    scores[0, 4] = torch.tensor([0.1, -0.2, 9.0, 0.3, 0.0, -0.1, 0.2, 0.1])
    sharp = p_values(scores)[0, 3]
    assert float(sharp) == pytest.approx(1 / (1 + DRAWS), rel=0.3)
    # Later keys are not seen, but their spread counts: a wild row makes nothing of the same lead.
    wild = scores.clone()
    wild[0, 4, 5:] = torch.tensor([90.0, -90.0, 80.0])
    assert float(p_values(wild)[0, 3]) > 0.1
    # Neither the scale nor the mean of a table matters.
    assert torch.allclose(p_values(5 * scores - 3), p_values(scores))


def test_a_parent_of_all_nodes_is_seen_in_one_of_the_two_readings() -> None:
    """A preference for one key is no accident of its rows: less the column means it is gone."""
    scores = 0.1 * noise(3, 1, 12, 12)
    scores[:, :, 1] += 5.0
    found = p_values(scores)[0, 1:]
    assert float(found.max()) < 0.05
    assert float(found.min()) >= 1 / (1 + DRAWS)


def test_rows_without_any_spread_are_no_evidence() -> None:
    assert float(p_values(torch.zeros(1, 5, 5, dtype=F64)).min()) > 0.05


def heads_of(row_p: torch.Tensor, width: int = 64, rank: int = 64) -> torch.Tensor:
    return head_p_values(row_p, width, rank, generator=torch.Generator().manual_seed(4))


def test_rows_of_one_head_are_combined_as_fisher_did() -> None:
    """Of 20 p-values of e^-1 each - sum log p is 20, at its mean: about one half; and where no head
    is rare even so, that is the answer."""
    scipy = pytest.importorskip("scipy.stats")
    row_p = torch.full((2, 20), -1.0, dtype=F64).exp()
    row_p[1] = 0.9
    wanted = [float(scipy.chi2.sf(2 * -row.log().sum(), 40)) for row in row_p]
    assert heads_of(row_p).tolist() == pytest.approx(wanted)


def test_a_rare_head_is_held_against_untrained_ones() -> None:
    row_p = torch.full((2, 11), 0.5, dtype=F64)
    row_p[0] = 1e-3
    rare, common = heads_of(row_p).tolist()
    assert rare == pytest.approx(1 / 501)
    assert 0.2 < common < 0.95
    # A head of one dimension shows one pattern in all rows: the same rows are less rare there.
    some = torch.full((1, 11), 0.12, dtype=F64)
    assert float(heads_of(some, 64, 1)) > 2 * float(heads_of(some, 64, 64))


def test_attention_below_chance_has_no_confidence() -> None:
    # The largest earlier entry, next to a position that looks at itself.
    found = _candidate(torch.tensor([0.0, -1.0, -1.0, 9.0], dtype=F64), 1, 0.3)
    assert (found.parent, found.child, found.head) == (0, 3, 1)
    assert (found.confidence, found.p_value) == (0.0, 0.3)
    others = torch.tensor([-1.0, -1.0, 9.0], dtype=F64).exp().mean().log()
    assert found.effect == pytest.approx(-float(others))
    # Of three entries 6 : 1 : 1 the share is 3/4, less the third that is chance.
    by_hand = _candidate(torch.tensor([6.0, 1.0, 1.0], dtype=F64).log(), 0, 0.3)
    assert by_hand.confidence == pytest.approx((3 / 4 - 1 / 3) / (2 / 3))
    assert by_hand.effect == pytest.approx(float(torch.tensor(6.0).log()))


def test_undecided_nodes_are_no_roots_and_are_named() -> None:
    found = replace(graph(edge(0, 2), edge(1, 4)), undecided=(3, 5))
    assert found.roots == (0, 1)
    assert "; undecided: 3, 5" in str(found)
    assert "1 parent a node" in str(found)
    first = found.first(4)
    assert (first.n_nodes, first.edges, first.undecided) == (4, (edge(0, 2),), (3,))
    assert first.candidates == (edge(0, 2),)


def test_the_spread_is_the_median_rows_standard_deviation() -> None:
    model = DisentangledTransformer(3, 5, init_std=0.7, seed=2)
    weights = model.to_weights()
    scores = position_scores(weights, 5)
    found = recover_causal_graph(weights)
    wanted = [float(table.std(1).median()) for table in scores]
    assert found.spread == pytest.approx(wanted)
    assert (found.n_nodes, found.source) == (5, "weights")
    assert found.notes[0] == "layer 0 alone, positions 0 to 4"
    assert [(c.head, c.child) for c in found.candidates] == sorted(
        (c.head, c.child) for c in found.candidates
    )
    assert len(found.candidates) == 4 * len(scores)


def test_an_edge_needs_half_of_the_attention_over_chance() -> None:
    """Three nodes, S[2, 0] = log 6: confidence .625, as good as certain among rows of zeros."""
    model = DisentangledTransformer(2, 12)
    with torch.no_grad():
        for child in range(1, 12):
            model.attention[0][0, 2 + child, 2] = 4.0
    weights = model.to_weights()
    lowest = min(c.confidence for c in recover_causal_graph(weights).candidates)
    assert 0.5 < lowest < 1
    assert len(recover_causal_graph(weights).edges) == 11
    some = recover_causal_graph(weights, min_confidence=lowest + 1e-6).edges
    assert len(some) == 10
    assert len(recover_causal_graph(weights, min_confidence=lowest - 1e-6).edges) == 11


def model_of(vocab: int, n_ctx: int, **spec: object) -> ModelWeights:
    settings = {"n_layers": 1, "n_heads": 2, "d_model": 8, "init_range": 0.5, **spec}
    return read_weights(ModelSpec(vocab, n_ctx, **settings).boot(seed=0))  # type: ignore[arg-type]


def test_at_most_sixty_four_positions_are_read_by_default() -> None:
    assert recover_causal_graph(model_of(5, 66, n_heads=1)).n_nodes == 64
    assert recover_causal_graph(model_of(5, 9)).n_nodes == 9
    assert recover_causal_graph(model_of(5, 9), nodes=2).n_nodes == 2


def test_of_a_large_vocabulary_a_seeded_sample_is_averaged() -> None:
    weights = model_of(300, 5)
    once = position_scores(weights, 5, seed=1)
    assert torch.equal(once, position_scores(weights, 5, seed=1))
    assert not torch.allclose(once, position_scores(weights, 5, seed=2))
    # Of 256 tokens all are: the seed makes no difference.
    small = replace(weights, W_E=weights.W_E[:256])
    assert torch.equal(position_scores(small, 5, seed=1), position_scores(small, 5, seed=2))
    # A mean over tokens that are all alike is any of them.
    alike = replace(weights, W_E=weights.W_E[:1].expand(300, -1))
    one = replace(weights, W_E=weights.W_E[:1])
    assert torch.allclose(position_scores(alike, 5), position_scores(one, 5))


def test_biases_of_queries_and_keys_are_part_of_the_scores() -> None:
    weights = model_of(4, 5)
    weights = replace(weights, b_Q=noise(5, *weights.b_Q.shape), b_K=noise(6, *weights.b_K.shape))
    x = weights.W_E.mean(0) + weights.W_pos
    for head, found in enumerate(position_scores(weights, 5)):
        q = x @ weights.W_Q[0, head] + weights.b_Q[0, head]
        k = x @ weights.W_K[0, head] + weights.b_K[0, head]
        assert torch.allclose(found, q @ k.T / weights.scale[0])


def test_a_model_without_position_embeddings_has_no_graph_on_positions() -> None:
    with pytest.raises(UnsupportedModelError, match=r"no position embeddings.*learned positions"):
        recover_causal_graph(model_of(5, 9, position="rotary"))
    with pytest.raises(InvalidArgumentError, match="got 1; wanted from 2 to 9"):
        recover_causal_graph(model_of(5, 9), nodes=1)
