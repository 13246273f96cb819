"""What every head of a planted model does, and the matrices by which it does so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from imir_detect._typing import HeadIndex
from imir_detect.models.planted_spec import FED, PlantedSpec, Slot, relation_of

Term = tuple[Slot, Slot, float]  # query, key, factor


@dataclass(frozen=True)
class Job:
    """What one head does. `role`: heads of one role do the same work, redundantly; `part`: the
    query places it works at, 0 even, 1 odd, None all. `only`: query indices it answers to. `also`:
    (query, key, factor) of a further term of its score."""

    head: HeadIndex
    role: str
    query: Slot
    key: Slot
    value: Slot
    target: Slot
    back: int = 0
    gain: float = 1.0
    part: int | None = None
    only: int | None = None
    partner: bool = False  # writes the partner of what it reads
    first: bool = False  # looks at place 0 from everywhere
    also: tuple[Term, ...] = ()


REFERENCE = Job((0, 0), "reader", "token", "found", "token", "logit")


def jobs(spec: PlantedSpec) -> tuple[Job, ...]:
    """Every head's job: the circuit's, then the distractors'."""
    places = _Places(spec)
    made = [*_feeders(spec, places), *_hops(spec, places), *_readers(spec, places)]
    return (*made, *_distractors(spec, places))


class _Places:
    """Hands out heads of a layer in a seeded order."""

    def __init__(self, spec: PlantedSpec) -> None:
        generator = torch.Generator().manual_seed(spec.seed)
        self.free = {
            layer: torch.randperm(spec.heads, generator=generator).tolist()
            for layer in range(spec.layers)
        }

    def take(self, layer: int) -> HeadIndex:
        return (layer, self.free[layer].pop())


def _feeders(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    if spec.kind not in FED:
        return
    back = spec.back if spec.kind == "skip" else 1
    template = Job((0, 0), "feeder", "position", "position", "token", "found", back)
    if spec.kind == "pointer_induction":
        template = Job((0, 0), "feeder", "token", "token", "position", "found")
    parts = {"one": (None,), "split": (0, 1), "redundant": (None, None)}[spec.feeders]
    if spec.kind == "k_hop":
        parts = (1,)  # in the second place of every block: one back stays inside
    for part in parts:
        role = template.role if part is None else f"feeder {part}"
        head = places.take(spec.feeder_layer)
        yield replace(template, head=head, part=part, role=role)
    if spec.kind == "induction_long_prefix":
        head = places.take(spec.feeder_layer)
        yield replace(template, head=head, role="feeder far", back=2, target="carried")


def _hops(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    if spec.kind == "k_hop":
        head = places.take(spec.hop_layer)
        yield Job(head, "hop", "token", "found", "token", "carried")


def _readers(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    layer = spec.reader_layer % spec.layers
    look = {
        "induction": Job((0, 0), "reader", "token", "found", "token", "logit"),
        "pointer_induction": Job((0, 0), "reader", "found", "position", "token", "logit", -1),
        "previous_token": Job((0, 0), "reader", "position", "position", "token", "logit", 1),
        "offset": Job((0, 0), "reader", "position", "position", "token", "logit", spec.back),
        "duplicate_token": Job((0, 0), "reader", "token", "token", "token", "logit"),
        "position_sink": Job((0, 0), "reader", "position", "position", "token", "logit"),
    }
    far: Term = ("found", "carried", 1.0)
    away: Term = ("position", "position", -1.0)
    look["induction_long_prefix"] = replace(look["induction"], also=(far,))
    look["k_hop"] = replace(look["induction"], query="carried")
    look["backward_retrieval"] = replace(look["duplicate_token"], value="found", also=(away,))
    look["skip"] = look["induction"]
    look["suppression"] = replace(look["induction"], gain=-1.0)
    look["prefix_match"] = replace(look["induction"], target="junk")
    look["position_sink"] = replace(look["position_sink"], first=True)
    look["in_weights"] = replace(look["offset"], back=0, partner=True)
    if spec.kind == "none" or (spec.kind == "in_weights" and not spec.by_head):
        return
    for _ in range(spec.readers):
        job = look[spec.kind]
        yield replace(job, head=places.take(layer), gain=spec.gain * job.gain, only=spec.triggers)


def _distractors(spec: PlantedSpec, places: _Places) -> Iterator[Job]:
    idle = Job((0, 0), "distractor", "position", "position", "token", "junk", 1, 2.0)
    kinds = (
        idle,
        replace(idle, query="token", key="found", back=0),
        replace(idle, query="token", key="token", back=0),
        replace(idle, back=2),
    )
    made = 0
    while made < spec.distractors:
        for layer in range(spec.layers):
            if made < spec.distractors and places.free[layer]:
                kind = kinds[(made + layer) % len(kinds)]
                yield replace(kind, head=places.take(layer))
                made += 1


def job_matrices(
    spec: PlantedSpec, job: Job, basis: Tensor, slots: dict[Slot, slice], factor: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W_Q, W_K, W_V and the transpose of W_O, each (d_model, d_head)."""

    def place(pairs: Iterator[tuple[int, int]] | zip, slot: Slot, scale: float) -> Tensor:
        matrix = torch.zeros(spec.width, spec.head_width)
        for row, column in pairs:
            matrix[:, column] += scale * basis[slots[slot]][row]
        return matrix

    n_query = slots[job.query].stop - slots[job.query].start
    n_key = slots[job.key].stop - slots[job.key].start
    asked = [
        (i, 0 if job.first else i - job.back)
        for i in range(n_query if job.only is None or job.query != "token" else job.only)
        if (job.part is None or i % 2 == job.part) and (job.first or 0 <= i - job.back < n_key)
    ]
    moved = slots[job.value].stop - slots[job.value].start
    to = relation_of(spec).tolist() if job.partner else list(range(moved))
    sharp = spec.sharpness * math.sqrt(spec.head_width) / factor**2
    W_Q = place(iter(asked), job.query, sharp)
    W_K = place(zip(range(n_key), range(n_key), strict=True), job.key, 1.0)
    for number, (query, key, scale) in enumerate(job.also, start=1):
        size = slots[query].stop - slots[query].start
        pairs = [(i, spec.side * number + i) for i in range(size)]
        W_Q += place(iter(pairs), query, sharp * scale)
        W_K += place(iter(pairs), key, 1.0)
    return (
        W_Q,
        W_K,
        place(zip(range(moved), range(moved), strict=True), job.value, 1.0 / factor),
        place(((t, i) for i, t in enumerate(to) if t >= 0), job.target, job.gain),
    )
