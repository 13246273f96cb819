"""One row a head: predicted attention on repeated random tokens, its read-out, its role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from imir_detect._typing import HeadIndex
from imir_detect.circuits.core import IN_CONTEXT, Circuit, Kind
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.extended import Extended
from imir_detect.coordinates.table import top_share, within

# The role of the heads that end a circuit, and of those that feed it.
ROLE_OF: dict[Kind, tuple[str, str]] = {
    "induction": ("induction", "previous_token"),
    "pointer_induction": ("induction", "duplicate_token"),
    "skip": ("skip", "offset"),
    "suppression": ("suppression", "none"),
    "prefix_match": ("prefix_match", "none"),
    "previous_token": ("previous_token", "none"),
    "offset": ("offset", "none"),
    "duplicate_token": ("duplicate_token", "none"),
    "position_sink": ("position_sink", "none"),
    "in_weights": ("none", "none"),
}


@dataclass(frozen=True)
class Head:
    """A row of `Report.heads`. Undefined entries are None: where input and output
    vocabularies differ, copying, suppression and association are."""

    layer: int
    head: int
    previous_token: float
    duplicate_token: float
    induction: float
    copying: float | None
    suppression: float | None
    association: float | None
    role: str


def head_table(
    probe: Probe,
    patterns: Patterns[Any],
    relation: Relation,
    circuits: Iterable[Circuit],
    extended: Extended | None = None,
) -> tuple[Head, ...]:
    """All heads, in order. With `extended`, read-outs are of extended embeddings, among the sampled
    tokens."""
    weights = probe.weights
    roles = _roles(circuits, weights.heads)
    count = min(len(probe.vocabulary), 512)
    order = torch.randperm(len(probe.vocabulary), generator=probe.generator(8))
    asked = torch.zeros(weights.vocab_size, dtype=torch.bool)
    asked[probe.vocabulary[order[:count]]] = True
    index = asked.nonzero()[:, 0]
    partner, B = relation.partner, weights.W_U.T
    if extended is not None and weights.same_vocabulary:
        index = torch.arange(len(extended.tokens))
        partner, B = within(relation.partner, extended.tokens), weights.W_U.T[extended.tokens]
    rows = []
    for layer, head in weights.heads:
        copying = suppression = association = None
        if weights.same_vocabulary:
            X = weights.W_E if extended is None else extended.own[layer].mean(0)
            A = X @ weights.W_V[layer, head] @ weights.W_O[layer, head]
            copying, suppression = top_share(A, B, None, index)
            association, _ = top_share(A, B, partner, index)
        rows.append(
            Head(
                layer,
                head,
                patterns.previous((layer, head)),
                patterns.behind_copy((layer, head), 0),
                patterns.behind_copy((layer, head), 1),
                copying,
                suppression,
                association,
                roles[(layer, head)],
            )
        )
    return tuple(rows)


def _roles(circuits: Iterable[Circuit], heads: Iterable[HeadIndex]) -> dict[HeadIndex, str]:
    """The part each head plays in the strongest circuit that names it. Heads that feed a working
    induction circuit count by what they do for it, whatever their mean attention is."""
    roles = dict.fromkeys(heads, "none")
    # A head that rests on position 0 when it has nothing to do is known by what else it does.
    for circuit in sorted(circuits, key=lambda c: (c.kind == "position_sink", -c.strength)):
        end, feeder = ROLE_OF[circuit.kind]
        for head in circuit.heads:
            role = end if head in circuit.ends else feeder
            if roles[head] == "none" and (circuit.works or circuit.kind not in IN_CONTEXT):
                roles[head] = role
    return roles
