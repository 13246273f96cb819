"""Circuits that attend and give no answer of their own.

Heads that attend because a token matches: prefix matching, suppression, duplicate-token heads.
Heads that attend to a fixed place: previous-token heads, offset heads, position-0 sinks. A fixed
distance needs more than a large mean: attention must exceed what rows permuted at random would
give, since among many saturated heads of a fresh model some attend one back by chance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import Bool, HeadIndex
from imir_detect.circuits.attribution import ScoreSplit, composition, logit_margins
from imir_detect.circuits.core import WORKS, Circuit, Coverage, Kind
from imir_detect.circuits.matched import FEWEST, Matched, competitors, coverage_of
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe, at_query, cover, resolution
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, PORTS, Edge
from imir_detect.frame.lookups import INDUCTION, Lookup
from imir_detect.weights.model import ModelWeights

ATTENDS = 0.3  # predicted attention from which a head is said to attend
SINKS = 0.8  # attention to position 0, in all but a few contexts, that makes a sink
FEW = 0.1  # share of places below which a head attends by accident of position
SIGNIFICANT = 4.5  # z of attention to a fixed place against permuted rows
OFFSETS = (2, 3, 4)


def matching_circuits(
    probe: Probe, first: Matched, second: Matched, taken: set[HeadIndex]
) -> list[Circuit]:
    """Heads that attend because a token matches, and that no answering circuit has `taken`.

    Behind the earlier copy: suppression where they push the attended token down, else prefix
    matching. To the copy itself (looked for at offset 1 only): duplicate-token heads.
    """
    found = []
    for head in probe.weights.heads:
        if head not in taken:
            cells = cover(first.lift[head], first.contexts, probe.context)
            seen = second.within(cells)
            if _enough(cells, seen, seen.lift[head]):
                found.append(_behind_copy(probe, seen, head, cells))
        if first.lookup == INDUCTION:
            cells = cover(first.same[head], first.contexts, probe.context)
            cells[:, 0] = False  # position 0 has no predecessor, so a feeder there copies itself
            seen = second.within(cells)
            if _enough(cells, seen, seen.same[head]):
                found.append(_at_copy(probe, seen, head, cells))
    return found


def _enough(cells: Bool[Tensor, "pos pos"], seen: Matched, lift: Tensor) -> bool:
    """Whether a head attends, on contexts drawn anew, at more than a few chosen places."""
    share = coverage_of(cells, len(cells), seen.lookup).share
    return share >= FEW and len(seen.contexts) >= FEWEST and float(lift.mean()) >= ATTENDS


def _behind_copy(
    probe: Probe, seen: Matched, head: HeadIndex, cells: Bool[Tensor, "pos pos"]
) -> Circuit:
    weights = probe.weights
    kind: Kind = "prefix_match"
    note = "attends like an induction head and copies nothing to the logits"
    strength = float(seen.lift[head].mean())
    edges, effects = _edges_into(weights, seen, head, seen.target)
    if weights.same_vocabulary:
        pushed = _pushed_down(probe, seen, head)
        if pushed > WORKS:
            kind, strength = "suppression", pushed
            note = "attends like an induction head and pushes the attended token down"
            edges.add(Edge(head, OUTPUT, "out"))
            margins = logit_margins(weights, seen.trace, seen.contexts, competitors(seen))
            effects["copy"] = float(margins[head].mean())
    if seen.lookup != INDUCTION:
        note += f"; {seen.lookup}"
    return _circuit(kind, edges, effects, strength, cells, seen.lookup, note)


def _at_copy(
    probe: Probe, seen: Matched, head: HeadIndex, cells: Bool[Tensor, "pos pos"]
) -> Circuit:
    edges, effects = _edges_into(probe.weights, seen, head, seen.contexts.match)
    # The query's own place matches as well as the copy does: what stays there is no failure.
    layer, index = head
    query = seen.contexts.query
    own = seen.trace.attention[layer][seen.contexts.rows, index, query, query]
    strength = float((seen.same[head] / (1 - own).clamp(min=1e-9)).clamp(max=1).mean())
    note = "of the attention that leaves the query's own place"
    return _circuit("duplicate_token", edges, effects, max(0.0, strength), cells, seen.lookup, note)


def _edges_into(
    weights: ModelWeights, seen: Matched, head: HeadIndex, target: Tensor
) -> tuple[set[Edge], dict[str, float]]:
    """Query and key edges of a matching head, and the effect of its match."""
    split = ScoreSplit(weights, seen.trace, seen.contexts, head, target)
    edges = composition(split, head)
    for node in {head, *(e.source for e in edges)}:
        edges |= {Edge(EMBED, node, port) for port in PORTS}
    return edges, {"match": split.total()}


def _circuit(
    kind: Kind,
    edges: set[Edge],
    effects: dict[str, float],
    strength: float,
    cells: Tensor,
    lookup: Lookup,
    note: str,
) -> Circuit:
    heads = {n for e in edges for n in (e.source, e.target) if not isinstance(n, str)}
    return Circuit(
        kind=kind,
        heads=tuple(sorted(heads)),
        edges=tuple(sorted(edges, key=str)),
        effects=effects,
        strength=min(1.0, strength),
        coverage=coverage_of(cells, len(cells), lookup),
        note=note,
    )


def _pushed_down(probe: Probe, seen: Matched, head: HeadIndex) -> float:
    """Share of contexts in which the head's own output puts the attended token's logit lowest."""
    layer, index = head
    written = at_query(seen.trace.written[layer][:, index], seen.contexts)
    logits = written @ probe.weights.W_U
    own = logits.gather(1, seen.contexts.wanted[:, None])[:, 0]
    # What is not written at all stands as low as most tokens do.
    below = logits.median(1).values - own > resolution(probe.weights, written)
    return float(((own <= logits.amin(1)) & below).double().mean())


def distances(context: int) -> list[tuple[int, float]]:
    """How many back is tried, and the attention that it takes: the further back, the more places
    are tried and the fewer queries see them."""
    near = [(j, ATTENDS) for j in (1, *OFFSETS) if j < max(context - 1, 2)]
    return near + [(j, SINKS) for j in range(max(OFFSETS) + 1, context - FEWEST)]


def fixed_place_circuits(probe: Probe, patterns: Patterns[Any]) -> list[Circuit]:
    """Single heads that attend to a fixed place: one back, further back, or position 0."""
    if probe.context < 4:
        return []
    found = []
    tried = distances(probe.context)
    for head in probe.weights.heads:
        measured = patterns.backs(head, [offset for offset, _ in tried])
        for (offset, bar), (attention, z) in zip(tried, measured, strict=True):
            if attention > bar and z > SIGNIFICANT:
                kind: Kind = "previous_token" if offset == 1 else "offset"
                found.append(_at_fixed_place(patterns, head, kind, attention, offset))
        if (attention := patterns.to_first(head)) > SINKS:
            found.append(_at_fixed_place(patterns, head, "position_sink", attention, 0))
    return found


def _at_fixed_place(
    patterns: Patterns[Any], head: HeadIndex, kind: Kind, attention: float, offset: int
) -> Circuit:
    pattern = patterns.mean(head)
    query = torch.arange(max(offset + 1, 2), len(pattern))
    key = torch.zeros_like(query) if kind == "position_sink" else query - offset
    held = pattern[query, key] > 0.5
    note = f"attends {offset} back" if kind == "offset" else ""
    return Circuit(
        kind=kind,
        heads=(head,),
        edges=tuple(Edge(EMBED, head, port) for port in PORTS),
        effects={},
        strength=min(1.0, attention),
        coverage=Coverage(float(held.double().mean()), "positions"),
        note=note,
    )
