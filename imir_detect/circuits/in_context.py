"""Circuits that look for an earlier copy: all lookups that a model may answer, asked in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from imir_detect._typing import HeadIndex, Int, Tensor
from imir_detect.circuits.attending import ATTENDS, matching_circuits
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.induction import Answering, ask_for_answers
from imir_detect.circuits.matched import FEWEST, Matched, observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe, answers
from imir_detect.circuits.relation import Relation
from imir_detect.circuits.separators import separated_lookups, unsaid_tokens
from imir_detect.coordinates.pathsum import sum_paths
from imir_detect.frame.lookups import INDUCTION, Lookup, matching_contexts

FURTHER = (2, 3)  # offsets of skip circuits
HOPS = (2, 3, 4)
FEW_ANSWERS = 2
CLEARLY = 0.9  # strength from which an answering circuit is not looked for in another form
ENDS = ("induction", "skip")  # roles of heads that look behind a copy


@dataclass(frozen=True)
class InContext:
    """Circuits that answer by an earlier copy, or attend by one; the share of such questions that
    the whole model answers (`wins`), and the part of it that is owed to the match (`by_match`)."""

    circuits: tuple[Circuit, ...]
    wins: float
    by_match: float


@dataclass(frozen=True)
class _Tried:
    """One lookup: what was seen, what came of it, and the circuit that is worth its name."""

    first: Matched
    answering: Answering
    circuit: Circuit | None


def find_in_context(
    probe: Probe,
    patterns: Patterns[Any],
    relation: Relation,
    asked: Int[Tensor, " asked"] | None,
    fill: Int[Tensor, " fill"] | None,
) -> InContext:
    """Every lookup asked, the circuits that answer them named once each, and then the heads that
    attend by a match and are part of none. `asked`: tokens asked of; `fill`: of the rest."""
    tried: dict[int, _Tried] = {}
    lookups = chain(_lookups(probe, patterns), _with_separators(probe, relation, tried))
    for number, lookup in enumerate(lookups, start=1):
        if lookup.closed and any(
            t.circuit and t.circuit.hops == lookup.hops for t in tried.values()
        ):
            continue  # the same number of hops is answered on an open chain
        # Choosing places takes more contexts than judging them, and more for every copy that has a
        # place of its own.
        n = probe.samples * max(2, lookup.links)
        if not _ever_answered(probe, lookup, asked, fill, n=n // 2, stream=70 + number):
            continue
        first = observe(probe, lookup, asked, stream=20 + number, n=n, fill=fill)
        if len(first.contexts) >= FEWEST:  # else the contexts that were drawn have no room
            answering = ask_for_answers(probe, first, asked, fill, stream=number)
            tried[number] = _Tried(first, answering, _worth_naming(answering, lookup, probe, asked))
    circuits = _once(tried)
    taken = _taken(circuits)
    for number, seen in tried.items():
        lookup = seen.first.lookup
        if _matched_heads(lookup):
            n, stream = probe.samples, 30 + number
            second = observe(probe, lookup, asked, stream=stream, n=n, fill=fill)
            circuits += matching_circuits(probe, seen.first, second, taken)
    return InContext(tuple(circuits), *_share_won(tried))


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


def _with_separators(
    probe: Probe, relation: Relation, tried: Mapping[int, _Tried]
) -> Iterator[Lookup]:
    """The lookups among separators, once the plain ones are tried and none is answered clearly: a
    model that answers on random contexts needs no form."""
    found = [t.circuit for t in tried.values() if t.circuit is not None]
    if not any(c.in_context and c.strength > CLEARLY for c in found):
        yield from separated_lookups(probe, unsaid_tokens(probe, relation))


def _ever_answered(
    probe: Probe, lookup: Lookup, asked: Tensor | None, fill: Tensor | None, *, n: int, stream: int
) -> bool:
    """Whether more than a few of n contexts come out right: else nothing is compared. Heads that
    match at an offset are looked for in any case."""
    if _matched_heads(lookup):
        return True
    weights, generator = probe.weights, probe.generator(stream)
    if not weights.same_vocabulary:
        return False
    tokens = probe.vocabulary if fill is None else fill
    contexts = matching_contexts(n, probe.context, tokens, lookup, asked=asked, generator=generator)
    right = answers(weights, sum_paths(weights, contexts.tokens), contexts)
    return float(right.sum()) > FEW_ANSWERS


def _matched_heads(lookup: Lookup) -> bool:
    """Whether heads that match, and answer nothing, are looked for by this lookup."""
    return lookup.offset > 0 and lookup.plain and lookup.template is None


def _worth_naming(
    answering: Answering, lookup: Lookup, probe: Probe, asked: Tensor | None
) -> Circuit | None:
    """The circuit, with what it was asked of; weak ones are listed for induction alone."""
    circuit = answering.circuit
    if circuit is None or (lookup != INDUCTION and circuit.strength < ATTENDS):
        return None
    if asked is None:
        return circuit
    note = f"asked of {len(asked)} of {len(probe.vocabulary)} tokens"
    return replace(circuit, note="; ".join(filter(None, (circuit.note, note))))


def _once(tried: dict[int, _Tried]) -> list[Circuit]:
    """Every circuit under one name. On a closed chain of m links, k steps on are m - k steps back,
    so that one circuit answers at several lengths; where a chain's links stand side by side, its
    hops are a skip as well. What answers with separators and without them counts where it answers
    more."""
    found: dict[Lookup, Circuit] = {}
    for circuit in (t.circuit for t in tried.values() if t.circuit is not None):
        plain = replace(circuit.lookup or INDUCTION, template=None)
        if plain not in found or circuit.strength > found[plain].strength:
            found[plain] = circuit
    named = list(found.items())
    circuits = [circuit for lookup, circuit in named if not lookup.closed]
    closed = [circuit for lookup, circuit in named if lookup.closed]
    circuits += [max(closed, key=lambda c: c.strength)] if closed else []
    hopping = [set(c.heads) for c in circuits if c.kind == "k_hop" and c.works]
    return [c for c in circuits if c.kind != "skip" or not any(set(c.heads) <= h for h in hopping)]


def _taken(circuits: list[Circuit]) -> set[HeadIndex]:
    """Heads that are known by what they answer. One whose circuit hardly answers may still be one
    that matches and copies nothing."""
    taken: set[HeadIndex] = set()
    for circuit in circuits:
        if circuit.strength >= ATTENDS:
            taken |= set(circuit.ends)
        if circuit.works:
            taken |= {head for head, role in circuit.parts if role in ENDS}
    return taken


def _share_won(tried: dict[int, _Tried]) -> tuple[float, float]:
    """What the whole model answers, and by the match: of induction, or of the lookup by which it
    answers more."""
    best = (0.0, 0.0)
    for seen in tried.values():
        answering, circuit = seen.answering, seen.circuit
        counts = circuit is not None and circuit.in_context
        if seen.first.lookup == INDUCTION or (counts and answering.by_match > best[1]):
            best = answering.wins, answering.by_match
    return best
