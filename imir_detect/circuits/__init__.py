"""Stage 4: named circuits, what they predict, and the label that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from imir_detect.circuits.asking import answered_tokens, fresh_tokens
from imir_detect.circuits.association import find_in_weights
from imir_detect.circuits.attending import fixed_place_circuits
from imir_detect.circuits.core import Circuit
from imir_detect.circuits.in_context import find_in_context
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation


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
    looking = find_in_context(probe, patterns, relation, asked, fill)
    found += looking.circuits
    circuits = tuple(sorted(found, key=lambda c: -c.strength))
    return Findings(circuits, {"icl": looking.wins, "iwl": iwl}, looking.by_match)
