"""Which heads, edges and units a planted circuit is made of, for each ablation: exact, from plan.

An edge source -> (head, port) belongs to the circuit when what the source writes into the slot
that the port reads reaches the logits, and when the ablation takes it away. Zero ablation takes
everything. Mean ablation (over tokens, place by place) and resample ablation (another sequence of
the same positions) leave what depends on the position alone; so an edge that carries nothing else
is no part of a circuit then. Every circuit is minimal: without any one edge some answer is lost.
Redundant heads give several under zero and mean ablation; their union is what takes part, their
intersection is necessary. Under resample ablation a redundant head that is left out does not fall
silent: it speaks for another sequence and cancels its twin, so both are needed. Where two readers
read two such feeders, one of the four links may still go: one reader halved, the other whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

from imir_detect._typing import HeadIndex
from imir_detect.coordinates.pathsum import EMBED, OUTPUT, Edge, Node
from imir_detect.frame.names import ASSOCIATION, TOKEN_IDENTITY, Direction, Path, shift
from imir_detect.models.planted import Job, PlantedSpec, Slot, jobs

Ablation = Literal["zero", "mean", "resample"]
ABLATIONS: tuple[Ablation, ...] = ("zero", "mean", "resample")


@dataclass(frozen=True)
class Truth:
    """The answer key of one model under one ablation.

    - `circuits`: every minimal faithful circuit as a set of edges (empty: nothing answers).
    - `units`: (name, direction) of those units that the frame can name; pointing forward and
      looking at place 0 it cannot.
    """

    circuits: tuple[frozenset[Edge], ...]
    units: tuple[tuple[str, Direction], ...] = ()

    @property
    def edges(self) -> frozenset[Edge]:
        """Edges that take part in some minimal circuit."""
        return frozenset().union(*self.circuits)

    @property
    def necessary(self) -> frozenset[Edge]:
        """Edges that stand in every minimal circuit."""
        return frozenset.intersection(*self.circuits) if self.circuits else frozenset()

    @property
    def heads(self) -> tuple[HeadIndex, ...]:
        """Heads that take part: those with an edge that leads out of them."""
        return tuple(sorted({e.source for e in self.edges if not isinstance(e.source, str)}))


def truth_of(spec: PlantedSpec, ablation: Ablation) -> Truth:
    """The exact truth of a planted model.

    >>> spec = PlantedSpec("previous_token", layers=1, heads=1)
    >>> sorted(str(e) for e in truth_of(spec, "mean").edges)
    ['L0H0 -out-> output', 'embed -V-> L0H0']
    >>> len(truth_of(spec, "zero").edges)
    4
    """
    if spec.kind in ("none", "prefix_match"):
        return Truth(())
    if spec.kind == "in_weights" and not spec.by_head:
        return Truth(
            (frozenset({Edge(EMBED, OUTPUT, "out")}),),
            (("associate", Direction(None, Path(), ASSOCIATION)),),
        )
    circuit = [job for job in jobs(spec) if job.role != "distractor"]
    by_role: dict[str, list[Job]] = {}
    for job in circuit:
        by_role.setdefault(job.role, []).append(job)
    if ablation == "resample":
        found = _all_needed(circuit)
    else:
        found = [_edges(way, ablation) for way in product(*by_role.values())]
    return Truth(tuple(found), _units(spec, circuit, ablation))


def _all_needed(circuit: list[Job]) -> list[frozenset[Edge]]:
    """Minimal circuits under resample ablation (of at most two readers)."""
    whole = _edges(tuple(circuit), "resample")
    twins = [job.head for job in circuit if job.role == "feeder"]
    readers = [job.head for job in circuit if job.role == "reader"]
    if len(twins) < 2 or len(readers) < 2:
        return [whole]
    links = sorted(e for e in whole if e.source in twins and e.target in readers)
    return [whole - {link} for link in links]


def _edges(way: tuple[Job, ...], ablation: Ablation) -> frozenset[Edge]:
    """Edges of one choice of a head for every role."""
    edges: set[Edge] = set()
    for job in way:
        terms = [(job.query, job.key), *((query, key) for query, key, _ in job.also)]
        read = [(port, slot) for term in terms for port, slot in zip("QK", term, strict=True)]
        for port, slot in (*read, ("V", job.value)):
            edges |= {
                Edge(source, job.head, port)  # type: ignore[arg-type]
                for source, varies in _writers(slot, way)
                if varies or ablation == "zero"
            }
        if job.target == "logit":
            edges.add(Edge(job.head, OUTPUT, "out"))
    return frozenset(edges)


def _writers(slot: Slot, way: tuple[Job, ...]) -> list[tuple[Node, bool]]:
    """What writes to a slot, and whether it varies with the tokens. Every job that writes to
    `found` does: it moves tokens, or looks where tokens tell it to."""
    if slot in ("token", "position"):
        return [(EMBED, slot == "token")]
    return [(job.head, True) for job in way if job.target == slot]


def _units(
    spec: PlantedSpec, circuit: list[Job], ablation: Ablation
) -> tuple[tuple[str, Direction], ...]:
    def carried(slot: Slot) -> list[Path]:
        """The paths by which tokens come into a slot."""
        writers = [Path((job.head,)) for job in circuit if job.target == slot]
        return [Path()] if slot == "token" else writers

    units: list[tuple[str, Direction]] = []
    for job in circuit:
        by_place = (job.query, job.key) == ("position", "position")
        if by_place and job.back > 0 and ablation == "zero":
            units.append(("shift", Direction(job.head, Path(), shift(job.back))))
        for query, key in ((job.query, job.key), *((q, k) for q, k, _ in job.also)):
            if "position" not in (query, key):
                units += [
                    ("match", Direction(job.head, by, TOKEN_IDENTITY, through))
                    for by in carried(query)
                    for through in carried(key)
                ]
        if job.target == "logit":
            name = "associate" if job.partner else "suppress" if job.gain < 0 else "copy"
            read = ASSOCIATION if job.partner else TOKEN_IDENTITY
            paths = [path.then(job.head) for path in carried(job.value)]
            units += [(name, Direction(None, path, read)) for path in paths]
    return tuple(units)
