"""Effects read from weights: what the shares of a port add up to, and what ablation leaves."""

import torch
from test_graph import random_model

from imir_detect import read_weights
from imir_detect.benchmark.graph import all_edges, source_outputs
from imir_detect.benchmark.reading import edge_effects, references
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.lookups import matching_contexts
from imir_detect.weights.forward import attend, finish, project, values


def test_the_shares_of_a_port_add_up_to_what_its_input_brings() -> None:
    # One layer without a norm: the margin's change on taking a whole port's input away is exact.
    weights = read_weights(random_model("plain"))
    generator = torch.Generator().manual_seed(1)
    contexts = matching_contexts(16, 7, torch.arange(9), generator=generator)
    trace = sum_paths(weights, contexts.tokens)
    effects = edge_effects(weights, trace, contexts, None, "mean")
    found = {edge: float(e) for edge, e in zip(all_edges(2, 2), effects, strict=True)}
    x = trace.embedded + trace.written[0].sum(1) + trace.rest[0]
    change = (source_outputs(trace) - references(trace, "mean"))[:3].sum(0)
    ablated = x - change
    wanted = weights.W_U.T[contexts.wanted] - weights.W_U.mean(1)
    for head in range(2):

        def margin(q: torch.Tensor, k: torch.Tensor, head: int = head) -> float:
            query = finish(weights, 1, "Q", project(weights, 1, "Q", q), None)
            key = finish(weights, 1, "K", project(weights, 1, "K", k), None)
            seen = attend(weights, 1, query, key) @ values(weights, 1, x)
            written = seen[:, head] @ weights.W_O[1, head]
            rows = torch.arange(len(contexts))
            return float((written[rows, contexts.query] * wanted).sum(1).mean())

        for port, moved in (("Q", (ablated, x)), ("K", (x, ablated))):
            shares = sum(e for edge, e in found.items() if edge[1:] == ((1, head), port))
            assert abs(shares - (margin(x, x) - margin(*moved))) < 1e-3


def test_positions_alone_bring_nothing_under_mean_ablation() -> None:
    weights = read_weights(random_model("plain"))
    generator = torch.Generator().manual_seed(1)
    contexts = matching_contexts(16, 7, torch.arange(9), generator=generator)
    trace = sum_paths(weights, contexts.tokens)
    same = trace.embedded.mean(0, keepdim=True).expand_as(trace.embedded)
    for ablation in ("mean", "resample"):
        change = same - references(type(trace)(**{**vars(trace), "embedded": same}), ablation)[0]
        assert float(change.abs().max()) < 1e-12
    assert float(references(trace, "zero").abs().max()) == 0.0
