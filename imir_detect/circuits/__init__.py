"""Stage 4: named circuits, what they predict, and the label that follows."""

from __future__ import annotations

from typing import Any

import torch

from imir_detect._typing import Int, Tensor
from imir_detect.circuits.association import find_in_weights
from imir_detect.circuits.attending import ATTENDS, fixed_place_circuits, matching_circuits
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.induction import answering_circuit
from imir_detect.circuits.matched import observe
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation, directly_paired

FEWEST_RARE = 4  # unnamed tokens from which fresh associations are asked of these alone


def find_circuits(probe: Probe, relation: Relation, patterns: Patterns[Any]) -> tuple[Circuit, ...]:
    """Every circuit of the grammar that this version looks for, strongest first."""
    found = fixed_place_circuits(probe, patterns)
    in_weights = find_in_weights(probe, relation)
    if in_weights is not None:
        found.append(in_weights)
    asked = fresh_tokens(probe, relation)
    # Other offsets are worth their cost only where a head attends there.
    further = [
        offset
        for offset in (2, 3)
        if any(patterns.behind_copy(head, offset) > ATTENDS for head in probe.weights.heads)
    ]
    for offset in (1, *further):
        if probe.context < offset + 2:
            continue
        # Choosing places takes more contexts than judging them.
        first = observe(probe, offset, asked, stream=20 + offset, n=2 * probe.samples)
        circuit = answering_circuit(probe, first, asked)
        # A head whose circuit hardly answers may still be one that matches and copies nothing.
        answers = circuit is not None and circuit.strength >= ATTENDS
        taken = set(circuit.ends) if circuit is not None and answers else set()
        found += [] if circuit is None else [circuit]
        second = observe(probe, offset, asked, stream=30 + offset, n=probe.samples)
        found += matching_circuits(probe, first, second, taken)
    return tuple(sorted(found, key=lambda c: -c.strength))


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
