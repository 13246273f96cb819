"""Circuits of models whose paths are too many to sum, or whose MLPs are not read.

Heads are found by the attention that weights and extended embeddings predict, searched outward: who
looks one back, who looks where a token was before, who feeds the latter. Whether the answer comes
out is known from running the model on random contexts that repeat.
"""

from __future__ import annotations

import math

import torch

from imir_detect._typing import HeadIndex
from imir_detect.circuits.attending import SIGNIFICANT, fixed_place_circuits
from imir_detect.circuits.attribution import leading
from imir_detect.circuits.core import BY_RUNNING, Circuit, Coverage, Kind
from imir_detect.circuits.deep_feeders import fed, searched
from imir_detect.circuits.deep_seen import Deep
from imir_detect.circuits.probe import Probe, near_best
from imir_detect.circuits.relation import Relation
from imir_detect.coordinates.extended import read_out
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, PORTS, Edge
from imir_detect.linalg import DTYPE

# Averaging over contexts weakens predicted attention: a quarter of it names a head.
LOOKS = 0.1


def deep_circuits(probe: Probe, deep: Deep, relation: Relation) -> tuple[Circuit, ...]:
    """Every circuit found, strongest first."""
    found = _fixed_places(probe, deep)
    found += _matching(deep)
    if relation.coverage > 0:
        found.append(_in_weights(deep, relation))
    return tuple(sorted(found, key=lambda c: -c.strength))


def _fixed_places(probe: Probe, deep: Deep) -> list[Circuit]:
    """Heads that attend to a fixed place; all that rest on position 0 as one circuit."""
    found = fixed_place_circuits(probe, deep.patterns())
    resting = [c for c in found if c.kind == "position_sink"]
    kept = [c for c in found if c.kind != "position_sink"]
    if resting:
        heads = tuple(sorted(head for c in resting for head in c.heads))
        kept.append(
            Circuit(
                kind="position_sink",
                heads=heads,
                edges=tuple(edge for c in resting for edge in c.edges),
                effects={},
                strength=sum(c.strength for c in resting) / len(resting),
                coverage=Coverage(1.0, "positions"),
                note=f"{len(heads)} heads that rest on position 0",
            )
        )
    return kept


def _matching(deep: Deep) -> list[Circuit]:
    """Heads that look where a token was before: at the copy itself, or at what followed it; the
    latter copy what they see (one circuit, with their feeders), push it down, or neither."""
    found: list[Circuit] = []
    copiers: dict[HeadIndex, float] = {}
    for head in deep.weights.heads:
        same, behind = deep.lift(head, 0), deep.lift(head, 1)
        if same > max(LOOKS, behind):
            found.append(_single("duplicate_token", head, {}, same, "attends to the earlier copy"))
        elif behind > LOOKS:
            margin, z = copies(deep, head)
            if abs(z) < SIGNIFICANT:
                note = "attends like an induction head and copies nothing to the logits directly"
                found.append(_single("prefix_match", head, {}, behind, note))
            elif z > 0:
                copiers[head] = margin
            else:
                note = "attends like an induction head and pushes the attended token down"
                found.append(_single("suppression", head, {"copy": margin}, behind, note))
    if copiers:
        found.append(_induction(deep, copiers))
    return found


def _single(
    kind: Kind, head: HeadIndex, effects: dict[str, float], strength: float, note: str
) -> Circuit:
    return Circuit(
        kind=kind,
        heads=(head,),
        edges=tuple(Edge(EMBED, head, port) for port in PORTS),
        effects=effects,
        strength=min(1.0, max(0.0, strength)),
        coverage=Coverage(1.0, "positions"),
        note=f"{note}; attention predicted from extended embeddings",
    )


def copies(deep: Deep, head: HeadIndex, offset: int = 1) -> tuple[float, float]:
    """Nats by which the head's output-value map raises the token it attends to over the other
    sampled ones, at its predicted attention `offset` places behind the copy, and their z over
    tokens; 0 and 0 where output tokens are not input tokens."""
    w, extended = deep.weights, deep.extended
    if not w.same_vocabulary:
        return 0.0, 0.0
    A, B = read_out(w, extended, head)
    logits = A @ B.T
    own = logits.diagonal() - (logits.sum(1) - logits.diagonal()) / max(1, len(logits) - 1)
    error = float(own.std()) / math.sqrt(len(own))
    return float(own.mean()) * deep.lift(head, offset), float(own.mean()) / max(error, 1e-12)


def _induction(deep: Deep, copiers: dict[HeadIndex, float]) -> Circuit:
    match, moved = fed(deep, tuple(copiers))
    edges = {Edge(head, OUTPUT, "out") for head in copiers}
    for terms in (*match.values(), *moved.values()):
        edges |= {edge for edge in leading(terms) if edge.source != EMBED}
    heads = sorted({n for e in edges for n in (e.source, e.target) if not isinstance(n, str)})
    edges |= {Edge(EMBED, head, port) for head in heads for port in PORTS}
    right = deep.right()
    place = torch.arange(right.shape[1]).expand_as(right).flatten()
    held = near_best(
        right.flatten(), place, torch.ones_like(place, dtype=torch.bool), right.shape[1]
    )
    # Feeders have the role that their own attention gives them, if any.
    parts = tuple((head, "induction") for head in copiers)
    named, rest = searched(match)
    return Circuit(
        kind="induction",
        heads=tuple(heads),
        edges=tuple(sorted(edges, key=str)),
        effects={
            "match": max(sum(max(0.0, v) for v in terms.values()) for terms in match.values()),
            "copy": sum(copiers.values()),
        },
        strength=float(right.mean()),
        coverage=Coverage(float(held.double().mean()), "positions"),
        note=(
            f"{BY_RUNNING}; heads are those whose predicted attention exceeds {LOOKS}, feeders "
            f"bring a tenth of what heads bring to the match, {named:.0%} of it together, or of "
            f"the copy; the largest that is not named brings {rest:.1f} nats to any match"
        ),
        parts=parts,
    )


def _in_weights(deep: Deep, relation: Relation) -> Circuit:
    """How often the model puts a named token's partner on top where nothing repeats yet, on
    contexts that R was not estimated from."""
    extended = deep.extended
    token = deep.repeated.index[:, 1 : deep.period - 1].flatten()
    top = deep.top[:, 1 : deep.period - 1].flatten()
    partner = relation.partner[extended.tokens[token]]
    asked = partner >= 0
    right = (top == partner)[asked].to(DTYPE)
    per_token = torch.zeros(len(extended.tokens), dtype=DTYPE).index_add_(0, token[asked], right)
    count = torch.bincount(token[asked], minlength=len(extended.tokens))
    held = (per_token > 0.5 * count)[count > 0]
    return Circuit(
        kind="in_weights",
        heads=(),
        edges=(Edge(EMBED, OUTPUT, "out"),),
        effects={"associate": float(relation.margin[relation.named].mean())}
        if relation.margin is not None
        else {},
        strength=float(right.mean()) if len(right) else 0.0,
        coverage=Coverage(float(held.double().mean()) if len(held) else 0.0, "tokens"),
        note=(
            f"{BY_RUNNING}; R estimated from the extended read-out, a probe and not a reading of "
            f"weights: {len(relation.named)} of {len(extended.tokens)} sampled tokens; what holds "
            "it was not looked at"
        ),
    )
