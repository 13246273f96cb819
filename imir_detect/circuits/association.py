"""In-weights association: the circuit that writes R of the query's token.

The context does not hold the answer; the circuit is judged by how often R's token wins over every
other one, the words of the context that copying heads push up included.
"""

from __future__ import annotations

import torch
from torch import Tensor

from imir_detect._typing import Int
from imir_detect.circuits.attribution import (
    ENOUGH,
    SHARES,
    leading,
    logit_margins,
    value_margins,
)
from imir_detect.circuits.core import Circuit, Coverage, short
from imir_detect.circuits.probe import Probe, answers, best_places, near_best, wins
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.pathsum import (
    EMBED,
    OUTPUT,
    PORTS,
    Edge,
    Node,
    Trace,
    sum_edges,
    sum_paths,
)
from imir_detect.frame.contexts import Contexts, asking_contexts, distinct_tokens
from imir_detect.weights.model import ModelWeights


def find_in_weights(probe: Probe, relation: Relation) -> tuple[Circuit | None, float]:
    """The circuit that writes R of the query's token where the context does not hold the answer,
    and the share of these questions that the whole model answers at the places where it does best.
    """
    weights = probe.weights
    named = relation.named
    if len(named) == 0 or not weights.same_vocabulary or probe.context < 2:
        return None, 0.0
    places, best = _places(probe, relation)
    asked = _ask(probe, relation, stream=6, places=best)
    won = float(answers(weights, sum_paths(weights, asked.tokens), asked).mean())
    seen = _ask(probe, relation, stream=5, places=places)
    trace = sum_paths(weights, seen.tokens)
    right = answers(weights, trace, seen)
    margins = {n: float(m.mean()) for n, m in logit_margins(weights, trace, seen, None).items()}
    edges: set[Edge] = set()
    alone = torch.zeros_like(right)
    for share in SHARES:
        found = _edges(weights, seen, trace, margins, share)
        if not found:
            continue
        answered = answers(weights, sum_edges(weights, seen.tokens, found, trace), seen)
        if not edges or answered.mean() > alone.mean():
            edges, alone = found, answered
        if answered.mean() >= ENOUGH * right.mean():
            break
    if not edges:
        return None, won
    heads = sorted({n for e in edges for n in (e.source, e.target) if not isinstance(n, str)})
    source = "estimated from the extended read-out" if relation.estimated else "given"
    circuit = Circuit(
        kind="in_weights",
        heads=tuple(heads),
        edges=tuple(sorted(edges, key=str)),
        effects={
            "associate": sum(max(0.0, v) for v in margins.values()),
            "associate direct": margins[EMBED],
        },
        strength=min(float(right.mean()), float(alone.mean())),
        coverage=_token_coverage(right, seen, relation, places, probe.context),
        note=f"R {source}: {len(named)} of {weights.vocab_size} tokens",
    )
    return circuit, won


def _edges(
    weights: ModelWeights, seen: Contexts, trace: Trace, margins: dict[Node, float], share: float
) -> set[Edge]:
    """Edges of the writers that bring their share of the margin, and of what they move."""
    writers = leading(margins, share)
    edges: set[Edge] = {Edge(node, OUTPUT, "out") for node in writers}
    for head in (node for node in writers if not isinstance(node, str)):
        values = value_margins(weights, trace, seen, head, seen.query)
        edges |= {Edge(node, head, "V") for node in leading(values, share)}
    heads = {n for e in edges for n in (e.source, e.target) if not isinstance(n, str)}
    # What one of the circuit's heads writes, the later ones see: it moves their attention too.
    for head in heads:
        earlier: list[Node] = [EMBED, *(h for h in heads if h[0] < head[0])]
        edges |= {Edge(source, head, port) for source in earlier for port in PORTS}
    return edges


def _ask(probe: Probe, relation: Relation, *, stream: int, places: Tensor) -> Contexts:
    """Random contexts that end in named tokens, each token as often as the next."""
    generator = probe.generator(stream)
    named = relation.named
    order = torch.randperm(len(named), generator=generator)
    queries = named[order].repeat(-(-probe.samples // len(named)))[: probe.samples]
    return asking_contexts(
        queries,
        relation.partner[queries],
        probe.context,
        probe.vocabulary,
        places=places,
        generator=generator,
    )


def _places(
    probe: Probe, relation: Relation
) -> tuple[Int[Tensor, " places"], Int[Tensor, " best"]]:
    """Query positions at which the association comes out nearly as often as at the best one, and
    those at which it comes out hardly less often.

    In a random context every place is a query: attention is causal, and nothing repeats. Places
    whose token has no partner, or has it before itself, say nothing.
    """
    weights, length = probe.weights, probe.context
    tokens = distinct_tokens(
        probe.samples // 2, length, probe.vocabulary, generator=probe.generator(4)
    )
    partner = relation.partner[tokens]
    shown = (partner[:, :, None] == tokens[:, None, :]).tril().any(-1)
    row, place = ((partner >= 0) & ~shown).nonzero().T
    right = wins(weights, sum_paths(weights, tokens).final[row, place], partner[row, place])
    kept = near_best(right, place, place >= 1, length)
    if not kept.any():
        return torch.arange(1, length), torch.arange(1, length)
    return kept.nonzero()[:, 0], best_places(right, place, kept, length)


def _token_coverage(
    right: Tensor, seen: Contexts, relation: Relation, places: Tensor, length: int
) -> Coverage:
    """Share of the named tokens that come out right more often than not."""
    query = seen.tokens[seen.rows, seen.query]
    size = len(relation.partner)
    total = torch.zeros(size, dtype=right.dtype).index_add_(0, query, right)
    count = torch.bincount(query, minlength=size)
    asked = count > 0
    held = asked & (total > 0.5 * count)
    exceptions = []
    lost = (asked & ~held).nonzero()[:, 0].tolist()
    if lost:
        exceptions.append("tokens " + short(lost))
    left_out = sorted(set(range(1, length)) - set(places.tolist()))
    if left_out:
        exceptions.append("queries at positions " + short(left_out))
    return Coverage(float(held.sum()) / float(asked.sum()), "tokens", tuple(exceptions))
