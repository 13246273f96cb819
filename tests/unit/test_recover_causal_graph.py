"""Reading a causal graph from weights: planted graphs, laws, and the null of untrained models."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from imir_detect.circuits.causal_graph import (
    CausalEdge,
    CausalGraph,
    position_scores,
    recover_causal_graph,
)
from imir_detect.circuits.causal_null import (
    _mean_square,
    few_rows_p_values,
    head_p_values,
    row_p_values,
)
from imir_detect.errors import InvalidArgumentError
from imir_detect.linalg import DTYPE
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.tasks.latent_graph import LatentGraph, chain, halves, pairs, random_forest
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec, Norm
from imir_detect.weights.store import parameters


def planted(graph: LatentGraph, effect: float, noise: float = 0.1, seed: int = 0) -> ModelWeights:
    """Layer 0's position scores: `effect` on every edge, one head a parent, noise elsewhere."""
    k = graph.n_parents
    model = DisentangledTransformer(3, len(graph), (k, 1), init_std=noise, seed=seed)
    with torch.no_grad():
        for child in graph.children:
            for head, parent in enumerate(graph.parents[child]):
                model.attention[0][head, 3 + child, 3 + parent] += effect
    return model.to_weights()


@pytest.mark.parametrize(
    "graph",
    [
        chain(12),
        pairs(12),
        halves(12),
        random_forest(20, seed=4),
        LatentGraph(((), *[(0,)] * 11)),  # a star: all nodes have one parent
    ],
)
def test_a_planted_graph_is_read_back(graph: LatentGraph) -> None:
    read = recover_causal_graph(planted(graph, 6.0))
    assert read.parents == graph.parents
    assert read.roots == graph.roots
    assert read.n_parents == graph.n_parents
    assert {e.head for e in read.edges} == set(range(graph.n_parents))
    assert min(e.confidence for e in read.edges) > 0.9
    assert (read.matrix() > 0).equal(graph.matrix())


@pytest.mark.parametrize(("norm", "strength"), [(None, 60.0), ("LN", 2.0)])
def test_a_graph_planted_in_a_transformer_lens_model_is_read_back(
    norm: Norm | None, strength: float
) -> None:
    """Positions in a random orthonormal basis; layer 0 maps each to its parent."""
    graph = random_forest(14, seed=6)
    bridge = ModelSpec(d_vocab=7, n_ctx=14, d_model=32, n_heads=1, norm=norm).boot(0)
    own = parameters(bridge)
    basis = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(1))).Q
    places = basis[:14]
    child_to_parent = sum(torch.outer(places[c], places[p]) for p, c in graph.edges)
    with torch.no_grad():
        next(p for name, p in own.items() if p.shape == (14, 32)).copy_(places)
        own["layers.0.attn.q.weight"].copy_(strength * torch.eye(32))
        own["layers.0.attn.k.weight"].copy_(child_to_parent)
    assert recover_causal_graph(bridge).parents == graph.parents


def test_effect_and_confidence_by_hand() -> None:
    """Three positions, scores 0 but for S[2, 0] = log 6: attention 6/8, chance 1/3."""
    model = DisentangledTransformer(2, 3)
    with torch.no_grad():
        model.attention[0][0, 2 + 2, 2 + 0] = torch.tensor(6.0).log()
    read = recover_causal_graph(model.to_weights())
    found = next(c for c in read.candidates if c.child == 2)
    assert found.parent == 0
    assert found.effect == pytest.approx(torch.tensor(6.0).log().item())
    assert found.confidence == pytest.approx((6 / 8 - 1 / 3) / (1 - 1 / 3))


def test_without_edges_there_is_no_graph() -> None:
    for seed in range(10):
        read = recover_causal_graph(planted(LatentGraph(((),) * 15), 0.0, noise=2.0, seed=seed))
        assert len(read.edges) <= 1
    flat = recover_causal_graph(DisentangledTransformer(3, 8).to_weights())
    assert flat.edges == ()
    assert flat.n_parents == 0
    assert flat.roots == tuple(range(8))


