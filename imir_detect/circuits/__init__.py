"""Stage 4: named circuits, what they predict, and the label that follows."""

from __future__ import annotations

from typing import Any

import torch

from imir_detect._typing import HeadIndex, Int, Tensor
from imir_detect.circuits.association import find_in_weights
from imir_detect.circuits.attending import ATTENDS, fixed_place_circuits, matching_circuits
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.induction import answering_circuit
from imir_detect.circuits.matched import Matched, observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe, cover
from imir_detect.circuits.relation import Relation, directly_paired
from imir_detect.frame.lookups import INDUCTION, Lookup

HARDLY = 0.1  # share of answers that the match must add for the best quarter of the tokens
MOST_ASKED = 128  # tokens of which it is looked which are answered: more need too many contexts
FURTHER = (2, 3)  # offsets of skip circuits
HOPS = (2, 3, 4)
ENDS = ("induction", "skip")  # roles of heads that look behind a copy
FEWEST_RARE = 4  # unnamed tokens from which fresh associations are asked of these alone


def find_circuits(probe: Probe, relation: Relation, patterns: Patterns[Any]) -> tuple[Circuit, ...]:
    """Every circuit of the grammar that this version looks for, strongest first."""
    found = fixed_place_circuits(probe, patterns)
    in_weights = find_in_weights(probe, relation)
    if in_weights is not None:
        found.append(in_weights)
    asked = fresh_tokens(probe, relation)
    if relation.estimated and probe.context >= 3:
        asked = answered_tokens(probe, asked)
    taken: set[HeadIndex] = set()
    looked: dict[int, Matched] = {}
    for number, lookup in enumerate(_lookups(probe, patterns), start=1):
        # Choosing places takes more contexts than judging them, and more for every copy that has a
        # place of its own.
        n = 2 * probe.samples * lookup.links
        first = observe(probe, lookup, asked, stream=20 + number, n=n)
        circuit = answering_circuit(probe, first, asked, stream=40 + number)
        if lookup.offset > 0 and lookup.plain:
            looked[number] = first
        if circuit is None or (lookup != INDUCTION and circuit.strength < ATTENDS):
            continue
        found.append(circuit)
        # A head whose circuit hardly answers may still be one that matches and copies nothing.
        if circuit.strength >= ATTENDS:
            taken |= set(circuit.ends)
        if circuit.works:
            taken |= {head for head, role in circuit.parts if role in ENDS}
    for number, first in looked.items():
        second = observe(probe, first.lookup, asked, stream=30 + number, n=probe.samples)
        found += matching_circuits(probe, first, second, taken)
    return tuple(sorted(found, key=lambda c: -c.strength))


def _lookups(probe: Probe, patterns: Patterns[Any]) -> list[Lookup]:
    """The lookups that are worth asking: other offsets where a head attends there, more hops and
    the like where there are layers for them, and all only where the context has room."""
    heads, depth = probe.weights.heads, probe.weights.n_layers
    asked = [INDUCTION]
    for offset in FURTHER:
        if any(patterns.behind_copy(head, offset) > ATTENDS for head in heads):
            asked.append(Lookup(offset))
    if depth >= 2:
        asked += [Lookup(prefix=2), Lookup(-1)]
    asked += [Lookup(hops=hops) for hops in HOPS if depth > max(2, hops - 1)]
    return [lookup for lookup in asked if probe.context >= lookup.least]


def fresh_tokens(probe: Probe, relation: Relation) -> Int[Tensor, " asked"] | None:
    """Tokens whose associations are fresh in every sequence: those that R does not name and, where
    R is not given, that the weights pair off in no way. All (None) where too few are left."""
    fresh = torch.zeros(probe.weights.vocab_size, dtype=torch.bool)
    fresh[probe.vocabulary] = True
    fresh[relation.named] = False
    fresh[relation.partner[relation.named]] = False
    if relation.estimated:
        fresh[directly_paired(probe)] = False
    kept = fresh.nonzero()[:, 0]
    return None if len(kept) in (*range(FEWEST_RARE), len(probe.vocabulary)) else kept


def answered_tokens(
    probe: Probe, asked: Int[Tensor, " asked"] | None
) -> Int[Tensor, " asked"] | None:
    """Of the tokens asked, those that the model answers for, both as a query and as an answer, at
    least half as often as for the best quarter; `asked` itself where that leaves few, or all, or
    where even these are hardly answered.

    Tokens with a place of their own in the data (the keys and values of a directed relation) are
    never asked, or never an answer; nothing is learned from asking them.
    """
    tokens = probe.vocabulary if asked is None else asked
    if not probe.weights.same_vocabulary or not FEWEST_RARE <= len(tokens) <= MOST_ASKED:
        return asked
    first = observe(probe, INDUCTION, asked, stream=50, n=4 * probe.samples)
    cells = cover(first.answer_lift, first.contexts, probe.context)
    seen = first.within(cells)
    if len(seen.contexts) == 0:
        return asked
    seen = observe(probe, INDUCTION, asked, stream=51, n=4 * probe.samples, cells=cells)
    query = seen.contexts.tokens[seen.contexts.rows, seen.contexts.query]
    keep = torch.ones(len(tokens), dtype=torch.bool)
    for part in (query, seen.contexts.wanted):
        size = probe.weights.vocab_size
        total = torch.zeros(size, dtype=torch.float64).index_add_(0, part, seen.answer_lift)
        rate = (total / torch.bincount(part, minlength=size).clamp(min=1))[tokens]
        best = float(rate.quantile(0.75))
        if best < HARDLY:
            return asked
        keep &= rate >= best / 2
    return asked if keep.all() or int(keep.sum()) < 2 * FEWEST_RARE else tokens[keep]
