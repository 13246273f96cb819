"""Induction along a latent graph: named with its edges where it stands, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import planted
import pytest
import torch

from imir_detect import detect_circuits
from imir_detect.circuits import graph_induction as module
from imir_detect.circuits.causal_graph import recover_causal_graph
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.graph_induction import (
    describe,
    exchange_places,
    graph_contexts,
    graph_induction,
    merged,
)
from imir_detect.circuits.probe import Probe
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.result import Report
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import LatentGraph, chain, halves, pairs, random_forest
from imir_detect.training.two_stage import TwoStageRecipe, initial_model, train_two_stage
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights


def written(graph: LatentGraph, *, match: float = 16.0, parent: float = 8.0) -> ModelWeights:
    """By hand: layer 0 attends to parents, layer 1 matches, the read-out copies."""
    model = initial_model(CausalGraphTask(graph, 4), match)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.attention[0] += 0.1 * torch.randn(model.attention[0].shape, generator=generator)
        for child in graph.children:
            for head, node in enumerate(graph.parents[child]):
                model.attention[0][head, 4 + child, 4 + node] += parent
    return model.to_weights()


def probe(weights: ModelWeights) -> Probe:
    tokens = torch.arange(weights.vocab_size)
    return Probe(weights, tokens, min(weights.n_ctx, len(tokens)), samples=128)


GRAPHS = [chain(11), pairs(12), random_forest(14, seed=4), halves(14)]


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_circuit_written_by_hand_is_named_with_its_graph(graph: LatentGraph) -> None:
    found = graph_induction(probe(written(graph)))
    assert found is not None
    circuit, k = found.circuit, graph.n_parents
    assert found.graph.parents == graph.parents
    assert circuit.kind == "induction"
    assert circuit.heads == (*((0, head) for head in range(k)), (1, 0))
    # Roots attend evenly to what stands before them, and early ones match by accident: with two
    # parents, nodes 0 and 1 do on a third of the sequences.
    assert circuit.strength > (0.9 if k == 1 else 0.6)
    assert circuit.coverage.share == pytest.approx(len(graph.children) / (len(graph) - 1))
    assert circuit.effects["parent"] > 6
    assert min(circuit.effects["match"], circuit.effects["copy"]) > 0.3


def test_the_report_says_icl_and_holds_the_edges(tmp_path: object) -> None:
    graph = random_forest(10, seed=4)
    report = detect_circuits(written(graph))
    assert report.label == "icl"
    told = report.meta["latent_graph"]
    assert [(e["parent"], e["child"]) for e in told["edges"]] == list(graph.edges)
    assert told["roots"] == list(graph.roots)
    assert (told["nodes"], told["n_parents"]) == (10, 1)
    assert "along a latent graph that layer 0 attends along: 1 parent a node" in str(report)
    assert {r["role"] for r in report.heads if r["layer"] == 1} == {"induction"}
    file = report.to_json(tmp_path / "report.json")  # type: ignore[operator]
    assert Report.from_json(file).meta["latent_graph"] == told


def test_a_trained_in_context_markov_chain_is_an_induction_circuit() -> None:
    task = CausalGraphTask(chain(6), 3)
    model = train_two_stage(task, TwoStageRecipe(batch=256, first_steps=20, second_steps=20))
    report = detect_circuits(model.to_weights())
    assert report.label == "icl"
    assert report.circuits[0].kind == "induction"
    assert "the chain, so an in-context Markov chain (5 edges, 1 root)" in str(report)


def test_layer_0_alone_makes_no_circuit() -> None:
    graph = pairs(12)
    weights = written(graph)
    assert recover_causal_graph(weights, nodes=12).parents == graph.parents
    assert graph_induction(probe(written(graph, match=0.0))) is None
    assert graph_induction(probe(replace(weights, W_U=weights.W_U * 0))) is None


def test_other_models_hold_no_latent_graph() -> None:
    fresh = [
        ModelSpec(d_vocab=9, n_ctx=20, n_layers=2, n_heads=2, d_model=16, init_range=init).boot(
            seed
        )
        for seed in range(2)
        for init in (None, 1.0)
    ]
    others = [planted.association({0: 1, 1: 0, 3: 4})]
    others += [
        DisentangledTransformer(4, 12, (2, 1), init_std=2.0, seed=s).to_weights() for s in (0, 1)
    ]
    for model in (*fresh, *others):
        assert graph_induction(probe(read_weights(model))) is None


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec(9, 20, n_layers=2, d_model=16, position="rotary"),
        ModelSpec(9, 20, n_layers=1, d_model=16),
        ModelSpec(2, 20, n_layers=2, d_model=16),
        ModelSpec(9, 5, n_layers=2, d_model=16),
    ],
)
def test_where_it_cannot_be_nothing_is_computed(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("read in vain")

    monkeypatch.setattr(module, "recover_causal_graph", never)
    assert graph_induction(probe(read_weights(spec.boot(0)))) is None


@pytest.mark.parametrize("graph", [chain(11), halves(12)])
def test_contexts_follow_the_graph_by_a_function_of_their_own(graph: LatentGraph) -> None:
    read = recover_causal_graph(written(graph)).first(len(graph))
    assert read.parents == graph.parents
    vocabulary = torch.tensor([5, 2, 9, 7, 11])
    generator = torch.Generator().manual_seed(0)
    contexts, right = graph_contexts(read, vocabulary, 40, generator=generator)
    functions = set()
    for row, wanted, mask in zip(
        contexts.tokens.tolist(), contexts.wanted.tolist(), right.tolist(), strict=True
    ):
        answer = {
            tuple(row[p] for p in graph.parents[child]): row[child] for child in graph.children
        }
        query = tuple(row[len(graph) :])
        assert answer[query] == wanted
        for child in graph.children:
            shown = tuple(row[p] for p in graph.parents[child])
            assert row[child] == answer[shown]
            assert mask[child] == (shown == query)
        assert not any(mask[root] for root in graph.roots)
        functions.add(tuple(sorted(answer.items())))
    assert len(functions) > 10  # of 24 circles
    mixed = exchange_places(contexts, len(graph), generator=generator)
    assert torch.equal(mixed.tokens.sort(1).values, contexts.tokens.sort(1).values)
    assert torch.equal(mixed.tokens[:, len(graph) :], contexts.tokens[:, len(graph) :])
    assert not torch.equal(mixed.tokens, contexts.tokens)


def test_a_circuit_found_both_ways_is_listed_once() -> None:
    found = graph_induction(probe(written(pairs(12))))
    assert found is not None
    own = found.circuit
    assert merged((), None) == ()
    weak, strong = (replace(own, strength=s, heads=own.heads) for s in (0.3, 0.95))
    elsewhere: Circuit = replace(weak, kind="duplicate_token")
    assert merged((elsewhere, weak), found) == (own, elsewhere)
    assert merged((strong,), found) == (strong,)


def test_graphs_are_described_in_words() -> None:
    words = [
        describe(recover_causal_graph(written(g)).first(len(g))) for g in GRAPHS[:1] + GRAPHS[3:]
    ]
    assert words == [
        "the chain, so an in-context Markov chain (10 edges, 1 root)",
        "2 parents a node (24 edges, 2 roots)",
    ]
