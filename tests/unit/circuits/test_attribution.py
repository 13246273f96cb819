"""Splits over sources add up: to the attention that the model shows, and to its own logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from imir_detect.circuits.attribution import (
    ScoreSplit,
    composition,
    leading,
    logit_margins,
    sources,
    value_margins,
)
from imir_detect.circuits.matched import Matched, competitors, coverage_of
from imir_detect.coordinates.pathsum import EMBED, Edge, Trace, sum_paths
from imir_detect.frame.contexts import Contexts
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts
from imir_detect.weights.attention import Attention, QKNorm
from imir_detect.weights.model import ModelWeights
from imir_detect.weights.native import ModelSpec
from imir_detect.weights.read import read_weights

F64 = torch.float64
VOCAB, LENGTH = 11, 7


def random_weights(norm: Any = None, mlp: int = 0, **spec: Any) -> ModelWeights:
    settings = {"n_layers": 3, "n_heads": 2, "d_model": 16, "d_mlp": mlp, "init_range": 0.4, **spec}
    model = ModelSpec(VOCAB, LENGTH, norm=norm, **settings).boot(seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and gains too
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return read_weights(model)


def normed_keys(weights: ModelWeights) -> ModelWeights:
    """The same with a query-key norm in every layer."""
    generator = torch.Generator().manual_seed(5)
    width = weights.W_Q.shape[-1]
    gains = [1 + 0.3 * torch.randn(2, width, generator=generator, dtype=F64) for _ in range(2)]
    kind = Attention(qk_norm=QKNorm(gains[0], gains[1], together=False, eps=1e-6))
    return replace(weights, attention=(kind,) * weights.n_layers)


CASES: dict[str, Any] = {
    "plain": lambda: random_weights(),
    "LN, MLP": lambda: random_weights("LN", 10),
    "RMS, rotary": lambda: random_weights("RMS", position="rotary"),
    "query-key norm": lambda: normed_keys(random_weights()),
}


@pytest.fixture(scope="module", params=CASES)
def seen(request: Any) -> tuple[ModelWeights, Contexts, Trace]:
    weights = CASES[request.param]()
    contexts = matching_contexts(
        9, LENGTH, torch.arange(VOCAB), generator=torch.Generator().manual_seed(1)
    )
    return weights, contexts, sum_paths(weights, contexts.tokens)


def contrast(trace: Trace, contexts: Contexts, head: tuple[int, int], target: Any) -> float:
    """Log-attention at the target less its mean over the other visible places: the softmax's
    denominator cancels, so scores need not be known."""
    total = 0.0
    for n, (q, t) in enumerate(zip(contexts.query.tolist(), target.tolist(), strict=True)):
        row = trace.attention[head[0]][n, head[1], q, : q + 1].log()
        others = [float(row[j]) for j in range(q + 1) if j != t]
        total += float(row[t]) - sum(others) / len(others)
    return total / len(contexts)


def test_terms_of_a_score_add_up_to_what_attention_shows(seen: Any) -> None:
    weights, contexts, trace = seen
    target = contexts.match + 1
    for head in ((2, 1), (1, 0), (0, 1)):
        split = ScoreSplit(weights, trace, contexts, head, target)
        wanted = contrast(trace, contexts, head, target)
        assert split.total() == pytest.approx(wanted, abs=1e-9)
        assert sum(split.by_key().values()) == pytest.approx(wanted, abs=1e-9)
        assert set(split.by_key()) == {EMBED, *(h for h in weights.heads if h[0] < head[0])}


def test_query_terms_add_up_where_there_is_no_query_bias(seen: Any) -> None:
    weights, contexts, _ = seen
    weights = replace(weights, b_Q=torch.zeros_like(weights.b_Q))
    trace = sum_paths(weights, contexts.tokens)
    split = ScoreSplit(weights, trace, contexts, (2, 0), contexts.match)
    assert sum(split.by_query().values()) == pytest.approx(
        contrast(trace, contexts, (2, 0), contexts.match), abs=1e-9
    )


def test_what_a_feeder_carries_from_every_place_adds_up_to_what_it_wrote() -> None:
    """The key at the target, read from one earlier head's output alone, against the query."""
    weights = replace(random_weights(), b_V=None)
    contexts = matching_contexts(
        9, LENGTH, torch.arange(VOCAB), generator=torch.Generator().manual_seed(1)
    )
    trace = sum_paths(weights, contexts.tokens)
    head, feeder, target, rows = (2, 1), (0, 1), contexts.match + 1, torch.arange(9)
    split = ScoreSplit(weights, trace, contexts, head, target)
    found = sum(split.by_key_token(feeder, torch.full((9,), place)) for place in range(LENGTH))
    residual = sum(sources(trace, 2).values(), torch.tensor(0.0))
    query = (residual[rows, contexts.query] @ weights.W_Q[head] + weights.b_Q[head]) / (
        weights.scale[2]
    )
    key = trace.written[0][rows, 1, target] @ weights.W_K[head]
    assert found == pytest.approx(float((query * key).sum(1).mean()), abs=1e-9)


def test_a_feeders_part_is_zero_where_it_does_not_look() -> None:
    weights = replace(random_weights(), b_V=None)
    contexts = matching_contexts(
        9, LENGTH, torch.arange(VOCAB), generator=torch.Generator().manual_seed(1)
    )
    trace = sum_paths(weights, contexts.tokens)
    split = ScoreSplit(weights, trace, contexts, (2, 1), contexts.match)
    assert split.by_key_token((0, 1), contexts.match + 1) == 0.0  # attention is causal


