"""Paths summed are the model; edges summed are parts of it; sources add up."""

from typing import Any

import pytest
import torch

from imir_detect.circuits.attribution import logit_margins, sources
from imir_detect.circuits.probe import at_query
from imir_detect.coordinates.pathsum import (
    EMBED,
    OUTPUT,
    PORTS,
    Edge,
    name_of,
    sum_edges,
    sum_paths,
)
from imir_detect.frame.lookups import matching_contexts
from imir_detect.weights.forward import causal_softmax, inverse_rms, mlp
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights


def random_model(norm: Any, mlp: int) -> Any:
    model = ModelSpec(
        11, 7, n_layers=3, n_heads=2, d_model=12, d_mlp=mlp, norm=norm, init_range=0.4
    ).boot(seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and gains too
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("norm", [None, "LN", "RMS", "LNPre", "RMSPre"])
@pytest.mark.parametrize("width", [0, 10])
def test_summed_paths_give_the_models_own_logits(norm: Any, width: int) -> None:
    model = random_model(norm, width)
    tokens = torch.randint(11, (5, 7), generator=torch.Generator().manual_seed(1))
    weights = read_weights(model)
    logits = sum_paths(weights, tokens).final @ weights.W_U + weights.b_U
    with torch.no_grad():
        own = model(tokens).double()
    own = own - own.mean(-1, keepdim=True)  # reading centres logits over the vocabulary
    assert float((logits - own).abs().max()) < 2e-4 * float(own.abs().max())


def every_edge(weights: ModelWeights) -> list[Edge]:
    heads = list(weights.heads)
    edges = [
        Edge(source, head, port)
        for head in heads
        for source in (EMBED, *(h for h in heads if h[0] < head[0]))
        for port in PORTS
    ]
    return [*edges, Edge(EMBED, OUTPUT, "out"), *(Edge(h, OUTPUT, "out") for h in heads)]


@pytest.mark.parametrize("norm", [None, "LN", "RMS"])
@pytest.mark.parametrize("width", [0, 10])
def test_all_edges_together_are_all_paths(norm: Any, width: int) -> None:
    weights = read_weights(random_model(norm, width))
    tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(2))
    full = sum_paths(weights, tokens)
    parts = sum_edges(weights, tokens, every_edge(weights), full)
    assert torch.allclose(parts.final, full.final, atol=1e-10)
    for a, b in zip(parts.attention, full.attention, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def test_a_missing_edge_is_missing() -> None:
    weights = read_weights(random_model(None, 0))
    tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(2))
    full = sum_paths(weights, tokens)
    edges = [e for e in every_edge(weights) if e != Edge((0, 0), (2, 1), "K")]
    parts = sum_edges(weights, tokens, edges, full)
    assert torch.allclose(parts.attention[2][:, 0], full.attention[2][:, 0], atol=1e-10)
    assert not torch.allclose(parts.attention[2][:, 1], full.attention[2][:, 1], atol=1e-3)


@pytest.mark.parametrize("norm", [None, "RMS"])
def test_an_mlp_reads_what_the_circuits_heads_wrote_and_no_other_head(norm: Any) -> None:
    weights = read_weights(random_model(norm, 10))
    tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(2))
    full = sum_paths(weights, tokens)
    edges = [Edge(EMBED, OUTPUT, "out"), Edge((0, 1), OUTPUT, "out")]
    edges += [Edge(EMBED, (0, 1), port) for port in PORTS]
    # By hand: the residual holds the embedding, biases, one head, and what the MLPs make of these.
    residual = full.embedded + full.written[0][:, 1]
    for layer in range(3):
        residual = residual + weights.b_O[layer]
        inner = full.before_mlp[layer]
        assert inner is not None
        residual = residual + mlp(weights, layer, residual, inverse_rms(weights, inner, layer))
    found = sum_edges(weights, tokens, edges, full).final
    assert torch.allclose(found, residual * full.inverse_rms[-1], atol=1e-10)


def test_a_heads_margin_is_its_slope_through_the_mlps_and_margins_add_up() -> None:
    weights = read_weights(random_model("RMS", 10))
    contexts = matching_contexts(
        16, 7, torch.arange(11), generator=torch.Generator().manual_seed(5)
    )
    trace = sum_paths(weights, contexts.tokens)
    margins = logit_margins(weights, trace, contexts, None)
    wanted = weights.W_U.T[contexts.wanted]
    logit = (at_query(trace.final, contexts) * wanted).sum(-1)
    assert torch.allclose(sum(margins.values(), torch.tensor(0.0)), logit, atol=1e-10)
    # A little more of a head of layer 1, norms and later attention held fixed.
    more = 1e-6 * at_query(trace.written[1][:, 1], contexts)
    for layer in (1, 2):
        inner = trace.before_mlp[layer]
        assert inner is not None
        rows = at_query(inner, contexts)
        factor = inverse_rms(weights, rows, layer)
        more = more + mlp(weights, layer, rows + more, factor) - mlp(weights, layer, rows, factor)
    gained = (more * at_query(trace.inverse_rms[-1], contexts) * wanted).sum(-1) / 1e-6
    assert torch.allclose(margins[(1, 1)], gained, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [0, 10])
def test_sources_add_up_to_the_residual(width: int) -> None:
    weights = read_weights(random_model("RMS", width))
    tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(2))
    trace = sum_paths(weights, tokens)
    total = sum(sources(trace, weights.n_layers).values(), torch.tensor(0.0))
    assert torch.allclose(total * trace.inverse_rms[-1], trace.final, atol=1e-10)


def test_attention_is_causal_and_faint_scores_are_exactly_zero() -> None:
    pattern = causal_softmax(torch.tensor([[[0.0, 9.0], [500.0, 0.0]]], dtype=torch.float64))
    assert torch.equal(pattern, torch.tensor([[[1.0, 0.0], [1.0, 0.0]]], dtype=torch.float64))


def test_selecting_contexts_selects_every_part() -> None:
    weights = read_weights(random_model("LN", 10))
    tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(2))
    keep = torch.tensor([True, False, True, False])
    part, whole = sum_paths(weights, tokens).select(keep), sum_paths(weights, tokens[keep])
    assert torch.allclose(part.final, whole.final, atol=1e-12)
    assert torch.allclose(part.written[2], whole.written[2], atol=1e-12)


def test_nodes_and_edges_have_names() -> None:
    assert name_of((1, 3)) == "L1H3"
    assert str(Edge((0, 1), (1, 0), "K")) == "L0H1 -K-> L1H0"
    assert str(Edge((1, 0), OUTPUT, "out")) == "L1H0 -out-> output"
