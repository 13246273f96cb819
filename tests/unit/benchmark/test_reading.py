"""Effects read from weights: a literal integral as oracle, what the shares of a port add up to, and
what ablation leaves."""

from dataclasses import replace

import pytest
import torch
from test_graph import SHAPES, random_model
from torch import Tensor

from imir_detect import read_weights, shipped_model
from imir_detect.benchmark.attribution import residuals
from imir_detect.benchmark.cases import Question, planted_case
from imir_detect.benchmark.graph import all_edges, source_outputs
from imir_detect.benchmark.methods.imir import own_contexts
from imir_detect.benchmark.reading import edge_effects, reference
from imir_detect.circuits.probe import Probe, answers
from imir_detect.coordinates.pathsum import Trace, sum_paths
from imir_detect.errors import UnsupportedModelError
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import matching_contexts
from imir_detect.models.planted import PlantedSpec
from imir_detect.models.planted_truth import ABLATIONS, Ablation
from imir_detect.weights.attention import Attention
from imir_detect.weights.forward import SIDES, attend, finish, project, qk_factor, values
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec


def literal_effects(
    w: ModelWeights, trace: Trace, contexts: Contexts, ablation: Ablation, steps: int
) -> Tensor:
    """`edge_effects` against the whole vocabulary as its text says it: what is ablated is taken
    from the stream, every reader's slope is differentiated at `steps` midpoints, edge by edge."""
    outputs = source_outputs(trace)
    change = torch.stack([one - reference(one, ablation) for one in outputs])
    at = (contexts.rows, contexts.query)
    gradient = torch.zeros_like(trace.embedded)
    gradient[at] = w.W_U.T[contexts.wanted] - w.W_U.mean(1)
    gradient *= trace.inverse_rms[-1] / len(contexts)
    parts = [torch.stack([(one * gradient).sum() for one in change])]
    for layer in reversed(range(w.n_layers)):
        sources = change[: 1 + layer * w.n_heads]
        factor = trace.inverse_rms[layer]
        x = residuals(trace)[layer] * factor
        ablated = x - sources.sum(0) * factor
        worth = torch.einsum("npd,hkd->nhpk", gradient, w.W_O[layer])
        found, slopes = [], {}
        for side in SIDES:
            rows, start = project(w, layer, side, x), project(w, layer, side, ablated)
            other = SIDES[1 - SIDES.index(side)]
            still = project(w, layer, other, x)
            still = finish(w, layer, other, still, qk_factor(w, layer, still))
            total = torch.zeros_like(rows)
            for step in range(steps):
                leaf = (start + (step + 0.5) / steps * (rows - start)).requires_grad_()
                moved = finish(w, layer, side, leaf, qk_factor(w, layer, rows))
                both = (moved, still) if side == "Q" else (still, moved)
                brought = attend(w, layer, *both) @ values(w, layer, x)
                total += torch.autograd.grad((brought * worth).sum(), leaf)[0] / steps
            W = w.W_Q if side == "Q" else w.W_K
            slopes[side] = torch.einsum("nhpk,hdk->hnpd", total, W[layer])
        slopes["V"] = torch.einsum(
            "nhqp,nhqk,hdk->hnpd", trace.attention[layer], worth, w.W_V[layer]
        )
        for head in range(w.n_heads):
            for port in "QKV":
                slope = slopes[port][head] * factor
                found += [(slope * one).sum() for one in sources]
                gradient = gradient + slope
        parts.insert(0, torch.stack(found))
    return torch.cat(parts)


def contexts_of(weights: ModelWeights) -> tuple[Contexts, Trace]:
    generator = torch.Generator().manual_seed(1)
    contexts = matching_contexts(16, 7, torch.arange(9), generator=generator)
    return contexts, sum_paths(weights, contexts.tokens)


def capped(weights: ModelWeights) -> ModelWeights:
    """With a cap near the size of the scores, and sinks that take a part."""
    sinks = torch.tensor([0.5, -0.5], dtype=torch.float64)
    return replace(weights, attention=(Attention(cap=0.5, sinks=sinks),) * 2)


