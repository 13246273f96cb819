"""One row a head: predicted attention on repeated random tokens, its read-out, its role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex
from imir_detect.circuits.attending import ATTENDS
from imir_detect.circuits.core import IN_CONTEXT, Circuit, Kind
from imir_detect.circuits.patterns import Patterns
from imir_detect.circuits.probe import Probe
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.extended import Extended, read_outs
from imir_detect.coordinates.table import top_share, within
from imir_detect.weights.model import ModelWeights

# The role of the head that ends a circuit without `parts`; what feeds it has none by that.
ROLE_OF: dict[Kind, str] = {
    "suppression": "suppression",
    "prefix_match": "prefix_match",
    "previous_token": "previous_token",
    "offset": "offset",
    "duplicate_token": "duplicate_token",
    "position_sink": "position_sink",
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
    # A head that looks at the earlier copy from a few places only is none that does so.
    named = [
        c
        for c in circuits
        if extended is not None
        or c.kind != "duplicate_token"
        or patterns.behind_copy(c.ends[-1], 0) >= ATTENDS
    ]
    roles = _roles(named, weights.heads)
    count = min(len(probe.vocabulary), 512)
    order = torch.randperm(len(probe.vocabulary), generator=probe.generator(8))
    asked = torch.zeros(weights.vocab_size, dtype=torch.bool)
    asked[probe.vocabulary[order[:count]]] = True
    index = asked.nonzero()[:, 0]
    partner = relation.partner
    if extended is not None and weights.same_vocabulary:
        index = torch.arange(len(extended.tokens))
        partner = within(relation.partner, extended.tokens)
    rows = []
    read = _embedded(weights) if extended is None else read_outs(weights, extended)
    for layer, head in weights.heads:
        copying = suppression = association = None
        if weights.same_vocabulary:
            A, B = next(read)
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


def _embedded(weights: ModelWeights) -> Iterator[tuple[Tensor, Tensor]]:
    """A and B of every head, in order: A B^T is what it adds to the logits of embedded tokens."""
    for layer, head in weights.heads:
        A = weights.W_E @ weights.W_V[layer, head]
        yield A, weights.W_U.T @ weights.W_O[layer, head].T


def _roles(circuits: Iterable[Circuit], heads: Iterable[HeadIndex]) -> dict[HeadIndex, str]:
    """The part each head plays in the strongest circuit that gives it one. Heads of a working
    induction circuit count by where they look for it, whatever their mean attention is."""
    roles = dict.fromkeys(heads, "none")
    # A head that rests on position 0 when it has nothing to do is known by what else it does, and
    # one that attends to copies by what it writes of them.
    order = {"position_sink": 2, "duplicate_token": 1}
    for circuit in sorted(circuits, key=lambda c: (order.get(c.kind, 0), -c.strength)):
        parts = dict(circuit.parts)
        if circuit.kind in ROLE_OF:
            parts = dict.fromkeys(circuit.ends, ROLE_OF[circuit.kind])
        for head, role in parts.items():
            if roles[head] == "none" and (circuit.works or circuit.kind not in IN_CONTEXT):
                roles[head] = role
    return roles
