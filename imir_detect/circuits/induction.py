"""In-context circuits that answer: they put the token behind an earlier copy of the query on top.

induction = shift_1 -> match (key read through that head) -> copy (Elhage et al. 2021, Olsson et
al. 2022). Its kin are found by the same search: skip circuits (another offset), pointer induction
(the query reads where a duplicate-token head looked), k-hop (each match is read by the next one's
query), longer prefixes (two tokens must match), and backward retrieval (the wanted token stands
before the copy, whose place a previous-token head has marked with it).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_detect._typing import Bool, HeadIndex, Int
from imir_detect.circuits.attribution import (
    ScoreSplit,
)
from imir_detect.circuits.core import Circuit, Kind
from imir_detect.circuits.matched import FEWEST, Matched, coverage_of, observe
from imir_detect.circuits.probe import Probe, answers, best_rows, cover, lattice
from imir_detect.circuits.smallest import LOOKS, smallest_that_answers
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts

FEWEST_COPIES = 3  # places of copies from which a circuit is one


@dataclass(frozen=True)
class Answering:
    """What comes of asking for the wanted token of a lookup.

    - `circuit`: by which it comes, or None.
    - `wins`: share of the questions that the whole model answers, all contributions summed, at the
      places that count; guesses at words of the context win some, too. `by_match`: the share that
      the match accounts for. Both in [0, 1].
    """

    circuit: Circuit | None
    wins: float
    by_match: float


def ask_for_answers(
    probe: Probe,
    first: Matched,
    asked: Int[Tensor, " asked"] | None,
    fill: Int[Tensor, " fill"] | None = None,
    *,
    stream: int,
) -> Answering:
    """Where, how often and by which circuit the wanted token of a lookup comes out on top.

    Places are chosen on the first contexts; heads, edges and shares come from contexts drawn anew
    at those places: the circuit's at all that are near the best, what the whole model wins at the
    best rows, on the lattice of their columns. A model to which the match brings nothing guesses,
    best where few words compete; what it wins is asked at the last place.
    """
    lookup = first.lookup
    cells = cover(first.score, first.contexts, probe.context)
    cells &= lookup.cells(probe.context)
    if not cells.any():
        return Answering(None, 0.0, 0.0)
    if _few_copies(lookup, cells):
        if lookup != INDUCTION:
            return Answering(None, 0.0, 0.0)
        return Answering(None, _share_won(probe, first, cells, asked, fill, guessing=True), 0.0)
    seen = observe(
        probe, lookup, asked, stream=40 + stream, n=probe.samples, cells=cells, fill=fill
    )
    brings = len(seen.contexts) >= FEWEST and _more_than_chance(seen.answer_lift)
    if lookup == INDUCTION:
        wins = _share_won(probe, first, cells, asked, fill, guessing=not brings)
    else:
        wins = float(seen.right.mean()) if len(seen.contexts) else 0.0
    if not brings:
        return Answering(None, wins, 0.0)
    by_match = min(wins, (1 + lookup.plain) * max(0.0, float(seen.answer_lift.mean())))
    return Answering(_answering_circuit(probe, seen, cells), wins, by_match)


def _few_copies(lookup: Lookup, cells: Bool[Tensor, "pos pos"]) -> bool:
    """Whether the copies may stand at one or two places only, of many: an accident of position."""
    possible = int(lookup.cells(len(cells)).any(0).sum())
    return int(cells.any(0).sum()) < min(FEWEST_COPIES, (possible + 1) // 2)


def _share_won(
    probe: Probe,
    first: Matched,
    cells: Bool[Tensor, "pos pos"],
    asked: Int[Tensor, " asked"] | None,
    fill: Int[Tensor, " fill"] | None,
    *,
    guessing: bool,
) -> float:
    """Share of fresh questions that the whole model answers, at the best rows of these cells (at
    the last one, where it is guessing) and on the lattice of their columns."""
    meant = lattice(cells)
    if guessing:
        meant = meant.any(0) & (torch.arange(probe.context) == probe.context - 1)[:, None]
    meant = meant & first.lookup.cells(probe.context)
    if not guessing:
        meant = best_rows(first.score, first.contexts, meant)
    contexts = matching_contexts(
        probe.samples,
        probe.context,
        probe.vocabulary if fill is None else fill,
        first.lookup,
        asked=asked,
        cells=meant if meant.any() else cells,
        generator=probe.generator(61),
    )
    trace = sum_paths(probe.weights, contexts.tokens)
    return float(answers(probe.weights, trace, contexts).mean())


def _answering_circuit(
    probe: Probe, seen: Matched, cells: Bool[Tensor, "pos pos"]
) -> Circuit | None:
    """The circuit that puts the wanted token on top, or None."""
    weights, lookup = probe.weights, seen.lookup
    chosen = smallest_that_answers(probe, seen)
    if chosen is None:
        return None
    copies, edges, strength = chosen
    match = 0.0
    by_kind: dict[Kind, float] = {"induction": 0.0, "pointer_induction": 0.0}
    feeders: dict[HeadIndex, float] = {}
    for copier, nats in copies.items():
        split = ScoreSplit(weights, seen.trace, seen.contexts, copier, seen.looked)
        match += split.total() * nats
        for kind, terms in _mechanism(split, seen).items():
            for feeder, term in terms.items():
                by_kind[kind] += term * nats
                feeders[feeder] = feeders.get(feeder, 0.0) + term * nats
    heads = sorted({n for e in edges for n in (e.source, e.target) if not isinstance(n, str)})
    how = max(by_kind, key=lambda k: by_kind[k])
    notes = [] if lookup == INDUCTION else [str(lookup)]
    if lookup.offset > 0 and by_kind[how] < match / 2:
        notes.append("how the match is made is not on the frame: no shift or pointer explains it")
    unit, place = ("shift", seen.target) if how == "induction" else ("look", seen.contexts.query)
    effects = {unit: _look(seen, feeders, place)} if lookup.offset > 0 else {}
    effects["match"] = match / sum(copies.values())
    if lookup.lag:  # what is matched is not the query's own token: no unit of the frame
        effects = {}
    return Circuit(
        kind=_kind(lookup, how),
        heads=tuple(heads),
        edges=tuple(sorted(edges, key=str)),
        effects={**effects, "copy": sum(copies.values())},
        strength=strength,
        coverage=coverage_of(cells, probe.context, lookup),
        note="; ".join(notes),
        parts=_parts(seen, heads, copies),
        hops=lookup.hops,
        lookup=lookup,
    )


def _kind(lookup: Lookup, how: Kind) -> Kind:
    """What a circuit that answers a lookup is called; `how` names the mechanism of induction."""
    if lookup.hops > 1:
        return "k_hop"
    if lookup.prefix > 1:
        return "induction_long_prefix"
    if lookup.lag or lookup.offset > 1:
        return "skip"
    return how if lookup.offset == 1 else "backward_retrieval"


def _more_than_chance(lift: Tensor) -> bool:
    """Whether the match brings answers: a mean gain above its own standard error, three times."""
    return float(lift.mean()) > 3 * float(lift.std()) / len(lift) ** 0.5


def _parts(
    seen: Matched, heads: list[HeadIndex], copiers: dict[HeadIndex, float]
) -> tuple[tuple[HeadIndex, str], ...]:
    """The role of every head that looks where the circuit needs a look: copiers at the answer,
    others from the answer's place at the earlier copy, or from the query at it."""
    rows, query, match = seen.contexts.rows, seen.contexts.query, seen.contexts.match
    lookup = seen.lookup
    end, feeder = ("induction", "previous_token") if lookup.offset == 1 else ("skip", "offset")
    if lookup.offset < 0 and not lookup.lag:
        end, feeder = "backward_retrieval", "previous_token"
    parts, most = [], sum(copiers.values()) / 2
    for layer, head in heads:
        pattern = seen.trace.attention[layer][:, head]

        def looks(place: Tensor, at: Tensor, pattern: Tensor = pattern) -> bool:
            return float(pattern[rows, place, at].mean()) >= LOOKS

        carried = (match, seen.target) if lookup.offset < 0 else (seen.target, match)
        if (layer, head) in copiers:
            # One that brings most of the answer is known by it, however little it attends.
            much = copiers[(layer, head)] >= most
            found = end if much or looks(query, seen.looked) else None
        elif any(looks(query, seen.reached(hop)) for hop in range(lookup.hops - 1)):
            found = end
        elif looks(*carried):
            found = feeder
        elif lookup.prefix > 1 and looks(seen.target, match - 1):
            found = "offset"
        else:
            found = "duplicate_token" if looks(query, match) else None
        parts += [] if found is None else [((layer, head), found)]
    return tuple(parts)