@pytest.mark.parametrize("shape", [*SHAPES, "capped"])
def test_the_fast_reading_is_the_literal_one(shape: str) -> None:
    weights = read_weights(random_model("layernorm" if shape == "capped" else shape))
    weights = capped(weights) if shape == "capped" else weights
    contexts, trace = contexts_of(weights)
    for ablation in ABLATIONS:
        found = edge_effects(weights, trace, contexts, None, ablation)
        slow = literal_effects(weights, trace, contexts, ablation, steps=40)
        assert float((found - slow).abs().max()) < 5e-3 * float(slow.abs().max())


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_where_attention_saturates_the_rule_is_as_good_as_many_midpoints(
    ablation: Ablation,
) -> None:
    # Planted heads look one back by some thirty nats: each softmax turns over within a small part
    # of the line.
    case = planted_case("hard", PlantedSpec("induction", noise=0.1, distractors=1), ablation)
    probe = Probe(case.weights, torch.arange(case.task.vocab_size), 12, samples=16)
    contexts, trace, _ = own_contexts(probe, case.question)
    found = edge_effects(case.weights, trace, contexts, None, ablation)
    slow = literal_effects(case.weights, trace, contexts, ablation, steps=300)
    assert float((found - slow).abs().max()) < 0.01 * float(slow.abs().max())


def test_the_shares_of_a_port_add_up_to_what_its_input_brings() -> None:
    # One layer without a norm: the margin's change on taking a whole port's input away is exact.
    weights = read_weights(random_model("plain"))
    contexts, trace = contexts_of(weights)
    effects = edge_effects(weights, trace, contexts, None, "mean")
    found = {edge: float(e) for edge, e in zip(all_edges(2, 2), effects, strict=True)}
    x = trace.embedded + trace.written[0].sum(1) + trace.rest[0]
    change = sum(one - reference(one, "mean") for one in source_outputs(trace)[:3])
    ablated = x - change
    wanted = weights.W_U.T[contexts.wanted] - weights.W_U.mean(1)
    for head in range(2):

        def margin(q: Tensor, k: Tensor, head: int = head) -> float:
            query = finish(weights, 1, "Q", project(weights, 1, "Q", q), None)
            key = finish(weights, 1, "K", project(weights, 1, "K", k), None)
            seen = attend(weights, 1, query, key) @ values(weights, 1, x)
            written = seen[:, head] @ weights.W_O[1, head]
            rows = torch.arange(len(contexts))
            return float((written[rows, contexts.query] * wanted).sum(1).mean())

        for port, moved in (("Q", (ablated, x)), ("K", (x, ablated))):
            shares = sum(e for edge, e in found.items() if edge[1:] == ((1, head), port))
            assert abs(shares - (margin(x, x) - margin(*moved))) < 1e-12


def test_what_is_the_same_in_every_context_brings_nothing_under_mean_or_resample() -> None:
    weights = read_weights(random_model("plain"))
    _, trace = contexts_of(weights)
    same = trace.embedded.mean(0, keepdim=True).expand_as(trace.embedded)
    for ablation in ("mean", "resample"):
        assert float((same - reference(same, ablation)).abs().max()) < 1e-12  # type: ignore[arg-type]
    assert float(reference(same, "zero").abs().max()) == 0.0


def test_contexts_stand_where_the_model_answers() -> None:
    case = planted_case("mine", PlantedSpec("induction", seed=5), "zero")
    probe = Probe(case.weights, torch.arange(case.task.vocab_size), 12, samples=16)
    contexts, trace, _ = own_contexts(probe, case.question)
    assert contexts.tokens.shape == trace.embedded.shape[:2] == (16, 12)
    # The shipped model was trained on pairs at even places and answers there alone.
    weights = read_weights(shipped_model("icl"))
    probe = Probe(weights, torch.arange(weights.vocab_size), weights.n_ctx, samples=16)
    contexts, trace, _ = own_contexts(probe, Question("behind"))
    assert 8 <= len(contexts) <= 16
    assert float(answers(weights, trace, contexts).mean()) >= 0.9
    generator = torch.Generator().manual_seed(1)
    anywhere = matching_contexts(64, probe.context, probe.vocabulary, generator=generator)
    right = answers(weights, sum_paths(weights, anywhere.tokens), anywhere)
    assert float(right.mean()) < 0.8


def test_models_without_such_a_graph_are_declined() -> None:
    weights = read_weights(ModelSpec(9, 7, d_model=16, d_mlp=8).boot(seed=0))
    contexts, trace = contexts_of(weights)
    with pytest.raises(UnsupportedModelError, match=r"got a model with MLPs; wanted an attention"):
        edge_effects(weights, trace, contexts, None, "zero")