def test_untrained_models_stand_out_from_their_null_in_no_more_than_two_percent_of_rows() -> None:
    specs = [
        ModelSpec(d_vocab=5, n_ctx=20, d_model=64, n_heads=8, norm="LN", n_layers=1),
        ModelSpec(d_vocab=5, n_ctx=20, d_model=64, n_heads=8, init_range=0.5, n_layers=1),
        ModelSpec(d_vocab=5, n_ctx=20, d_model=32, n_heads=8, n_layers=1),
    ]
    rows = [
        (c.p_value < 0.01, c in graph.edges)
        for spec in specs
        for seed in range(5)
        for graph in [recover_causal_graph(spec.boot(seed))]
        for c in graph.candidates
    ]
    assert len(rows) >= 2000
    for share in torch.tensor(rows).double().mean(0).tolist():
        assert share <= 0.02


def test_rotating_the_residual_stream_changes_nothing() -> None:
    weights = planted(random_forest(10, seed=1), 5.0)
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(
        torch.randn(weights.d_model, weights.d_model, dtype=DTYPE, generator=generator)
    ).Q
    turned = replace(
        weights,
        W_E=weights.W_E @ turn,
        W_pos=weights.W_pos @ turn,
        **{name: turn.T @ getattr(weights, name) for name in ("W_Q", "W_K", "W_V", "W_U")},
        W_O=weights.W_O @ turn,
    )
    one, other = recover_causal_graph(weights), recover_causal_graph(turned)
    assert one.parents == other.parents
    assert_close(
        torch.tensor([c.effect for c in one.candidates]),
        torch.tensor([c.effect for c in other.candidates]),
    )


def test_permuting_heads_permutes_the_edges_heads() -> None:
    weights = planted(halves(9), 6.0)
    turned = replace(weights, W_Q=weights.W_Q.flip(1), W_K=weights.W_K.flip(1))
    one, other = recover_causal_graph(weights), recover_causal_graph(turned)
    assert {(e.parent, e.child, e.head) for e in one.edges} == {
        (e.parent, e.child, 1 - (e.head or 0)) for e in other.edges
    }


def test_scores_are_means_over_tokens_of_the_scores_with_tokens() -> None:
    bridge = ModelSpec(d_vocab=4, n_ctx=6, d_model=8, n_heads=2, norm="RMS", init_range=0.5).boot(0)
    from imir_detect.weights.read import read_weights

    w = read_weights(bridge)
    x = w.W_E[:, None] + w.W_pos
    x = x / (x.square().mean(-1, keepdim=True) + w.eps).sqrt()
    every = torch.einsum("aid,hde,hfe,bjf->habij", x, w.W_Q[0], w.W_K[0], x) / w.scale[0]
    assert_close(position_scores(w, 6), every.mean((1, 2)))


def test_row_p_values_are_uniform_under_the_null_and_ignore_scale() -> None:
    """Of rows of noise, as many lie below a level as the level says; a scale changes nothing."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(60, 20, 20, dtype=DTYPE, generator=generator)
    one, other = (
        row_p_values(scale * noise, generator=torch.Generator().manual_seed(0))
        for scale in (1.0, 50.0)
    )
    assert_close(one, other)
    for level in (0.01, 0.1, 0.5):
        share = float((one < level).double().mean())
        assert abs(share - level) < 4 * (level * (1 - level) / one.numel()) ** 0.5 + 0.2 * level


def test_a_row_with_one_large_earlier_entry_stands_out() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 20, 20, dtype=DTYPE, generator=generator)
    scores[0, 10, 4] = 8.0  # earlier
    scores[0, 12, 15] = 8.0  # later: it only widens the row
    p = row_p_values(scores, generator=generator)[0]
    assert p[9] < 0.005 < 0.05 < p[11]


def test_heads_of_few_dimensions_are_held_against_heads_of_few_dimensions() -> None:
    """Rows of rank 2 repeat each other: Fisher's formula alone finds graphs in a tenth of them."""
    generator = torch.Generator().manual_seed(1)
    queries, keys = (torch.randn(200, 20, 2, dtype=DTYPE, generator=generator) for _ in range(2))
    p = row_p_values(queries @ keys.transpose(1, 2), generator=generator)
    seen = -p.log().sum(1)
    formula = torch.special.gammaincc(torch.full_like(seen, 19.0), seen)
    simulated = head_p_values(p, 64, 2, generator=generator)
    assert float((formula < 0.01).double().mean()) > 0.04
    assert float((simulated < 0.01).double().mean()) < 0.03


