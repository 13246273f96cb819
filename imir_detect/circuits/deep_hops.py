"""Two matches in a row, in models whose paths are too many to sum.

On two periods of the same tokens every token is followed by the same one, so that what follows the
follower of the query's token stands two places behind its copy. A head that is predicted to look
there, its query led there by a head that looks one place behind the copy (Q-composition), is the
second match of two hops. A head that looks there by itself is none: it skips a place.
"""

from __future__ import annotations

from imir_detect._typing import HeadIndex
from imir_detect.circuits.attending import ATTENDS, SIGNIFICANT
from imir_detect.circuits.attribution import leading
from imir_detect.circuits.core import BY_RUNNING, Circuit, Coverage
from imir_detect.circuits.deep import LOOKS, copies
from imir_detect.circuits.deep_feeders import fed, searched
from imir_detect.circuits.deep_seen import Deep
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, PORTS, Edge
from imir_detect.linalg import DTYPE


def with_hops(circuits: tuple[Circuit, ...], deep: Deep) -> tuple[Circuit, ...]:
    """The circuits, and that of two hops where there is one; a head that matches and copies nothing
    is then its first match, and no circuit of its own."""
    found = hop_circuit(deep)
    if found is None:
        return circuits
    inside = set(found.heads)
    kept = [c for c in circuits if c.kind != "prefix_match" or not set(c.heads) <= inside]
    return tuple(sorted([found, *kept], key=lambda c: -c.strength))


def hop_circuit(deep: Deep) -> Circuit | None:
    """The circuit of two hops; None where no query is led by a first match, or where the model
    hardly ever says the token two places behind."""
    strength = answered_twice(deep)
    if strength < ATTENDS:
        return None
    heads = tuple(deep.weights.heads)
    first = {head for head in heads if deep.lift(head, 1) > LOOKS}
    looking = tuple(head for head in heads if first and _looks_twice(deep, head))
    match, moved = fed(deep, looking, hops=2)
    led = {
        head: {e.source for e in leading(match[head]) if e.port == "Q" and e.source in first}
        for head in looking
    }
    last = [head for head in looking if led[head]]
    leaders = sorted(head for head in first if any(head in led[target] for target in last))
    if not last:
        return None
    before, _ = fed(deep, tuple(leaders))
    terms = [*before.values(), *(part[head] for part in (match, moved) for head in last)]
    edges = {Edge(head, OUTPUT, "out") for head in last}
    edges |= {edge for row in terms for edge in leading(row) if edge.source != EMBED}
    named = sorted({n for e in edges for n in (e.source, e.target) if not isinstance(n, str)})
    edges |= {Edge(EMBED, head, port) for head in named for port in PORTS}
    share, rest = searched({head: match[head] for head in last})
    return Circuit(
        kind="k_hop",
        heads=tuple(named),
        edges=tuple(sorted(edges, key=str)),
        effects={
            "match": max(sum(max(0.0, v) for v in match[head].values()) for head in last),
            "copy": sum(copies(deep, head, 2)[0] for head in last),
        },
        strength=strength,
        coverage=Coverage(1.0, "positions"),
        note=(
            f"2 hops; {BY_RUNNING}; last heads are those predicted to look two places behind the "
            f"copy more than {LOOKS}, their queries led by heads that look one behind; feeders "
            f"named bring {share:.0%} of what heads bring to the second match, the largest that is "
            f"not named {rest:.1f} nats"
        ),
        parts=tuple((head, "induction") for head in (*leaders, *last)),
        hops=2,
    )


def answered_twice(deep: Deep) -> float:
    """Share of queries after which the model puts the token two places behind the copy on top."""
    at = deep.queries[:-2]
    wanted = deep.extended.tokens[deep.repeated.index[:, at + 2]]
    return float((deep.top[:, at] == wanted).to(DTYPE).mean()) if len(at) else 0.0


def _looks_twice(deep: Deep, head: HeadIndex) -> bool:
    """Whether a head looks two places behind the copy, more than one place, and copies what it
    sees."""
    twice = deep.lift(head, 2)
    if twice <= max(LOOKS, deep.lift(head, 1)):
        return False
    return copies(deep, head, 2)[1] >= SIGNIFICANT