def test_logit_margins_add_up_to_the_models_logits(seen: Any) -> None:
    weights, contexts, trace = seen
    logits = (trace.final @ weights.W_U)[contexts.rows, contexts.query]
    own = logits.gather(1, contexts.wanted[:, None])[:, 0]
    alone = logit_margins(weights, trace, contexts, None)
    assert torch.allclose(sum(alone.values()), own, atol=1e-10)
    rivals = torch.stack([contexts.tokens[:, 0], contexts.tokens[:, 1]], 1)
    against = logit_margins(weights, trace, contexts, rivals)
    assert torch.allclose(sum(against.values()), own - logits.gather(1, rivals).mean(1), atol=1e-10)


def test_value_margins_add_up_to_what_the_head_moves(seen: Any) -> None:
    weights, contexts, trace = seen
    layer, index = head = (2, 1)
    place = contexts.match + 1
    found = value_margins(weights, trace, contexts, head, place)
    residual = sum(sources(trace, layer).values(), torch.tensor(0.0)) * trace.inverse_rms[layer]
    total = 0.0
    for n in range(len(contexts)):
        q, p, wanted = (int(x[n]) for x in (contexts.query, place, contexts.wanted))
        moved = residual[n, p] @ weights.W_V[head] @ weights.W_O[head] @ weights.W_U
        total += float(trace.attention[layer][n, index, q, p] * moved[wanted])
    assert sum(found.values()) == pytest.approx(total / len(contexts), abs=1e-9)


def test_leading_sources_by_hand() -> None:
    terms = {EMBED: 2.0, (0, 0): 7.0, (0, 1): 1.0, (1, 0): 0.9, (1, 1): -5.0}
    # A tenth of the positive total of 10.9 is 1.09; the negative term neither counts nor is kept.
    assert leading(terms) == [(0, 0), EMBED]
    assert leading(terms, 0.09) == [(0, 0), EMBED, (0, 1)]
    assert leading({EMBED: -1.0, (0, 0): 0.0}) == []
    assert leading({(0, 0): 1.0, (0, 1): 9.0}) == [(0, 1), (0, 0)]  # a tenth is enough


def test_composition_names_the_port_that_reads_each_head() -> None:
    class Split:
        def by_key(self) -> dict:
            return {EMBED: 1.0, (0, 0): 5.0, (0, 1): 0.01}

        def by_query(self) -> dict:
            return {EMBED: 5.0, (0, 0): -1.0, (0, 1): 0.6}

    found = composition(Split(), (1, 0))  # type: ignore[arg-type]
    assert found == {Edge((0, 0), (1, 0), "K"), Edge((0, 1), (1, 0), "Q")}
    fewer = composition(Split(), (1, 0), 0.2)  # type: ignore[arg-type]
    assert fewer == {Edge((0, 0), (1, 0), "K")}


# -- contexts with a match -------------------------------------------------------------------------


def by_hand() -> Contexts:
    """[5 6 7 5 8]: the query at 3 repeats position 0, and 6 is wanted."""
    numbers = {"tokens": [[5, 6, 7, 5, 8]], "query": [3], "match": [0], "wanted": [6]}
    return Contexts(**{name: torch.tensor(value) for name, value in numbers.items()})


def test_competitors_are_what_the_query_sees_but_the_answer() -> None:
    contexts = by_hand()
    trace = sum_paths(random_weights(), contexts.tokens)
    one = torch.ones(1, dtype=F64)
    seen = Matched(contexts, trace, {(0, 0): one}, {(0, 0): one}, one, one, INDUCTION)
    # The answer's place and what stands after the query hold the query's own token instead.
    assert competitors(seen).tolist() == [[5, 5, 7, 5, 5]]
    assert seen.target.tolist() == [1]


def test_coverage_names_the_places_left_out() -> None:
    # Length 5, offset 1: pairs (2,0) (3,0) (3,1) (4,0) (4,1) (4,2).
    cells = INDUCTION.cells(5)
    found = coverage_of(cells, 5, INDUCTION)
    assert (found.share, found.exceptions) == (1.0, ())
    cells[:, 0] = False
    found = coverage_of(cells, 5, INDUCTION)
    assert found.share == pytest.approx(3 / 6)
    assert found.exceptions == ("copies at positions 0", "queries at positions 2")
    # Cells that no pair can fill do not count.
    assert coverage_of(torch.ones(5, 5, dtype=torch.bool), 5, INDUCTION).share == 1.0


def test_contexts_in_chosen_cells_keep_all_that_was_seen_of_them() -> None:
    contexts = matching_contexts(
        6, 5, torch.arange(VOCAB), generator=torch.Generator().manual_seed(2)
    )
    trace = sum_paths(random_weights(), contexts.tokens)
    number = torch.arange(6, dtype=F64)
    lifts = {(0, 1): number}, {(0, 1): number + 10}
    seen = Matched(contexts, trace, *lifts, number + 20, number + 30, Lookup(2))
    cells = torch.zeros(5, 5, dtype=torch.bool)
    cells[contexts.query[4], contexts.match[4]] = True
    kept = (contexts.query == contexts.query[4]) & (contexts.match == contexts.match[4])
    part = seen.within(cells)
    assert torch.equal(part.contexts.tokens, contexts.tokens[kept])
    assert torch.equal(part.trace.final, trace.final[kept])
    assert torch.equal(part.lift[(0, 1)], number[kept])
    assert torch.equal(part.same[(0, 1)], number[kept] + 10)
    assert torch.equal(part.answer_lift, number[kept] + 20)
    assert torch.equal(part.right, number[kept] + 30)
    assert torch.equal(part.score, number[kept] + 25)  # the mean of answers and what they gain
    assert part.lookup == Lookup(2)
    assert torch.equal(part.target, part.contexts.match + 2)
