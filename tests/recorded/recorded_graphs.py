"""Recorded answers: causal graphs, their nulls, and induction along them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from plain_answers import said
from recorded_coordinates import generator, kind
from recorded_parts import made, probe_of
from small_models import (
    F64,
    normal,
    random_weights,
)

from imir_detect.circuits import graph_induction as graph_module
from imir_detect.circuits.causal_graph import (
    CausalEdge,
    CausalGraph,
    position_scores,
    recover_causal_graph,
)
from imir_detect.circuits.causal_null import head_p_values, row_p_values
from imir_detect.circuits.graph_induction import (
    GraphInduction,
    describe,
    exchange_places,
    graph_contexts,
    graph_induction,
    merged,
)
from imir_detect.coordinates.pathsum import Edge, sum_paths
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import chain, halves, random_forest
from imir_detect.training.two_stage import initial_model
from imir_detect.weights.model import ModelWeights


@cache
def graph_weights(seed: int = 0, **options: Any) -> ModelWeights:
    """Layer 0, head 0 attends to parents: node 2 and 3 to 0, 4 to 1, 5 to 4, 6 to 2, 7 to 6."""
    weights = random_weights(
        vocab=7, context=10, layers=2, scale=0.05, width=24, d_head=10, seed=seed
    )
    weights.W_pos.zero_()
    weights.W_pos[:, :10] = torch.eye(10, dtype=F64)
    for child, parent in {2: 0, 3: 0, 4: 1, 5: 4, 6: 2, 7: 6, 8: 7}.items():
        weights.W_Q[0, 0, child, parent] += 7.0
    weights.W_K[0, 0, :10, :10] += torch.eye(10, dtype=F64)
    return weights


def graphs() -> Any:
    weights = graph_weights()
    found = recover_causal_graph(weights)
    normed = replace(weights, rms=True, rms_out=True)
    large = random_weights(vocab=257, context=5, layers=1, heads=1, seed=4)
    exact = random_weights(vocab=256, context=5, layers=1, heads=1, seed=4)
    return {
        "graph": found,
        "words": str(found),
        "parents": found.parents,
        "roots": found.roots,
        "n_parents": found.n_parents,
        "first": found.first(5),
        "matrix": found.matrix(),
        "rows": list(found.rows()),
        "other seed": recover_causal_graph(weights, seed=3).edges,
        "six nodes": recover_causal_graph(weights, nodes=6).edges,
        "two nodes": recover_causal_graph(weights, nodes=2).candidates,
        "all nodes": recover_causal_graph(weights, nodes=10).n_nodes,
        "confident": recover_causal_graph(weights, min_confidence=0.99).edges,
        "any": recover_causal_graph(weights, min_confidence=0.0).edges,
        "normed": recover_causal_graph(normed).edges,
        "random": recover_causal_graph(random_weights(context=8)),
        "scores": [position_scores(w, 5) for w in (weights, normed, large, exact)],
        "errors": [
            said(lambda: recover_causal_graph(weights, nodes=1)),
            said(lambda: recover_causal_graph(weights, nodes=11)),
            said(lambda: recover_causal_graph(weights, nodes="two")),  # type: ignore[arg-type]
            said(lambda: recover_causal_graph(weights, min_confidence=1.5, seed=-1)),
            said(lambda: recover_causal_graph(kind("rotary"))),
        ],
    }


def graph_by_hand() -> Any:
    edges = (
        CausalEdge(0, 2, 0.9, 4.0, 0.001, 0),
        CausalEdge(1, 2, 0.8, 3.0, 0.01, 1),
        CausalEdge(1, 2, 0.85, 3.0, 0.01, 0),
        CausalEdge(0, 3, 0.7, 2.0, 0.1, None),
        CausalEdge(2, 4, 0.6, 1.5, 0.2, 1),
        CausalEdge(3, 4, 0.6, 1.5, 0.2, 1),
    )
    graph = CausalGraph(6, edges, edges[:3], (0.1, 0.2), "gradient", (1, 5))
    tied = CausalGraph(5, edges[:4], edges, (0.1,), "weights")
    bare = CausalGraph(3, (), (), (), "weights")
    return [
        [
            g.parents, g.roots, g.n_parents, g.matrix(), str(g), list(g.rows()), g.first(4),
            g.first(3),
        ]
        for g in (graph, tied, bare, CausalGraph(4, edges[3:4], (), (), "weights"))
    ]  # fmt: skip


def causal_nulls() -> Any:
    scores = normal(3, 6, 6, seed=2)
    sharp = scores.clone()
    sharp[0] += 9 * torch.eye(6, dtype=F64).roll(1, 0)
    found = {}
    for name, table in (
        ("noise", scores),
        ("sharp", sharp),
        ("two", scores[:, :2, :2]),
        ("three", scores[:, :3, :3]),
    ):
        rows = row_p_values(table, generator=generator(1))
        found[name] = [
            rows,
            head_p_values(rows, 16, 4, generator=generator(2)),
            head_p_values(rows, 200, 100, generator=generator(3)),
        ]
    return found


WRITTEN = {"chain": chain(8), "forest": random_forest(9, seed=4), "halves": halves(14)}


def written(name: str) -> Callable[[], Any]:
    """Layer 0 attends to parents, layer 1 matches, the read-out copies: by hand."""

    def answer() -> Any:
        graph = WRITTEN[name]
        model = initial_model(CausalGraphTask(graph, 4), 10.0)
        noise = normal(*model.attention[0].shape, seed=1).to(model.attention[0].dtype)
        with torch.no_grad():
            model.attention[0] += 0.1 * noise
            for child in graph.children:
                for head, node in enumerate(graph.parents[child]):
                    model.attention[0][head, 4 + child, 4 + node] += 6.0
        asked = probe_of(model.to_weights(), 48)
        made = recover_causal_graph(asked.weights, nodes=asked.weights.n_ctx - graph.n_parents)
        contexts, right = graph_contexts(made, asked.vocabulary, 3, generator=generator(4))
        mixed = exchange_places(contexts, made.n_nodes, generator=generator(5))
        full, control = (sum_paths(asked.weights, c.tokens) for c in (contexts, mixed))
        return {
            "found": graph_induction(asked),
            "copiers": [
                graph_module._copiers(asked, full, other, contexts, right)
                for other in (control, full)
            ],
            "stands out": graph_module._stands_out(full, (1, 0), right),
        }

    return answer


def along_graphs() -> Any:
    weights = graph_weights()
    graph = recover_causal_graph(weights, nodes=9)
    asked = probe_of(weights, 40)
    contexts, right = graph_contexts(graph, asked.vocabulary, 12, generator=generator(1))
    line = CausalGraph(
        5, tuple(CausalEdge(i, i + 1, 1.0, 4.0, 0.0, 0) for i in range(4)), (), (), "weights"
    )
    tree = CausalGraph(
        5, tuple(CausalEdge(0, i, 1.0, 4.0, 0.0, 0) for i in (2, 3)), (), (), "weights"
    )
    two = CausalGraph(
        4, tuple(CausalEdge(p, 3, 1.0, 4.0, 0.0, p) for p in (0, 1)), (), (), "weights"
    )
    return {
        "contexts": [contexts, right],
        "exchanged": exchange_places(contexts, graph.n_nodes, generator=generator(2)),
        "found": graph_induction(asked),
        "described": [describe(g) for g in (graph, line, tree, two)],
        "two parents": graph_contexts(two, torch.arange(6), 9, generator=generator(3)),
    }


def merging() -> Any:
    weights = graph_weights()
    graph = recover_causal_graph(weights, nodes=9)
    own = made("induction", (0, 0), (1, 0), strength=0.8)
    own = replace(own, edges=(Edge((0, 0), (1, 0), "K"),))
    found = GraphInduction(own, graph)
    same = made("induction", (1, 0), strength=0.7)
    better = made("k_hop", (1, 0), strength=0.85)
    level = made("k_hop", (1, 0), strength=0.8)
    other = made("induction", (1, 1), strength=0.95)
    skip = made("skip", (1, 0), strength=0.9)
    sets = [(), (same,), (better, same), (level,), (other, same), (skip, same), (other,)]
    strong = replace(found, circuit=replace(own, strength=0.95))
    nearly = made("induction", (1, 0), strength=0.9)
    return {
        "merged": [[c.brief() for c in merged(s, found)] for s in sets],
        "strong": [[c.brief() for c in merged(s, strong)] for s in ((nearly,), (better,))],
        "none": [c.brief() for c in merged((same,), None)],
        "dict": found.to_dict(),
    }


CASES: dict[str, Callable[[], Any]] = {
    "causal graph": graphs,
    "causal graph, by hand": graph_by_hand,
    "causal null": causal_nulls,
    "graph induction": along_graphs,
    **{f"graph induction, {name}": written(name) for name in WRITTEN},
    "graph induction, merged": merging,
}
