"""Training on small graphs: what is learned is read back, and measured against its floors."""

from __future__ import annotations

import pytest
import torch

from imir_detect.circuits.causal_graph import recover_causal_graph
from imir_detect.errors import InvalidArgumentError
from imir_detect.models.disentangled import DisentangledTransformer
from imir_detect.models.disentangled_mlp import AdditiveTransformer
from imir_detect.tasks.causal_graph import CausalGraphTask
from imir_detect.tasks.latent_graph import chain, halves, pairs
from imir_detect.training.causal import (
    GraphRecipe,
    evaluate_on_graph,
    predict,
    train_lens_on_graph,
    train_on_graph,
)
from imir_detect.training.two_stage import TwoStageRecipe, finish, train_two_stage
from imir_detect.weights.native import ModelSpec


def test_plain_training_learns_the_graph_and_beats_the_circuit() -> None:
    graph = pairs(12)
    task = CausalGraphTask(graph, 3)
    model = DisentangledTransformer(3, task.length, init_std=1e-3, seed=1)
    history = train_on_graph(task, model, GraphRecipe(steps=500, batch=128, rate=1.5))
    assert history[-1]["step"] == 500
    assert history[-1]["loss"] < history[0]["loss"]
    read = recover_causal_graph(model.to_weights(), nodes=len(graph))
    assert read.parents == graph.parents
    measured = evaluate_on_graph(task, model, n=4096)
    assert measured["near_bayes"] < measured["circuit"]
    assert measured["over_circuit"] < 0.05


def test_two_stages_learn_the_graph_then_the_match() -> None:
    task = CausalGraphTask(chain(7), 3)
    recipe = TwoStageRecipe(batch=1024, first_steps=20, second_steps=60)
    model = train_two_stage(task, recipe)
    read = recover_causal_graph(model.to_weights(), nodes=7)
    assert read.parents == chain(7).parents
    d_0 = model.widths[0]
    match = model.attention[1][0, :3, d_0 : d_0 + 3].detach()
    off_diagonal = match[~torch.eye(3, dtype=torch.bool)]
    assert float(match.diagonal().min()) > recipe.match > float(off_diagonal.max())
    assert torch.equal(model.readout[-3:] * 0, torch.zeros(3, 3))
    measured = evaluate_on_graph(task, model, readout="frequency", eps=recipe.eps, n=4096)
    assert measured["over_circuit"] < 0.3


def test_with_two_parents_every_head_finds_its_own() -> None:
    graph = halves(8)
    task = CausalGraphTask(graph, 3)
    stages = TwoStageRecipe(batch=1024, first_steps=60, first_rate=2.0, second_steps=0)
    model = train_two_stage(task, stages)
    read = recover_causal_graph(model.to_weights(), nodes=len(graph))
    best = {(c.head, c.child): c.parent for c in read.candidates}
    for child in graph.children:
        assert (best[0, child], best[1, child]) == graph.parents[child]
    held = model.attention[0].detach().clone()
    finish(task, model, steps=20)
    assert torch.equal(model.attention[0], held)


def test_training_is_reproducible_and_draws_can_be_the_target() -> None:
    task = CausalGraphTask(chain(4), 2)
    ends = []
    for _ in range(2):
        model = DisentangledTransformer(2, 5, init_std=1e-2)
        recipe = GraphRecipe(steps=5, batch=8, target="sample", optimiser="adam", rate=0.01)
        train_on_graph(task, model, recipe)
        ends.append(model.readout.detach().clone())
    assert torch.equal(*ends)


def test_the_additive_model_trains_with_plain_rows() -> None:
    task = CausalGraphTask(chain(4), 2)
    model = AdditiveTransformer(2, 5, d_model=8, d_mlp=8)
    before = [p.detach().clone() for p in model.parameters()]
    train_on_graph(task, model, GraphRecipe(steps=20, batch=32, rate=0.1, even_rows=0.0))
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with pytest.raises(InvalidArgumentError, match="even_rows needs a model whose positions are"):
        train_on_graph(task, model, GraphRecipe(steps=1))


def test_a_transformer_lens_model_trains_on_whole_rows() -> None:
    task = CausalGraphTask(pairs(4), 2)
    spec = ModelSpec(2, task.length, n_layers=2, n_heads=1, d_model=8)
    one, other = (spec.boot(0) for _ in range(2))
    start = train_lens_on_graph(task, spec.boot(0), steps=1, batch=256)
    losses = [
        train_lens_on_graph(task, model, steps=60, batch=32, rate=0.03) for model in (one, other)
    ]
    assert losses[0] == losses[1] < start
    assert not one.training


def test_predictions_are_laws() -> None:
    model = DisentangledTransformer(3, 4, init_std=0.5)
    tokens = torch.randint(3, (7, 4), generator=torch.Generator().manual_seed(0))
    for predicted in (predict(model, tokens), predict(model, tokens, readout="frequency", eps=0.1)):
        assert float((predicted.sum(-1) - 1).abs().max()) < 1e-12
        assert float(predicted.min()) > 0


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="this recipe cannot run; got steps=0"):
        GraphRecipe(steps=0)
    with pytest.raises(InvalidArgumentError, match="the model does not fit the task; got n_sym"):
        train_on_graph(CausalGraphTask(chain(4)), DisentangledTransformer(3, 9), GraphRecipe())