def _mechanism(split: ScoreSplit, seen: Matched) -> dict[Kind, dict[HeadIndex, float]]:
    """Nats of the match by shift feeders (what the key carries from the copy) and by pointer
    feeders (what the query reads of heads that look at the copy)."""
    rows, query, match = seen.contexts.rows, seen.contexts.query, seen.contexts.match
    by_query = split.by_query()
    shifted: dict[HeadIndex, float] = {}
    pointed: dict[HeadIndex, float] = {}
    for node in split.parts:
        if isinstance(node, str):
            continue
        layer, head = node
        shifted[node] = max(0.0, split.by_key_token(node, match))
        looks_back = float(seen.trace.attention[layer][rows, head, query, match].mean())
        pointed[node] = max(0.0, by_query[node]) if looks_back > LOOKS else 0.0
    return {"induction": shifted, "pointer_induction": pointed}


def _look(seen: Matched, feeders: dict[HeadIndex, float], position: Tensor) -> float:
    """Log-odds, in nats, with which the feeders at `position` look at the match, against the mean
    of the other positions they see; a mean weighted by what each brings."""
    rows, match = seen.contexts.rows, seen.contexts.match
    total = weight = 0.0
    for (layer, head), brought in feeders.items():
        on = seen.trace.attention[layer][rows, head, position, match].clamp(min=1e-12)
        off = ((1 - on) / position.clamp(min=1)).clamp(min=1e-12)
        total += brought * float((on.log() - off.log()).mean())
        weight += brought
    return total / weight if weight > 0 else 0.0
