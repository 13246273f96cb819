"""The patched model and the attribution on it: laws, oracles, and literal loops."""

from typing import Any

import pytest
import torch

from imir_detect import read_weights
from imir_detect.benchmark.attribution import edge_scores, residuals
from imir_detect.benchmark.graph import PatchedModel, all_edges, heads_output, normed
from imir_detect.benchmark.methods.eap_ig import activations_scores, inputs_scores
from imir_detect.benchmark.prompts import Prompts, draw_prompts
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.errors import InvalidArgumentError, UnsupportedModelError
from imir_detect.models.planted_truth import ABLATIONS
from imir_detect.tasks import make_task
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.run import run_logits

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "layernorm": {"norm": "LN"},
    "grouped": {"norm": "RMS", "n_heads": 4, "n_kv_heads": 2},
    "rotary": {"position": "rotary", "norm": "LN"},
}


def random_model(name: str) -> Any:
    settings = {"n_heads": 2, "d_model": 16, "d_head": 4, "init_range": 0.5, **SHAPES[name]}
    return ModelSpec(9, 7, **settings).boot(seed=3)


def random_prompts(n: int = 6) -> Prompts:
    g = torch.Generator().manual_seed(0)
    tokens, corrupt = torch.randint(9, (2, n, 7), generator=g)
    query = torch.randint(3, 7, (n,), generator=g)
    answer, wrong = torch.rand(n, 9, generator=g).argsort(1)[:, :2].T
    return Prompts(tokens, corrupt, query, answer, wrong)


@pytest.fixture(params=SHAPES)
def model(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param)


def test_with_every_edge_it_is_the_model(model: Any) -> None:
    prompts = random_prompts()
    logits = prompts.asked(run_logits(model, prompts.tokens))
    logits = logits - logits.mean(-1, keepdim=True)
    for ablation in ABLATIONS:
        found = PatchedModel(read_weights(model), prompts, ablation)
        assert torch.allclose(found.run(torch.ones(len(found.edges))), logits, atol=1e-5)
        assert torch.allclose(found.full_logits, logits, atol=1e-5)


def test_with_no_edge_resample_gives_the_corrupt_run(model: Any) -> None:
    prompts = random_prompts()
    found = PatchedModel(read_weights(model), prompts, "resample")
    logits = prompts.asked(run_logits(model, prompts.corrupt))
    assert torch.allclose(found.empty_logits, logits - logits.mean(-1, keepdim=True), atol=1e-5)


def test_starting_from_a_later_layer_changes_nothing_below_it() -> None:
    found = PatchedModel(read_weights(random_model("layernorm")), random_prompts(), "mean")
    keep = torch.ones(len(found.edges))
    index = found.edges.index(((0, 1), (1, 0), "K"))
    keep[index] = 0.0
    assert torch.allclose(found.run(keep), found.run(keep, first=1))


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_attribution_is_the_slope_in_every_edges_mask(model: Any, ablation: Any) -> None:
    # Two derivations of one number: through the layers by hand, and autograd through all masks.
    found = PatchedModel(read_weights(model), random_prompts(), ablation)
    keep = torch.ones(len(found.edges), dtype=torch.float64, requires_grad=True)
    metric = found.prompts.logit_diff(found.run(keep)).mean()
    (slope,) = torch.autograd.grad(metric, keep)
    change = found.clean - found.reference
    streams, prompts = residuals(found.trace), found.prompts
    scores = edge_scores(found.weights, streams, change, prompts, prompts.logit_diff)
    assert torch.allclose(scores, slope, atol=1e-10)


def test_integrated_gradients_of_one_step_are_plain_attribution(model: Any) -> None:
    found = PatchedModel(read_weights(model), random_prompts(), "resample")
    change, prompts = found.clean - found.reference, found.prompts
    plain = edge_scores(found.weights, residuals(found.trace), change, prompts, prompts.logit_diff)
    assert torch.allclose(inputs_scores(found, 1), plain, atol=1e-10)
    assert torch.allclose(activations_scores(found, 1), plain, atol=1e-10)


def test_integrated_gradients_over_inputs_match_a_literal_loop() -> None:
    # The literal form: at every step a run of its own from a mixed embedding, every reader's input
    # a leaf of autograd, one edge after the other.
    found = PatchedModel(read_weights(random_model("layernorm")), random_prompts(), "resample")
    w, prompts, steps = found.weights, found.prompts, 3
    total = torch.zeros(len(found.edges), dtype=torch.float64)
    for k in range(1, steps + 1):
        start = found.reference[0] + k / steps * (found.clean[0] - found.reference[0])
        mixed = PatchedModel(w, prompts, "zero")
        mixed.clean = torch.cat([start[None], torch.zeros_like(found.clean[1:])])
        outputs = mixed.clean[:1]
        edges_of_layer = []
        for layer in range(w.n_layers):
            size = w.n_heads * 3 * len(outputs)
            edges_of_layer.append(size)
            outputs = torch.cat([outputs, mixed.layer(layer, outputs, torch.ones(size))])
        leaves = torch.zeros(len(found.edges), *start.shape, dtype=torch.float64)
        leaves.requires_grad_()
        x, at = [start], 0
        for layer, size in enumerate(edges_of_layer):
            own = leaves[at : at + size].view(w.n_heads, 3, len(x), *start.shape).sum(2)
            inputs = sum(x) + mixed._bias[layer] + own
            written = heads_output(w, layer, *normed(w, inputs, layer).unbind(1))
            x += list(written)
            at += size
        final = sum(x) + mixed._bias[-1] + leaves[at:].sum(0)
        logits = prompts.asked(normed(w, final, w.n_layers)) @ w.W_U + w.b_U
        (slope,) = torch.autograd.grad(prompts.logit_diff(logits).mean(), leaves)
        order = {source: i for i, source in enumerate(["embed", *w.heads])}
        for index, edge in enumerate(found.edges):
            source = order[edge.source]
            change = found.clean[source] - found.reference[source]
            total[index] += (change * slope[index]).sum()
    assert torch.allclose(inputs_scores(found, steps), total / steps, atol=1e-10)


def test_edges_are_counted_as_in_the_field() -> None:
    assert [len(all_edges(n, h)) for n, h in ((1, 1), (2, 1), (2, 2), (3, 4))] == [5, 12, 29, 193]
    assert len(set(all_edges(3, 4))) == 193


def test_models_with_mlps_are_declined_by_name() -> None:
    spec = ModelSpec(9, 7, d_model=16, d_mlp=8)
    with pytest.raises(UnsupportedModelError, match="a model with MLPs"):
        PatchedModel(read_weights(spec.boot(seed=0)), random_prompts(), "zero")


def test_tasks_with_positions_of_their_own_are_declined() -> None:
    task = make_task("recall", offsets="random", positions=64)
    with pytest.raises(InvalidArgumentError, match="consecutive offsets"):
        draw_prompts(task, 4, seed=0)


def test_the_last_question_is_asked_and_wrong_is_never_right() -> None:
    task = make_task("recall", n_blocks=3, n_common=8, n_rare=0, rare_frequency=0.0)
    prompts = draw_prompts(task, 200, seed=0)
    assert (prompts.query == 6).all()
    assert (prompts.answer != prompts.wrong).all()
    assert len(prompts[:3]) == 3


def test_a_trace_gives_the_streams_that_it_was_made_of() -> None:
    weights = read_weights(random_model("plain"))
    trace = sum_paths(weights, random_prompts().tokens)
    assert torch.allclose(residuals(trace)[-1] * trace.inverse_rms[-1], trace.final)
