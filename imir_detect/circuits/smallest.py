"""The smallest set of paths by which a model answers a lookup.

Candidates grow: what brings the largest shares, split exactly over sources, then more of it; where
none of these answers nearly as often as the whole model, all paths, from which heads and edges are
taken away as long as the answers stay. The last is for mechanisms of several steps, which no split
of one step shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torch import Tensor

from imir_detect._typing import HeadIndex
from imir_detect.circuits.attribution import (
    ENOUGH,
    SHARES,
    ScoreSplit,
    composition,
    leading,
    logit_margins,
    value_margins,
)
from imir_detect.circuits.matched import Matched, competitors
from imir_detect.circuits.probe import Probe, answers
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, PORTS, Edge, Node, sum_edges

LOOKS = 0.3  # attention to the copy from which a head is said to look at it
SHORT = 0.8  # of the whole model's answers: what falls short of it is looked for among all paths
MOST_HEADS, MOST_EDGES = 24, 60  # up to which single heads and edges are taken away


def smallest_that_answers(
    probe: Probe, seen: Matched
) -> tuple[dict[HeadIndex, float], set[Edge], float] | None:
    """Copiers with their nats, edges, and strength: of the first candidate by which the circuit
    alone answers nearly as often as the whole model, else of the one that answers most often."""
    weights, best = probe.weights, None
    full = float(seen.right.mean())
    for copies, edges in _candidates(probe, seen):
        trace = sum_edges(weights, seen.contexts.tokens, edges, seen.trace)
        alone = float(answers(weights, trace, seen.contexts).mean())
        if best is None or alone > best[2]:
            best = copies, edges, alone
        if alone >= ENOUGH * full:
            break
    if best is None or best[2] < SHORT * full:
        best = _irreducible(probe, seen, full) or best
    # Answers that come just as often without the match (a model that copies from a fixed place)
    # are not the circuit's: what the match adds must be half of them, or all where the control's
    # answer is another token.
    due = (1 + seen.lookup.plain) * max(0.0, float(seen.answer_lift.mean()))
    return None if best is None else (best[0], best[1], min(best[2], full, due))


def _candidates(probe: Probe, seen: Matched) -> Iterator[tuple[dict[HeadIndex, float], set[Edge]]]:
    """Copiers and edges, the smallest circuit first: of each of `SHARES`, what the copiers read,
    then all that the circuit's heads read of its earlier ones (feeders have feeders, too)."""
    for share in SHARES:
        copies = _copiers(probe, seen, share)
        if copies:
            edges = set().union(*(_edges_into(probe, seen, copier, share) for copier in copies))
            heads = {n for e in edges for n in (e.source, e.target) if not isinstance(n, str)}
            edges |= {Edge(EMBED, head, port) for head in heads for port in PORTS}
            yield copies, edges
            within = [(a, b) for a in heads for b in heads if a[0] < b[0]]
            yield copies, edges | {Edge(a, b, port) for a, b in within for port in PORTS}


def _irreducible(
    probe: Probe, seen: Matched, full: float
) -> tuple[dict[HeadIndex, float], set[Edge], float] | None:
    """All paths through heads (and the direct one, where these do not answer alone), less every
    head and then every edge without which the answers stay; None where they are too many to be
    tried one by one."""
    weights = probe.weights
    heads = set(weights.heads)
    if len(heads) > MOST_HEADS:
        return None

    def alone(edges: set[Edge]) -> float:
        trace = sum_edges(weights, seen.contexts.tokens, edges, seen.trace)
        return float(answers(weights, trace, seen.contexts).mean())

    direct: set[Edge] = set()
    if alone(_all_edges(heads)) < ENOUGH * full:
        direct = {Edge(EMBED, OUTPUT, "out")}
    if alone(_all_edges(heads) | direct) < ENOUGH * full:
        return None
    for head in sorted(heads, reverse=True):
        if alone(_all_edges(heads - {head}) | direct) >= ENOUGH * full:
            heads = heads - {head}
    edges = _all_edges(heads) | direct
    between = sorted((e for e in edges if e.source != EMBED), key=str)
    for edge in between if len(between) <= MOST_EDGES else []:
        if alone(edges - {edge}) >= ENOUGH * full:
            edges = edges - {edge}
    margins = logit_margins(weights, seen.trace, seen.contexts, competitors(seen))
    ends = [e.source for e in edges if e.target == OUTPUT and e.source != EMBED]
    total = sum(float(margins[end].mean()) for end in ends)
    lookers = [head for head in sorted(heads) if float(seen.attends[head].mean()) > LOOKS]
    # Where none looks at the wanted place (another copy of that token serves as well), those that
    # write the answer stand for it.
    copiers = lookers or [end for end in sorted(ends, key=str) if not isinstance(end, str)]
    copies = dict.fromkeys(copiers, total / max(1, len(copiers)))
    return (copies, edges, alone(edges)) if copiers and total > 0 else None


def _all_edges(heads: Collection[HeadIndex]) -> set[Edge]:
    """Every path from the embedding to the output through these heads, but the direct one."""
    edges = {Edge(a, b, port) for a in heads for b in heads if a[0] < b[0] for port in PORTS}
    edges |= {Edge(EMBED, head, port) for head in heads for port in PORTS}
    return edges | {Edge(head, OUTPUT, "out") for head in heads}


def _copiers(probe: Probe, seen: Matched, share: float) -> dict[HeadIndex, float]:
    """Heads that attend by the match and bring their share to the answer's margin, in nats. Heads
    that clearly look at the answer need only the least of `SHARES`: they do the same work."""
    margins = logit_margins(probe.weights, seen.trace, seen.contexts, competitors(seen))
    means: dict[Node, float] = {
        node: float(margin.mean()) for node, margin in margins.items() if node != EMBED
    }
    much = leading(means, share)
    return {
        node: means[node]
        for node in leading(means, SHARES[-1])
        if not isinstance(node, str)
        and float(seen.attends[node].mean()) > (share / 2 if node in much else LOOKS)
    }


def _edges_into(probe: Probe, seen: Matched, copier: HeadIndex, share: float) -> set[Edge]:
    """The edge to the output, and K, Q and V edges from earlier heads that bring their share."""
    last = seen.lookup.hops - 1
    edges = _matched_by(probe, seen, copier, seen.looked, last, share)
    values = value_margins(probe.weights, seen.trace, seen.contexts, copier, seen.looked)
    edges |= {Edge(node, copier, "V") for node in leading(values, share) if node != EMBED}
    return edges | {Edge(copier, OUTPUT, "out")}


def _matched_by(
    probe: Probe, seen: Matched, head: HeadIndex, target: Tensor, hop: int, share: float
) -> set[Edge]:
    """K and Q edges into a head that looks at `target`, where `hop` matches come before its own:
    a head that its query reads, and that looks where one of these leads, is followed in turn."""
    edges = composition(
        ScoreSplit(probe.weights, seen.trace, seen.contexts, head, target), head, share
    )
    rows, query = seen.contexts.rows, seen.contexts.query
    for source in [e.source for e in edges if e.port == "Q"]:
        if isinstance(source, str):
            continue
        layer, index = source
        for earlier in range(hop - 1, -1, -1):
            place = seen.reached(earlier)
            if float(seen.trace.attention[layer][rows, index, query, place].mean()) >= LOOKS:
                edges |= _matched_by(probe, seen, source, place, earlier, share)
                break
    return edges
