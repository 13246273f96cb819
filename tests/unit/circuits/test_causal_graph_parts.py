"""A causal graph read from weights: its null, its bars, and what it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from imir_detect.circuits.causal_graph import (
    DRAWS,
    CausalEdge,
    CausalGraph,
    _NullRows,
    position_scores,
    recover_causal_graph,
)
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


def rows(seed: int, n: int, size: int) -> torch.Tensor:
    return torch.randn(n, size, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("child", [1, 3, 7])
def test_p_values_of_noise_are_even(child: int) -> None:
    """A row and the same row again are two readings that agree, so their harmonic mean is one
    p-value, and of noise it is even in (0, 1)."""
    null = _NullRows(rows(0, DRAWS, 8), child)
    found = torch.tensor([null.weigh(torch.stack([r, r]), 0).p_value for r in rows(1, 800, 8)])
    for level in (0.1, 0.3, 0.5, 0.8):
        assert float((found <= level).double().mean()) == pytest.approx(level, abs=0.06)
    assert float(found.min()) > 0


def test_what_stands_out_is_weighed_against_the_spread_of_all_keys() -> None:
    null = _NullRows(rows(0, DRAWS, 8), 4)
    row = rows(2, 1, 8)[0]
    row[2] = 9.0
    found = null.weigh(torch.stack([row, row]), 3)
    assert (found.parent, found.child, found.head) == (2, 4, 3)
    assert found.p_value == pytest.approx(1 / (1 + DRAWS))
    # Later keys are not seen, but their spread counts: a wild row makes nothing of the same lead.
    wild = row.clone()
    wild[5:] = torch.tensor([90.0, -90.0, 80.0])
    assert null.weigh(torch.stack([wild, wild]), 3).p_value > 0.2
    # The two readings are combined by the harmonic mean of their p-values.
    mixed = null.weigh(torch.stack([row, wild]), 3)
    wilder = null.weigh(torch.stack([wild, wild]), 3)
    assert 1 / mixed.p_value == pytest.approx((1 / found.p_value + 1 / wilder.p_value) / 2)
    # Neither the scale nor the mean of a row matters.
    scaled = null.weigh(torch.stack([5 * row - 3] * 2), 3)
    assert scaled.p_value == pytest.approx(found.p_value)


def test_attention_below_chance_has_no_confidence() -> None:
    null = _NullRows(rows(0, 50, 4), 3)
    # The largest earlier entry, next to a position that looks at itself.
    row = torch.tensor([0.0, -1.0, -1.0, 9.0], dtype=F64)
    found = null.weigh(torch.stack([row, row]), 0)
    assert (found.parent, found.confidence) == (0, 0.0)
    others = torch.tensor([-1.0, -1.0, 9.0], dtype=F64).exp().mean().log()
    assert found.effect == pytest.approx(-float(others))


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
    weights = model_of(5, 70)
    assert recover_causal_graph(weights).n_nodes == 64
    assert recover_causal_graph(weights, nodes=70).n_nodes == 70
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


def test_a_model_without_position_embeddings_has_no_graph_on_positions() -> None:
    with pytest.raises(UnsupportedModelError, match=r"no position embeddings.*learned positions"):
        recover_causal_graph(model_of(5, 9, position="rotary"))
    with pytest.raises(InvalidArgumentError, match="got 1; wanted from 2 to 9"):
        recover_causal_graph(model_of(5, 9), nodes=1)