def test_a_sparse_graph_is_read_whatever_stands_at_later_keys() -> None:
    """3 edges in 11 even rows; keys that rows cannot see hold noise as large as the edges."""
    graph = LatentGraph(((), (), (), (2,), (), (), (2,), (), (), (7,), ()))
    model = DisentangledTransformer(3, 11, init_std=0.7, seed=4)
    with torch.no_grad():
        between = model.attention[0][0, 3:, 3:]
        between += (
            torch.full((11, 11), 1.0).triu(1)
            * 4
            * torch.randn(11, 11, generator=torch.Generator().manual_seed(2))
        )
        for parent, child in graph.edges:
            between[child, parent] += 5.0
    weights = model.to_weights()
    scores = position_scores(weights, 11)
    generator = torch.Generator().manual_seed(0)
    rows = row_p_values(scores, generator=generator)
    assert float(head_p_values(rows, 64, 64, generator=generator)) > 0.01
    assert float(few_rows_p_values(scores, 64, 64, generator=generator)) < 0.005
    assert recover_causal_graph(weights).parents == graph.parents


def test_few_rows_of_untrained_heads_stand_out_as_often_as_the_level_says() -> None:
    """Whatever their scale; heads of few dimensions are held against their like."""
    generator = torch.Generator().manual_seed(5)
    places = torch.randn(1000, 12, 64, dtype=DTYPE, generator=generator)
    for rank in (2, 64):
        queries, keys = (
            places @ torch.randn(1000, 64, rank, dtype=DTYPE, generator=generator) for _ in "qk"
        )
        scores = queries @ keys.transpose(1, 2)
        one, other = (
            few_rows_p_values(scale * scores, 64, rank, generator=torch.Generator().manual_seed(0))
            for scale in (1.0, 30.0)
        )
        assert_close(one, other)
        for level, slack in ((0.01, 0.012), (0.1, 0.05)):
            assert abs(float((one < level).double().mean()) - level) < slack


def test_few_rows_by_hand() -> None:
    """Rows (0), (3; 0), (0, 4; -1, 1 on average 0): d = 3 and 4 over the one spread of 2^.5."""
    scores = torch.tensor([[[0.0, 9, 9], [3, 0, 9], [-1, 4, 1]]], dtype=DTYPE)
    assert float(_mean_square(scores)) == pytest.approx((9 + 16) / 2 / 2)
    assert float(_mean_square(torch.zeros(1, 4, 4, dtype=DTYPE))) == 0.0


def test_without_a_rare_head_nothing_is_simulated() -> None:
    """Fisher by hand: p = .5, .5 gives - sum log p = 1.386, tail (1 + x) e^-x = .597."""
    p = torch.full((1, 2), 0.5, dtype=DTYPE)
    found = head_p_values(p, 8, 8, generator=torch.Generator().manual_seed(0))
    assert float(found) == pytest.approx(0.25 * (1 + 2 * math.log(2)))


def test_a_graph_prints_and_tabulates_itself() -> None:
    read = recover_causal_graph(planted(pairs(6), 6.0))
    assert "3 edges, 3 roots, 1 parent a node" in str(read)
    assert "0->1" in str(read)
    table = list(read.rows())
    assert [row["edge"] for row in table] == [True, False, True, False, True]
    assert table[2] | {"confidence": 0, "effect": 0, "p_value": 0} == {
        "child": 3,
        "parent": 2,
        "head": 0,
        "confidence": 0,
        "effect": 0,
        "p_value": 0,
        "edge": True,
    }


def test_two_parents_seen_by_one_head_each_count_once() -> None:
    same = [CausalEdge(0, 1, 0.6, 1.0, 0.01, head=h) for h in (0, 1)]
    graph = CausalGraph(2, tuple(same), tuple(same), (1.0, 1.0), "weights")
    assert graph.parents == ((), (0,))
    assert graph.n_parents == 1


@pytest.mark.parametrize("nodes", [1, 9])
def test_positions_that_the_model_lacks_are_refused(nodes: int) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"got {nodes}; wanted from 2 to 8"):
        recover_causal_graph(DisentangledTransformer(3, 8).to_weights(), nodes=nodes)
