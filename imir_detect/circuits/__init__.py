"""Stage 4: named circuits, what they predict, and the label that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from imir_detect._typing import HeadIndex, Int, Tensor
from imir_detect.circuits.association import find_in_weights
from imir_detect.circuits.attending import ATTENDS, fixed_place_circuits, matching_circuits
from imir_detect.circuits.core import IN_CONTEXT, Circuit
from imir_detect.circuits.induction import ask_for_answers
from imir_detect.circuits.matched import FEWEST, Matched, observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe, answers, cover
from imir_detect.circuits.relation import Relation, directly_paired
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts

HARDLY = 0.1  # share of answers that must win for the best quarter of the tokens
MOST_ASKED = 128  # tokens of which it is looked which are answered: more need too many contexts
FURTHER = (2, 3)  # offsets of skip circuits
HOPS = (2, 3, 4)
ENDS = ("induction", "skip")  # roles of heads that look behind a copy
FEWEST_RARE = 4  # unnamed tokens from which fresh associations are asked of these alone


@dataclass(frozen=True)
class Findings:
    """The circuits of a model, strongest first, and what the whole model answers.

    - `wins`: share of the questions that come out right, all contributions summed, in [0, 1]: "icl"
      the token behind an earlier copy of the query's, "iwl" R's where the context does not hold it.
    - `by_match`: the part of wins["icl"] that is owed to the match.
    """

    circuits: tuple[Circuit, ...]
    wins: dict[str, float]
    by_match: float


def find_circuits(probe: Probe, relation: Relation, patterns: Patterns[Any]) -> Findings:
    """Every circuit of the grammar that this version looks for, and how often the model answers."""
    found = fixed_place_circuits(probe, patterns)
    in_weights, iwl = find_in_weights(probe, relation)
    if in_weights is not None:
        found.append(in_weights)
    asked = fresh_tokens(probe, relation)
    if relation.estimated and probe.context >= 3:
        asked = answered_tokens(probe, asked)
    # Where common tokens are answered from the weights, fresh associations are those of the others.
    known = in_weights is not None and in_weights.works
    fill = asked if known and asked is not None and len(asked) >= probe.context else None
    icl = by_match = 0.0
    taken: set[HeadIndex] = set()
    closed: list[Circuit] = []
    looked: dict[int, Matched] = {}
    for number, lookup in enumerate(_lookups(probe, patterns), start=1):
        if lookup.closed and any(c.hops == lookup.hops for c in found):
            continue  # seen on open chains
        # Choosing places takes more contexts than judging them, and more for every copy that has a
        # place of its own.
        n = probe.samples * max(2, lookup.links)
        first = observe(probe, lookup, asked, stream=20 + number, n=n, fill=fill)
        if len(first.contexts) < FEWEST:
            continue  # no room in the contexts that were drawn
        answering = ask_for_answers(probe, first, asked, fill, stream=number)
        circuit = answering.circuit
        if lookup.offset > 0 and lookup.plain:
            looked[number] = first
        if lookup == INDUCTION:
            icl, by_match = answering.wins, answering.by_match
        if circuit is None or (lookup != INDUCTION and circuit.strength < ATTENDS):
            continue
        if asked is not None:
            note = f"asked of {len(asked)} of {len(probe.vocabulary)} tokens"
            circuit = replace(circuit, note="; ".join(filter(None, (circuit.note, note))))
        if lookup.closed:
            closed.append(circuit)
        else:
            found.append(circuit)
        if circuit.kind in IN_CONTEXT and answering.by_match > by_match:
            icl, by_match = answering.wins, answering.by_match
        # A head whose circuit hardly answers may still be one that matches and copies nothing.
        if circuit.strength >= ATTENDS:
            taken |= set(circuit.ends)
        if circuit.works:
            taken |= {head for head, role in circuit.parts if role in ENDS}
    # On a closed chain of m links, k steps on are m - k steps back, so that one circuit answers at
    # several lengths: it is named once.
    found += [max(closed, key=lambda c: c.strength)] if closed else []
    for number, first in looked.items():
        second = observe(probe, first.lookup, asked, stream=30 + number, n=probe.samples, fill=fill)
        found += matching_circuits(probe, first, second, taken)
    # Where a chain's links stand side by side, its hops are a skip as well.
    hopping = [set(c.heads) for c in found if c.kind == "k_hop" and c.works]
    found = [c for c in found if c.kind != "skip" or not any(set(c.heads) <= h for h in hopping)]
    circuits = tuple(sorted(found, key=lambda c: -c.strength))
    return Findings(circuits, {"icl": icl, "iwl": iwl}, by_match)


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
    deep = [hops for hops in HOPS if depth > max(2, hops - 1)]
    asked += [Lookup(hops=hops, closed=closed) for closed in (False, True) for hops in deep]
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
    first = observe(probe, INDUCTION, asked, stream=50, n=2 * probe.samples)
    cells = cover(first.score, first.contexts, probe.context)
    if len(first.within(cells).contexts) == 0:
        return asked
    contexts = matching_contexts(
        4 * probe.samples,
        probe.context,
        probe.vocabulary,
        asked=asked,
        cells=cells,
        generator=probe.generator(51),
    )
    right = answers(probe.weights, sum_paths(probe.weights, contexts.tokens), contexts)
    query = contexts.tokens[contexts.rows, contexts.query]
    keep = torch.zeros(probe.weights.vocab_size, dtype=torch.bool)
    keep[tokens] = True
    # Whether a token is answered depends on its partner in the question: those left out first
    # would make others look worse than they are.
    for _ in range(3):
        inside = keep[query] & keep[contexts.wanted]
        asking = keep.clone()
        for part in (query[inside], contexts.wanted[inside]):
            total = torch.zeros(len(keep), dtype=torch.float64).index_add_(0, part, right[inside])
            rate = total / torch.bincount(part, minlength=len(keep)).clamp(min=1)
            best = float(rate[asking].quantile(0.75))
            if best < HARDLY:
                return asked
            keep &= rate >= best / 2
        if int(keep.sum()) < 2 * FEWEST_RARE:
            return asked
    found = keep.nonzero()[:, 0]
    return found if len(found) < len(tokens) else asked
